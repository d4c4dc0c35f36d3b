//! Secrets that the daemon knows: keys of providers and its own tokens. Replaced where they stand in tool results, also
//! escaped as in JSON and URLs, and in base64. `redact.rs` is left the texts that only look like secrets.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::{LazyLock, PoisonError, RwLock};

use aho_corasick::AhoCorasick;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use regex::Regex;

use crate::redact::PLACEHOLDER;

/// Shortest secret that is replaced. A shorter one may be an ordinary word, such as `none` for a server without keys.
pub const SECRET_BYTES_MIN: usize = 8;

/// Maximum number of secrets; the oldest are forgotten. Keys from commands change over time.
const SECRETS_MAX: usize = 256;

/// The daemon's own tokens: a prefix and 32 bytes in base64. Matched by shape, because only digests of capability tokens
/// are stored.
static TOKEN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"nx[kc]_[A-Za-z0-9_\-]{43}").ok());

/// The beginning of such a token at the end of a text.
static TOKEN_START: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"n(?:x(?:[kc](?:_[A-Za-z0-9_\-]{0,42})?)?)?$").ok());

/// The secrets known now.
#[derive(Default)]
pub struct KnownSecrets {
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    values: VecDeque<String>,
    /// Every form of every value, sorted.
    forms: Vec<String>,
    /// Finds every form.
    matcher: Option<AhoCorasick>,
}

impl KnownSecrets {
    /// Adds a secret; results that arrive from now on do not show it.
    pub fn add(&self, value: &str) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if value.len() < SECRET_BYTES_MIN || state.values.iter().any(|known| known == value) {
            return;
        }
        state.values.push_back(value.to_owned());
        if state.values.len() > SECRETS_MAX {
            state.values.pop_front();
        }
        let forms: BTreeSet<String> = state.values.iter().flat_map(|value| forms(value)).collect();
        state.forms = forms.into_iter().collect();
        // Fails only for patterns of gigabytes.
        state.matcher = AhoCorasick::new(&state.forms).ok();
    }

    /// Replaces every known secret and every token of the daemon in a text.
    #[must_use]
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let found = self.find(text);
        if found.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(replace(text, found)) }
    }

    /// The length of the beginning of a growing text that can be redacted and shown now: no secret reaches from it into
    /// the rest, whatever follows.
    #[must_use]
    pub fn complete_length(&self, text: &str) -> usize {
        let token_start = TOKEN_START.iter().find_map(|token| token.find(text)).map(|token| token.start());
        let mut end = token_start.unwrap_or(text.len()).min(self.form_start(text));
        let mut found = self.find(text);
        found.sort_unstable_by_key(|range| std::cmp::Reverse(range.end));
        // From the last: a secret that reaches beyond the end moves it to its start.
        for range in found {
            if range.end > end {
                end = end.min(range.start);
            }
        }
        end
    }

    /// Where the beginning of a form starts at the end of a text; its length if nowhere.
    fn form_start(&self, text: &str) -> usize {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let longest = state.forms.iter().map(String::len).max().unwrap_or_default();
        let is_start = |rest: &str| {
            let next = state.forms.partition_point(|form| form.as_str() < rest);
            state.forms.get(next).is_some_and(|form| form.starts_with(rest))
        };
        let starts = text.len().saturating_sub(longest)..text.len();
        let mut starts = starts.filter(|start| text.is_char_boundary(*start));
        starts.find(|start| is_start(&text[*start..])).unwrap_or(text.len())
    }

    fn find(&self, text: &str) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> =
            TOKEN.iter().flat_map(|token| token.find_iter(text)).map(|token| token.range()).collect();
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(matcher) = &state.matcher {
            // Overlapping: a secret may begin within another one.
            found.extend(matcher.find_overlapping_iter(text).map(|secret| secret.range()));
        }
        found
    }
}

/// Shows no secret.
impl fmt::Debug for KnownSecrets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("KnownSecrets(hidden)")
    }
}

/// Replaces ranges of a text, overlapping ones as one. The ends of a match are character boundaries: secrets are text.
fn replace(text: &str, mut ranges: Vec<Range<usize>>) -> String {
    ranges.sort_unstable_by_key(|range| range.start);
    let (mut clean, mut end) = (String::with_capacity(text.len()), 0);
    for range in ranges {
        if range.start >= end {
            clean.push_str(&text[end..range.start]);
            clean.push_str(PLACEHOLDER);
        }
        end = end.max(range.end);
    }
    clean.push_str(&text[end..]);
    clean
}

/// The forms in which a secret stands in a text.
fn forms(value: &str) -> Vec<String> {
    let mut forms = vec![value.to_owned(), escape_json(value, false), escape_json(value, true)];
    // RFC 3986 leaves the first marks as they are; browsers leave the second ones too.
    for unescaped in ["-_.~", "-_.~!*'()"] {
        forms.push(percent_encode(value, unescaped, |byte| format!("%{byte:02X}")));
        forms.push(percent_encode(value, unescaped, |byte| format!("%{byte:02x}")));
    }
    for offset in 0..3 {
        forms.extend(base64_forms(value, offset));
    }
    forms
}

fn escape_json(value: &str, escapes_slash: bool) -> String {
    let mut escaped = String::new();
    for character in value.chars() {
        if matches!(character, '"' | '\\') || (escapes_slash && character == '/') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

fn percent_encode(value: &str, unescaped: &str, escape: fn(u8) -> String) -> String {
    let encode = |byte: u8| match byte {
        byte if byte.is_ascii_alphanumeric() || unescaped.as_bytes().contains(&byte) => {
            char::from(byte).to_string()
        }
        byte => escape(byte),
    };
    value.bytes().map(encode).collect()
}

/// The characters of base64 that a secret determines alone, if it begins at this offset of a group of three bytes.
fn base64_forms(value: &str, offset: usize) -> impl Iterator<Item = String> {
    let bytes = [&[0; 2][..offset], value.as_bytes()].concat();
    let (start, end) = ((offset * 8).div_ceil(6), bytes.len() * 8 / 6);
    let encodings = [STANDARD_NO_PAD.encode(&bytes), URL_SAFE_NO_PAD.encode(&bytes)];
    encodings.into_iter().map(move |encoded| encoded[start..end].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has characters that JSON, URLs and base64 escape.
    const KEY: &str = "sk-\"a/b\\c+d=?~(é)-1234567890";

    fn known(values: &[&str]) -> KnownSecrets {
        let secrets = KnownSecrets::default();
        values.iter().for_each(|value| secrets.add(value));
        secrets
    }

    #[test]
    fn known_secret_is_replaced_in_every_form() {
        let secrets = known(&[KEY, "another-secret"]);
        for (text, clean) in [
            (KEY.to_owned(), "[redacted]"),
            (format!("KEY={KEY}\nnext"), "KEY=[redacted]\nnext"),
            (format!("{KEY}{KEY} another-secret"), "[redacted][redacted] [redacted]"),
            (r#"{"k":"sk-\"a/b\\c+d=?~(é)-1234567890"}"#.to_owned(), r#"{"k":"[redacted]"}"#),
            (r#"{"k":"sk-\"a\/b\\c+d=?~(é)-1234567890"}"#.to_owned(), r#"{"k":"[redacted]"}"#),
            ("?k=sk-%22a%2Fb%5Cc%2Bd%3D%3F~%28%C3%A9%29-1234567890&x".to_owned(), "?k=[redacted]&x"),
            ("?k=sk-%22a%2fb%5cc%2bd%3d%3f~(%c3%a9)-1234567890&x".to_owned(), "?k=[redacted]&x"),
        ] {
            assert_eq!(secrets.redact(&text), clean, "{text}");
        }
    }

    #[test]
    fn secret_in_base64_is_replaced_at_every_offset() {
        let secrets = known(&[KEY]);
        for before in ["", "a", "ab", "abc", "abcd"] {
            for after in ["", "x", "xy"] {
                for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
                    let encoded = engine.encode(format!("{before}{KEY}{after}"));
                    let clean = secrets.redact(&encoded).into_owned();
                    let rest = clean.replace(PLACEHOLDER, "");
                    assert!(clean.contains(PLACEHOLDER) && rest.len() <= 14, "{encoded}: {clean}");
                }
            }
        }
    }

    #[test]
    fn own_tokens_are_replaced_by_their_shape() {
        let secrets = KnownSecrets::default();
        for prefix in ["nxk_", "nxc_"] {
            let token = format!("{prefix}{}", "aB3-_".repeat(8) + "xyz");
            assert_eq!(secrets.redact(&format!("x{token}\\n")), "x[redacted]\\n");
            assert!(matches!(secrets.redact(&token[..40]), Cow::Borrowed(_)), "not a whole token");
        }
    }

    #[test]
    fn overlapping_secrets_leave_nothing() {
        let secrets = known(&["first-and-shared", "shared-and-second", "and-shared"]);
        assert_eq!(secrets.redact("(first-and-shared-and-second)"), "([redacted])");
    }

    /// Shows a text that arrives in pieces.
    fn show(secrets: &KnownSecrets, pieces: &[&str]) -> String {
        let (mut shown, mut held) = (String::new(), String::new());
        for piece in pieces {
            held.push_str(piece);
            let rest = held.split_off(secrets.complete_length(&held));
            shown.push_str(&secrets.redact(&held));
            held = rest;
        }
        shown + &secrets.redact(&held)
    }

    #[test]
    fn secret_in_pieces_is_never_shown() {
        let secrets = known(&[KEY, "first-and-shared", "shared-and-second", "first-and"]);
        let token = format!("nxk_{}", "aB3-_".repeat(8) + "xyz");
        let base64 = STANDARD_NO_PAD.encode(format!("ab{KEY}"));
        for secret in [KEY, "first-and-shared", "first-and-shared-and-second", &token, &base64] {
            let text = format!("before {secret} after");
            let whole = secrets.redact(&text).into_owned();
            for cut in (0..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
                let (left, right) = text.split_at(cut);
                assert_eq!(show(&secrets, &[left, right]), whole, "{left}|{right}");
            }
            let characters: Vec<String> = text.chars().map(String::from).collect();
            let pieces: Vec<&str> = characters.iter().map(String::as_str).collect();
            assert_eq!(show(&secrets, &pieces), whole);
        }
    }

    #[test]
    fn text_without_the_start_of_a_secret_is_shown_at_once() {
        let secrets = known(&["sk-1234567890"]);
        for text in ["compiling\n", "disk?", "sk-1 ", "nx_", "é"] {
            assert_eq!(secrets.complete_length(text), text.len(), "{text}");
        }
        for (text, length) in [("ask-1", 1), ("plan", 3), ("use nxk_ab", 4), ("s", 0)] {
            assert_eq!(secrets.complete_length(text), length, "{text}");
        }
    }

    #[test]
    fn short_words_and_forgotten_secrets_are_unchanged() {
        let secrets = known(&["none", "forgotten"]);
        assert_eq!(secrets.redact("none forgotten"), "none [redacted]");
        (0..SECRETS_MAX).for_each(|number| secrets.add(&format!("secret-{number}")));
        assert_eq!(secrets.redact("forgotten secret-255"), "forgotten [redacted]");
        assert!(!format!("{secrets:?}").contains("secret-"));
    }
}
