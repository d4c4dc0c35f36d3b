//! The strict JSON parser. Error texts and positions are those of the original server, which clients know. A duplicate
//! key is reported beside the value, not as a syntax error: what it means is left to the caller.

use std::borrow::Cow;
use std::collections::HashSet;

use super::{DEPTH_MAX, Json};

/// A JSON syntax error. Its text goes to the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxFault {
    /// The bytes are not UTF-8.
    #[error("Invalid body encoding: invalid UTF-8 at byte {0}")]
    Encoding(usize),
    /// The text is not JSON.
    #[error("Invalid JSON: {what}: line {line} column {column} (char {offset})")]
    Grammar {
        /// What was expected or is invalid.
        what: &'static str,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// Offset in characters, from 0.
        offset: usize,
    },
    /// Arrays and objects are nested deeper than [`DEPTH_MAX`].
    #[error("Invalid JSON: nested deeper than {DEPTH_MAX} levels")]
    Depth,
}

/// A parsed value and its first duplicate key, if any.
#[derive(Debug, PartialEq)]
pub struct Document<'a> {
    /// The value.
    pub value: Json<'a>,
    /// First duplicate key in any object of the value.
    pub duplicate: Option<Cow<'a, str>>,
}

/// A member of a top-level object, with the source text of its value.
#[derive(Debug, PartialEq)]
pub struct Member<'a> {
    /// The key, unescaped.
    pub key: Cow<'a, str>,
    /// The value.
    pub value: Json<'a>,
    /// Source text of the value.
    pub raw: &'a str,
}

/// The top-level value of a JSON-RPC message.
#[derive(Debug, PartialEq)]
pub enum Root<'a> {
    /// One object.
    Object(Vec<Member<'a>>),
    /// An array; each item that is an object has its members, others are `None`.
    Array(Vec<Option<Vec<Member<'a>>>>),
    /// Any other value.
    Scalar,
}

/// Parses `bytes` as exactly one JSON value.
///
/// # Errors
/// When the bytes are not UTF-8, not JSON, or nested too deeply.
pub fn parse(bytes: &[u8]) -> Result<Document<'_>, SyntaxFault> {
    let mut parser = Parser::new(bytes)?;
    parser.skip_whitespace();
    let value = parser.value(0)?;
    parser.expect_end()?;
    Ok(Document { value, duplicate: parser.duplicate })
}

/// Parses a message like [`parse`], with the source text of each top-level member.
///
/// # Errors
/// As [`parse`].
pub fn parse_members(bytes: &[u8]) -> Result<(Root<'_>, Option<Cow<'_, str>>), SyntaxFault> {
    let mut parser = Parser::new(bytes)?;
    parser.skip_whitespace();
    let root = match parser.peek() {
        Some(b'{') => Root::Object(parser.members(1)?),
        Some(b'[') => Root::Array(parser.batch_items()?),
        _ => {
            parser.value(0)?;
            Root::Scalar
        }
    };
    parser.expect_end()?;
    Ok((root, parser.duplicate))
}

struct Parser<'a> {
    text: &'a str,
    position: usize,
    duplicate: Option<Cow<'a, str>>,
}

impl<'a> Parser<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self, SyntaxFault> {
        let text = std::str::from_utf8(bytes).map_err(|fault| SyntaxFault::Encoding(fault.valid_up_to()))?;
        let parser = Self { text, position: 0, duplicate: None };
        if text.starts_with('\u{feff}') {
            return Err(parser.fault(0, "Unexpected UTF-8 BOM (decode using utf-8-sig)"));
        }
        Ok(parser)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.position).copied()
    }

    fn skip_whitespace(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.position += 1;
        }
    }

    fn expect_end(&mut self) -> Result<(), SyntaxFault> {
        self.skip_whitespace();
        if self.position == self.text.len() { Ok(()) } else { Err(self.fault(self.position, "Extra data")) }
    }

    /// Creates an error. Its position is in characters, which needs a scan of the text; only the error path pays for
    /// it.
    fn fault(&self, at: usize, what: &'static str) -> SyntaxFault {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        SyntaxFault::Grammar {
            what,
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            offset: before.chars().count(),
        }
    }

    /// Parses a value; `depth` is the number of containers around it.
    fn value(&mut self, depth: usize) -> Result<Json<'a>, SyntaxFault> {
        match self.peek() {
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.array(depth + 1),
            Some(b'"') => self.string().map(Json::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.parse_literal("true", Json::Bool(true)),
            Some(b'f') => self.parse_literal("false", Json::Bool(false)),
            Some(b'n') => self.parse_literal("null", Json::Null),
            _ => Err(self.fault(self.position, "Expecting value")),
        }
    }

    fn parse_literal(&mut self, literal: &'static str, value: Json<'a>) -> Result<Json<'a>, SyntaxFault> {
        if !self.text[self.position..].starts_with(literal) {
            return Err(self.fault(self.position, "Expecting value"));
        }
        self.position += literal.len();
        Ok(value)
    }

    fn number(&mut self) -> Result<Json<'a>, SyntaxFault> {
        let start = self.position;
        if self.peek() == Some(b'-') {
            self.position += 1;
        }
        match self.peek() {
            Some(b'0') => self.position += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.fault(start, "Expecting value")),
        }
        if self.peek() == Some(b'.') {
            self.position += 1;
            self.one_or_more_digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.position += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.position += 1;
            }
            self.one_or_more_digits()?;
        }
        Ok(Json::Number(&self.text[start..self.position]))
    }

    fn digits(&mut self) {
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.position += 1;
        }
    }

    fn one_or_more_digits(&mut self) -> Result<(), SyntaxFault> {
        let start = self.position;
        self.digits();
        if self.position == start { Err(self.fault(start, "Expecting digit")) } else { Ok(()) }
    }

    fn string(&mut self) -> Result<Cow<'a, str>, SyntaxFault> {
        let start = self.position + 1;
        self.position = start;
        let mut unescaped: Option<String> = None;
        let mut plain_from = start;
        loop {
            match self.peek() {
                None => return Err(self.fault(start - 1, "Unterminated string starting at")),
                Some(b'"') => break,
                Some(b'\\') => {
                    let text = unescaped.get_or_insert_default();
                    text.push_str(&self.text[plain_from..self.position]);
                    let character = self.escape(start - 1)?;
                    unescaped.get_or_insert_default().push(character);
                    plain_from = self.position;
                }
                Some(0..=0x1f) => return Err(self.fault(self.position, "Invalid control character at")),
                Some(_) => self.position += 1,
            }
        }
        let last = &self.text[plain_from..self.position];
        self.position += 1;
        Ok(match unescaped {
            None => Cow::Borrowed(last),
            Some(mut text) => {
                text.push_str(last);
                Cow::Owned(text)
            }
        })
    }

    fn escape(&mut self, string_start: usize) -> Result<char, SyntaxFault> {
        let start = self.position;
        self.position += 1;
        let character = match self.peek() {
            None => return Err(self.fault(string_start, "Unterminated string starting at")),
            Some(quoted @ (b'"' | b'\\' | b'/')) => char::from(quoted),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(start),
            Some(_) => return Err(self.fault(start, "Invalid \\escape")),
        };
        self.position += 1;
        Ok(character)
    }

    fn unicode_escape(&mut self, start: usize) -> Result<char, SyntaxFault> {
        self.position += 1;
        let high = self.four_hex_digits()?;
        let code = if (0xd800..0xdc00).contains(&high) {
            if !self.text[self.position..].starts_with("\\u") {
                return Err(self.fault(start, "Lone surrogate at"));
            }
            self.position += 2;
            let low = self.four_hex_digits()?;
            if !(0xdc00..0xe000).contains(&low) {
                return Err(self.fault(start, "Lone surrogate at"));
            }
            0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)
        } else {
            high
        };
        char::from_u32(code).ok_or_else(|| self.fault(start, "Lone surrogate at"))
    }

    /// Parses the digits of a `\u` escape. The error position is the `u`, as in the original server.
    fn four_hex_digits(&mut self) -> Result<u32, SyntaxFault> {
        let invalid = || self.fault(self.position - 1, "Invalid \\uXXXX escape");
        let digits = self.text.as_bytes().get(self.position..self.position + 4).ok_or_else(invalid)?;
        let mut code = 0;
        for &digit in digits {
            code = code * 16 + char::from(digit).to_digit(16).ok_or_else(invalid)?;
        }
        self.position += 4;
        Ok(code)
    }

    fn array(&mut self, depth: usize) -> Result<Json<'a>, SyntaxFault> {
        let mut items = Vec::new();
        self.each_item(depth, |parser| {
            items.push(parser.value(depth)?);
            Ok(())
        })?;
        Ok(Json::Array(items))
    }

    fn batch_items(&mut self) -> Result<Vec<Option<Vec<Member<'a>>>>, SyntaxFault> {
        let mut items = Vec::new();
        self.each_item(1, |parser| {
            let item = if parser.peek() == Some(b'{') {
                Some(parser.members(2)?)
            } else {
                parser.value(1)?;
                None
            };
            items.push(item);
            Ok(())
        })?;
        Ok(items)
    }

    fn each_item(
        &mut self,
        depth: usize,
        mut item: impl FnMut(&mut Self) -> Result<(), SyntaxFault>,
    ) -> Result<(), SyntaxFault> {
        self.open_container(depth)?;
        if self.peek() == Some(b']') {
            self.position += 1;
            return Ok(());
        }
        loop {
            item(self)?;
            if self.next_or_close(b']')? {
                return Ok(());
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json<'a>, SyntaxFault> {
        let mut members: Vec<(Cow<'a, str>, Json<'a>)> = Vec::new();
        let mut keys = SeenKeys::default();
        self.each_member(depth, |parser, key| {
            let value = parser.value(depth)?;
            if keys.detect_duplicate(key.clone(), members.iter().map(|(known, _)| known)) {
                parser.duplicate.get_or_insert_with(|| key.clone());
            }
            members.push((key, value));
            Ok(())
        })?;
        Ok(Json::Object(members))
    }

    fn members(&mut self, depth: usize) -> Result<Vec<Member<'a>>, SyntaxFault> {
        let mut members: Vec<Member<'a>> = Vec::new();
        let mut keys = SeenKeys::default();
        self.each_member(depth, |parser, key| {
            let start = parser.position;
            let value = parser.value(depth)?;
            if keys.detect_duplicate(key.clone(), members.iter().map(|member| &member.key)) {
                parser.duplicate.get_or_insert_with(|| key.clone());
            }
            members.push(Member { key, value, raw: &parser.text[start..parser.position] });
            Ok(())
        })?;
        Ok(members)
    }

    fn each_member(
        &mut self,
        depth: usize,
        mut member: impl FnMut(&mut Self, Cow<'a, str>) -> Result<(), SyntaxFault>,
    ) -> Result<(), SyntaxFault> {
        self.open_container(depth)?;
        if self.peek() == Some(b'}') {
            self.position += 1;
            return Ok(());
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.fault(self.position, "Expecting property name enclosed in double quotes"));
            }
            let key = self.string()?;
            self.skip_whitespace();
            if self.peek() != Some(b':') {
                return Err(self.fault(self.position, "Expecting ':' delimiter"));
            }
            self.position += 1;
            self.skip_whitespace();
            member(self, key)?;
            if self.next_or_close(b'}')? {
                return Ok(());
            }
        }
    }

    fn open_container(&mut self, depth: usize) -> Result<(), SyntaxFault> {
        if depth > DEPTH_MAX {
            return Err(SyntaxFault::Depth);
        }
        self.position += 1;
        self.skip_whitespace();
        Ok(())
    }

    /// Parses the separator after an element: returns true at the end of the container, false when another element
    /// follows.
    fn next_or_close(&mut self, close: u8) -> Result<bool, SyntaxFault> {
        self.skip_whitespace();
        match self.peek() {
            Some(b',') => {
                self.position += 1;
                self.skip_whitespace();
                Ok(false)
            }
            Some(byte) if byte == close => {
                self.position += 1;
                Ok(true)
            }
            _ => Err(self.fault(self.position, "Expecting ',' delimiter")),
        }
    }
}

/// Duplicate detection for the keys of one object. Small objects are scanned; large ones use a hash set, so that a
/// million keys take linear time.
#[derive(Default)]
struct SeenKeys<'a> {
    seen: HashSet<Cow<'a, str>>,
}

impl<'a> SeenKeys<'a> {
    const LINEAR_SCAN_KEYS_MAX: usize = 8;

    /// Records a key and returns whether it is a duplicate; `known` are the keys before it.
    fn detect_duplicate<'k>(
        &mut self,
        key: Cow<'a, str>,
        mut known: impl ExactSizeIterator<Item = &'k Cow<'a, str>>,
    ) -> bool
    where
        'a: 'k,
    {
        if known.len() < Self::LINEAR_SCAN_KEYS_MAX {
            return known.any(|other| *other == key);
        }
        if self.seen.is_empty() {
            self.seen = known.cloned().collect();
        }
        !self.seen.insert(key)
    }
}
