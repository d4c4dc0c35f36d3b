//! A text as a person or a program reads it: without terminal sequences, line breaks and invisible characters, with its
//! escapes decoded. Every byte of a view is traced to the bytes of its source, so that a match can be replaced there.

use std::ops::Range;

/// Longest terminal string (title, link) that is looked for; a longer one is text.
const TERMINAL_STRING_BYTES_MAX: usize = 1024;

/// Longest parameters of a control sequence.
const PARAMETER_BYTES_MAX: usize = 64;

/// Longest character reference of HTML.
const REFERENCE_BYTES_MAX: usize = 10;

/// What remains of a source.
pub(super) struct View {
    pub(super) bytes: Vec<u8>,
    segments: Vec<Segment>,
    /// Where a sequence starts whose end is still to come.
    pub(super) incomplete: Option<usize>,
    /// Whether anything differs from the source.
    pub(super) differs: bool,
}

/// Successive bytes of a view with one origin. It ends where the next one starts.
struct Segment {
    start: usize,
    source: usize,
    /// Length in the source of an escape; `None` for bytes that were copied.
    escape: Option<usize>,
}

/// What becomes of the next bytes of a source.
enum Step {
    Copy(usize),
    Drop(usize),
    Replace(usize, u32),
    ReplaceByte(usize, u8),
    /// A sequence that ends beyond the source.
    Incomplete,
}

/// What is removed with a terminal string: a secret may surround it or be in it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TerminalStrings {
    Remove,
    Show,
}

/// Removes terminal sequences, line breaks, control characters and invisible characters.
pub(super) fn strip(source: &[u8], strings: TerminalStrings, is_growing: bool) -> View {
    let is_special = |byte: u8| (byte < 0x20 && byte != b'\t') || matches!(byte, 0x7f | 0xc2 | 0xe2 | 0xef);
    View::build(source, is_growing, is_special, |rest| strip_step(rest, strings))
}

/// Which escapes are decoded. Those of one kind are also decoded alone: a key may have characters of the others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Escapes {
    All,
    Url,
    /// Of strings: JSON, shells, programming languages.
    Backslash,
    Html,
}

impl Escapes {
    /// The kinds to decode in a text, one after the other.
    pub(super) fn in_text(text: &[u8]) -> Vec<Self> {
        let kinds = [Self::Url, Self::Backslash, Self::Html];
        let mut found: Vec<Self> =
            kinds.into_iter().filter(|kind| text.iter().any(|byte| kind.begins_with(*byte))).collect();
        if found.len() > 1 {
            found.push(Self::All);
        }
        found
    }

    fn begins_with(self, byte: u8) -> bool {
        match self {
            Self::All => matches!(byte, b'%' | b'\\' | b'&'),
            Self::Url => byte == b'%',
            Self::Backslash => byte == b'\\',
            Self::Html => byte == b'&',
        }
    }
}

/// Decodes escapes.
pub(super) fn decode(source: &[u8], escapes: Escapes, is_growing: bool) -> View {
    View::build(source, is_growing, |byte| escapes.begins_with(byte), decode_step)
}

impl View {
    fn build(
        source: &[u8],
        is_growing: bool,
        is_special: impl Fn(u8) -> bool,
        step: impl Fn(&[u8]) -> Step,
    ) -> Self {
        let mut view = Self {
            bytes: Vec::with_capacity(source.len()),
            segments: Vec::new(),
            incomplete: None,
            differs: false,
        };
        let mut at = 0;
        while at < source.len() {
            let plain = source[at..].iter().position(|byte| is_special(*byte)).unwrap_or(source.len() - at);
            view.copy(source, at..at + plain);
            at += plain;
            if at == source.len() {
                break;
            }
            at += match step(&source[at..]) {
                Step::Copy(length) => view.copy(source, at..at + length),
                Step::Drop(length) => view.drop_bytes(length),
                Step::ReplaceByte(length, byte) => view.replace(at, length, &[byte]),
                Step::Replace(length, code) => {
                    let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
                    view.replace(at, length, character.encode_utf8(&mut [0; 4]).as_bytes())
                }
                Step::Incomplete if is_growing => {
                    view.incomplete = Some(at);
                    break;
                }
                Step::Incomplete => view.copy(source, at..at + 1),
            };
        }
        view
    }

    fn copy(&mut self, source: &[u8], range: Range<usize>) -> usize {
        let continues = self.segments.last().is_some_and(|last| {
            last.escape.is_none() && last.source + (self.bytes.len() - last.start) == range.start
        });
        if !continues && !range.is_empty() {
            self.segments.push(Segment { start: self.bytes.len(), source: range.start, escape: None });
        }
        let length = range.len();
        self.bytes.extend_from_slice(&source[range]);
        length
    }

    fn drop_bytes(&mut self, length: usize) -> usize {
        self.differs = true;
        length
    }

    fn replace(&mut self, at: usize, length: usize, bytes: &[u8]) -> usize {
        self.differs = true;
        self.segments.push(Segment { start: self.bytes.len(), source: at, escape: Some(length) });
        self.bytes.extend_from_slice(bytes);
        length
    }

    /// The bytes of the source that a part of the view comes from. The part is not empty.
    pub(super) fn source_range(&self, range: &Range<usize>) -> Range<usize> {
        self.source_of(range.start).start..self.source_of(range.end.saturating_sub(1)).end
    }

    /// The bytes of the source that one byte of the view comes from.
    fn source_of(&self, position: usize) -> Range<usize> {
        let next = self.segments.partition_point(|segment| segment.start <= position);
        let Some(segment) = next.checked_sub(1).and_then(|index| self.segments.get(index)) else {
            return 0..0;
        };
        match segment.escape {
            Some(length) => segment.source..segment.source + length,
            None => {
                let source = segment.source + (position - segment.start);
                source..source + 1
            }
        }
    }
}

fn strip_step(rest: &[u8], strings: TerminalStrings) -> Step {
    match *rest {
        [0x1b] | [0xc2] | [0xe2 | 0xef] | [0xe2 | 0xef, _] => Step::Incomplete,
        [0x1b, b'[', ..] | [0xc2, 0x9b, ..] => control_sequence(rest),
        [0x1b, b']' | b'P' | b'X' | b'^' | b'_', ..] | [0xc2, 0x90 | 0x98 | 0x9d..=0x9f, ..] => {
            terminal_string(rest, strings)
        }
        [0x1b, 0x20..=0x2f] => Step::Incomplete,
        [0x1b, 0x20..=0x2f, _, ..] => Step::Drop(3),
        [0x1b, 0x30..=0x7e, ..] => Step::Drop(2),
        [0xc2, 0x80..=0x9f | 0xad, ..] => Step::Drop(2),
        // Zero-width characters, directions of writing, line and paragraph separators.
        [0xe2, 0x80, 0x8b..=0x8f | 0xa8..=0xae, ..]
        | [0xe2, 0x81, 0xa0..=0xaf, ..]
        | [0xef, 0xbb, 0xbf, ..] => Step::Drop(3),
        [0xc2 | 0xe2 | 0xef, ..] => Step::Copy(1),
        _ => Step::Drop(1),
    }
}

/// CSI: parameters and a final byte.
fn control_sequence(rest: &[u8]) -> Step {
    let parameters =
        rest[2..].iter().take(PARAMETER_BYTES_MAX).take_while(|byte| matches!(byte, 0x20..=0x3f)).count();
    match rest.get(2 + parameters) {
        None => Step::Incomplete,
        Some(0x40..=0x7e) => Step::Drop(3 + parameters),
        Some(_) => Step::Drop(1 + usize::from(rest[0] == 0xc2)),
    }
}

/// OSC, DCS and the like: a text up to BEL or ST.
fn terminal_string(rest: &[u8], strings: TerminalStrings) -> Step {
    if strings == TerminalStrings::Show {
        return Step::Drop(2);
    }
    let window = &rest[..rest.len().min(TERMINAL_STRING_BYTES_MAX)];
    let end = (2..window.len()).find_map(|at| match window[at..] {
        [0x07, ..] => Some(at + 1),
        [0x1b, b'\\', ..] | [0xc2, 0x9c, ..] => Some(at + 2),
        _ => None,
    });
    match end {
        Some(end) => Step::Drop(end),
        None if rest.len() < TERMINAL_STRING_BYTES_MAX => Step::Incomplete,
        None => Step::Drop(2),
    }
}

fn decode_step(rest: &[u8]) -> Step {
    match *rest {
        [b'%', ..] => digits(rest, 1, 2, 16).map_or_else(|step| step, |code| byte_or_copy(3, code)),
        [b'\\', ..] => decode_backslash(rest),
        _ => decode_reference(rest),
    }
}

fn decode_backslash(rest: &[u8]) -> Step {
    match *rest {
        [_] => Step::Incomplete,
        [_, b'u', b'{', ..] => braced_code(rest),
        [_, b'u', ..] => digits(rest, 2, 4, 16).map_or_else(|step| step, |code| unicode(rest, code)),
        [_, b'x', ..] => digits(rest, 2, 2, 16).map_or_else(|step| step, |code| byte_or_copy(4, code)),
        [_, b'0'..=b'3', ..] => digits(rest, 1, 3, 8).map_or_else(|step| step, |code| byte_or_copy(4, code)),
        [_, b'n' | b'r' | b'b' | b'f', ..] => Step::Drop(2),
        [_, b't', ..] => Step::ReplaceByte(2, b'\t'),
        [_, next, ..] if next.is_ascii() => Step::ReplaceByte(2, next),
        _ => Step::Drop(1),
    }
}

/// The number in a fixed count of digits; otherwise the step to take.
fn digits(rest: &[u8], start: usize, count: usize, radix: u32) -> Result<u32, Step> {
    let end = (start + count).min(rest.len());
    let valid = |byte: &u8| char::from(*byte).is_digit(radix);
    if !rest[start..end].iter().all(valid) {
        return Err(Step::Copy(1));
    }
    if end < start + count {
        return Err(Step::Incomplete);
    }
    let number = |sum: u32, byte: &u8| sum * radix + char::from(*byte).to_digit(radix).unwrap_or_default();
    Ok(rest[start..end].iter().fold(0, number))
}

fn byte_or_copy(length: usize, code: u32) -> Step {
    u8::try_from(code).map_or(Step::Copy(1), |byte| Step::ReplaceByte(length, byte))
}

/// `\uXXXX`, or two of them for a character beyond the basic plane.
fn unicode(rest: &[u8], code: u32) -> Step {
    if !(0xd800..0xdc00).contains(&code) {
        return Step::Replace(6, code);
    }
    if rest.len() < 12 && rest[6..].iter().zip(b"\\u").all(|(byte, expected)| byte == expected) {
        return Step::Incomplete;
    }
    match rest.get(6..8).map(|_| digits(rest, 8, 4, 16)) {
        Some(Ok(low @ 0xdc00..0xe000)) => {
            Step::Replace(12, 0x1_0000 + ((code - 0xd800) << 10) + (low - 0xdc00))
        }
        _ => Step::Replace(6, code),
    }
}

/// `\u{XX}`.
fn braced_code(rest: &[u8]) -> Step {
    let count = rest[3..].iter().take(6).take_while(|byte| byte.is_ascii_hexdigit()).count();
    match rest.get(3 + count) {
        None => Step::Incomplete,
        Some(b'}') if count > 0 => {
            digits(rest, 3, count, 16).map_or_else(|step| step, |code| Step::Replace(4 + count, code))
        }
        Some(_) => Step::Copy(1),
    }
}

/// A character reference of HTML: by number, or one of the five names that every escaping function uses.
fn decode_reference(rest: &[u8]) -> Step {
    let window = &rest[1..rest.len().min(REFERENCE_BYTES_MAX)];
    let length = window.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'#').count();
    let name = &window[..length];
    match window.get(length) {
        None if rest.len() < REFERENCE_BYTES_MAX => return Step::Incomplete,
        Some(b';') => {}
        _ => return Step::Copy(1),
    }
    let parsed = |digits: &[u8], radix| {
        std::str::from_utf8(digits).ok().and_then(|text| u32::from_str_radix(text, radix).ok())
    };
    let code = match name {
        b"amp" => Some(u32::from(b'&')),
        b"lt" => Some(u32::from(b'<')),
        b"gt" => Some(u32::from(b'>')),
        b"quot" => Some(u32::from(b'"')),
        b"apos" => Some(u32::from(b'\'')),
        [b'#', b'x' | b'X', hex @ ..] => parsed(hex, 16),
        [b'#', decimal @ ..] => parsed(decimal, 10),
        _ => None,
    };
    code.map_or(Step::Copy(1), |code| Step::Replace(length + 2, code))
}
