//! The daemon's own tokens, recognized by their shape as they are, in hexadecimal digits and in base64: only digests of
//! capability tokens are stored.

use std::ops::Range;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

use super::forms;

/// Prefixes of the daemon's token and of capability tokens.
const PREFIXES: [&str; 2] = ["nxk_", "nxc_"];

/// Length of a token: a prefix and 32 bytes in base64.
const TOKEN_BYTES: usize = 47;

/// One form of a token: a beginning, and characters of a class.
struct Shape {
    prefix: String,
    is_member: fn(u8) -> bool,
    length: usize,
    /// In base64: the first bit of the token, relative to the first character of the prefix.
    first_bit: Option<isize>,
}

static SHAPES: LazyLock<Vec<Shape>> = LazyLock::new(|| PREFIXES.into_iter().flat_map(shapes).collect());

static MATCHER: LazyLock<Option<AhoCorasick>> =
    LazyLock::new(|| AhoCorasick::new(SHAPES.iter().map(|shape| shape.prefix.as_str())).ok());

fn shapes(prefix: &str) -> Vec<Shape> {
    let plain =
        Shape { prefix: prefix.to_owned(), is_member: is_token_byte, length: TOKEN_BYTES, first_bit: None };
    let hex = forms::hex(prefix).map(|prefix| Shape {
        prefix,
        is_member: |byte| byte.is_ascii_hexdigit(),
        length: TOKEN_BYTES * 2,
        first_bit: None,
    });
    let base64 = (0..3_usize).flat_map(|offset| {
        let (start, end) = forms::base64_range(offset, TOKEN_BYTES);
        // The prefixes have the same characters in both alphabets.
        forms::base64(prefix, offset).take(1).map(move |prefix| Shape {
            prefix,
            is_member: |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_'),
            length: end - start,
            first_bit: Some(offset.cast_signed() * 8 - start.cast_signed() * 6),
        })
    });
    [plain].into_iter().chain(hex).chain(base64).collect()
}

/// Finds all tokens.
pub(super) fn find(text: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let starts = MATCHER.iter().flat_map(move |matcher| matcher.find_overlapping_iter(text));
    starts.filter_map(move |start| {
        let shape = SHAPES.get(start.pattern().as_usize())?;
        let token = text.get(start.start()..start.start() + shape.length)?;
        shape.matches(token).then(|| start.start()..start.start() + shape.length)
    })
}

/// Where the beginning of a token starts at the end of a text; its length if nowhere.
pub(super) fn start_at_end(text: &[u8]) -> usize {
    let first = text.len().saturating_sub(TOKEN_BYTES * 2);
    let may_start = |start: &usize| SHAPES.iter().any(|shape| shape.may_begin_with(&text[*start..]));
    (first..text.len()).find(may_start).unwrap_or(text.len())
}

/// Whether a token over several lines is one, and not identifiers in a list: a random one has letters of both cases.
pub(super) fn is_random(token: &[u8]) -> bool {
    let body = token.get(PREFIXES[0].len()..).unwrap_or_default();
    body.iter().any(u8::is_ascii_uppercase) && body.iter().any(u8::is_ascii_lowercase)
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

impl Shape {
    fn matches(&self, token: &[u8]) -> bool {
        token.iter().skip(self.prefix.len()).all(|byte| (self.is_member)(*byte))
            && self.first_bit.is_none_or(|first| is_base64_of_token(token, first))
    }

    fn may_begin_with(&self, rest: &[u8]) -> bool {
        let known = rest.len().min(self.prefix.len());
        rest.len() < self.length
            && rest[..known] == self.prefix.as_bytes()[..known]
            && rest[known..].iter().all(|byte| (self.is_member)(*byte))
    }
}

/// Whether characters of base64 are those of a token, so that other data that contains the prefix is not changed.
fn is_base64_of_token(encoded: &[u8], first_bit: isize) -> bool {
    let bit =
        |position: usize| encoded.get(position / 6).map_or(0, |byte| value(*byte) >> (5 - position % 6) & 1);
    let byte = |start: usize| (start..start + 8).fold(0, |byte, position| byte << 1 | bit(position));
    let body = PREFIXES[0].len()..TOKEN_BYTES;
    let starts = body.filter_map(|index| first_bit.checked_add_unsigned(index * 8)?.try_into().ok());
    // The last character may be shared with what follows.
    starts.filter(|start: &usize| start + 8 <= encoded.len() * 6).all(|start| is_token_byte(byte(start)))
}

fn value(byte: u8) -> u8 {
    match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' | b'-' => 62,
        _ => 63,
    }
}
