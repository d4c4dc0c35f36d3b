//! Secrets that the daemon knows: keys of providers, secrets of the configuration and its own tokens. Replaced where they
//! stand in tool results and output, also escaped, encoded, interleaved with terminal sequences and wrapped over lines.
//! `redact.rs` is left the texts that only look like secrets.

mod forms;
mod own_tokens;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod threats;
mod view;

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use aho_corasick::AhoCorasick;

use self::view::{Escapes, TerminalStrings, View};
use crate::redact::PLACEHOLDER;

/// Shortest secret that is replaced. A shorter one may be an ordinary word, such as `none` for a server without keys.
pub const SECRET_BYTES_MIN: usize = 8;

/// Maximum number of secrets that change over time, as keys from commands do; the oldest are forgotten.
const SECRETS_MAX: usize = 256;

/// How often escapes are decoded: JSON in JSON in a URL.
const DECODED_TIMES_MAX: usize = 3;

/// A longer text is redacted in parts, so that its views need little memory.
const PART_BYTES: usize = 256 << 10;

/// The secrets known now.
#[derive(Default)]
pub struct KnownSecrets {
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    /// Those that are never forgotten.
    permanent: Vec<String>,
    values: VecDeque<String>,
    /// Built when it is needed first.
    matcher: OnceLock<Arc<Matcher>>,
}

/// Finds every form of every secret.
struct Matcher {
    /// All forms, sorted.
    forms: Vec<Vec<u8>>,
    longest: usize,
    automaton: Option<AhoCorasick>,
}

impl KnownSecrets {
    /// Adds a secret of the configuration, which is never forgotten.
    pub fn add_permanent(&self, value: &str) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if state.accepts(value) {
            state.permanent.push(value.to_owned());
            state.matcher = OnceLock::new();
        }
    }

    /// Adds a secret; results that arrive from now on do not show it. The oldest of very many are forgotten.
    pub fn add(&self, value: &str) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if !state.accepts(value) {
            return;
        }
        state.values.push_back(value.to_owned());
        if state.values.len() > SECRETS_MAX {
            state.values.pop_front();
        }
        state.matcher = OnceLock::new();
    }

    /// Replaces every known secret and every token of the daemon in a text.
    #[must_use]
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let matcher = self.matcher();
        if text.len() <= PART_BYTES {
            return redact_part(&matcher, text);
        }
        let (mut clean, mut rest, mut length) = (String::with_capacity(text.len()), text, PART_BYTES);
        while rest.len() > length {
            let part = &rest[..rest.floor_char_boundary(length)];
            let complete = matcher.complete_length(part);
            if complete < part.len() / 2 {
                length *= 2;
                continue;
            }
            clean.push_str(&redact_part(&matcher, &rest[..complete]));
            (rest, length) = (&rest[complete..], PART_BYTES);
        }
        clean.push_str(&redact_part(&matcher, rest));
        if clean == text { Cow::Borrowed(text) } else { Cow::Owned(clean) }
    }

    /// The length of the beginning of a growing text that can be redacted and shown now: no secret reaches from it into
    /// the rest, whatever follows.
    #[must_use]
    pub fn complete_length(&self, text: &str) -> usize {
        self.matcher().complete_length(text)
    }

    fn matcher(&self) -> Arc<Matcher> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(state.matcher.get_or_init(|| Arc::new(Matcher::new(state.all()))))
    }
}

impl State {
    fn all(&self) -> impl Iterator<Item = &String> {
        self.permanent.iter().chain(&self.values)
    }

    fn accepts(&self, value: &str) -> bool {
        value.len() >= SECRET_BYTES_MIN && !self.all().any(|known| known == value)
    }
}

/// Shows no secret.
impl fmt::Debug for KnownSecrets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("KnownSecrets(hidden)")
    }
}

impl Matcher {
    fn new<'a>(values: impl Iterator<Item = &'a String>) -> Self {
        let forms: BTreeSet<Vec<u8>> = values.flat_map(|value| forms::all(value)).collect();
        let forms: Vec<Vec<u8>> = forms.into_iter().filter(|form| form.len() >= SECRET_BYTES_MIN).collect();
        let longest = forms.iter().map(Vec::len).max().unwrap_or_default();
        // Fails only for patterns of gigabytes.
        let automaton = AhoCorasick::new(&forms).ok();
        Self { forms, longest, automaton }
    }

    /// The ranges of all secrets in a text.
    fn find(&self, text: &str) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        for_each_view(text.as_bytes(), false, |bytes, views| {
            let tokens = own_tokens::find(bytes).map(|range| (source_range(views, &range), range));
            let is_token = |(source, range): &(Range<usize>, Range<usize>)| {
                source.len() == range.len() || own_tokens::is_random(&bytes[range.clone()])
            };
            found.extend(tokens.filter(is_token).map(|(source, _)| source));
            if let Some(automaton) = &self.automaton {
                // Overlapping: a secret may begin within another one.
                let secrets = automaton.find_overlapping_iter(bytes).map(|secret| secret.range());
                found.extend(secrets.map(|range| source_range(views, &range)));
            }
        });
        found
    }

    fn complete_length(&self, text: &str) -> usize {
        let mut end = text.len();
        for_each_view(text.as_bytes(), true, |bytes, views| {
            let start = self.form_start(bytes).min(own_tokens::start_at_end(bytes));
            if start < bytes.len() {
                end = end.min(source_range(views, &(start..start + 1)).start);
            }
            if let Some((last, sources)) = views.split_last()
                && let Some(incomplete) = last.incomplete
            {
                end = end.min(source_range(sources, &(incomplete..incomplete + 1)).start);
            }
        });
        let mut found = self.find(text);
        found.sort_unstable_by_key(|range| std::cmp::Reverse(range.end));
        // From the last: a secret that reaches beyond the end moves it to its start.
        for range in found {
            if range.end > end {
                end = end.min(range.start);
            }
        }
        text.floor_char_boundary(end)
    }

    /// Where the beginning of a form starts at the end of a text; its length if nowhere.
    fn form_start(&self, text: &[u8]) -> usize {
        let is_start = |rest: &[u8]| {
            let next = self.forms.partition_point(|form| form.as_slice() < rest);
            self.forms.get(next).is_some_and(|form| form.starts_with(rest))
        };
        let mut starts = text.len().saturating_sub(self.longest)..text.len();
        starts.find(|start| is_start(&text[*start..])).unwrap_or(text.len())
    }
}

/// Visits the bytes of a text and of its views, each with the views that lead to it.
fn for_each_view(text: &[u8], is_growing: bool, mut visit: impl FnMut(&[u8], &[View])) {
    let has_strings = text.contains(&0x1b) || text.windows(2).any(|pair| matches!(pair, [0xc2, 0x90..=0x9f]));
    if has_strings {
        // A secret in a sequence, and one in the text of a link.
        visit(text, &[]);
        visit_decoded(text, TerminalStrings::Show, is_growing, &mut visit);
    }
    visit_decoded(text, TerminalStrings::Remove, is_growing, &mut visit);
}

fn visit_decoded(
    text: &[u8],
    strings: TerminalStrings,
    is_growing: bool,
    visit: &mut impl FnMut(&[u8], &[View]),
) {
    let mut views = vec![view::strip(text, strings, is_growing)];
    visit(&views[0].bytes, &views);
    for escapes in Escapes::in_text(&views[0].bytes) {
        views.truncate(1);
        for _ in 0..DECODED_TIMES_MAX {
            let source = &views[views.len() - 1].bytes;
            let decoded = view::decode(source, escapes, is_growing);
            if !decoded.differs && decoded.incomplete.is_none() {
                break;
            }
            let stripped = view::strip(&decoded.bytes, strings, is_growing);
            views.push(decoded);
            if stripped.differs || stripped.incomplete.is_some() {
                // Its own incomplete end counts too.
                visit(&views[views.len() - 1].bytes, &views);
                views.push(stripped);
            }
            visit(&views[views.len() - 1].bytes, &views);
        }
    }
}

/// Traces a range of the last view back to the text.
fn source_range(views: &[View], range: &Range<usize>) -> Range<usize> {
    views.iter().rev().fold(range.clone(), |range, view| view.source_range(&range))
}

fn redact_part<'a>(matcher: &Matcher, text: &'a str) -> Cow<'a, str> {
    let found = matcher.find(text);
    if found.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(replace(text, found)) }
}

/// Replaces ranges of a text, overlapping ones as one.
fn replace(text: &str, mut ranges: Vec<Range<usize>>) -> String {
    ranges.sort_unstable_by_key(|range| range.start);
    let (mut clean, mut end) = (String::with_capacity(text.len()), 0);
    for range in ranges {
        let start = text.floor_char_boundary(range.start);
        if start >= end {
            clean.push_str(&text[end..start]);
            clean.push_str(PLACEHOLDER);
        }
        end = end.max(text.ceil_char_boundary(range.end));
    }
    clean.push_str(&text[end..]);
    clean
}
