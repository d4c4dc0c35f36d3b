//! Incremental decoding of token bytes to text: emits whole UTF-8 characters only, and holds back text that may still
//! become a stop sequence or the tool-call tag.

/// Incremental UTF-8 decoder that searches for patterns.
#[derive(Debug)]
pub(crate) struct TextDecoder {
    bytes: Vec<u8>,
    patterns: Vec<Vec<u8>>,
}

/// Output of the decoder.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DecoderOutput {
    /// Text without a pattern.
    Text(String),
    /// Text before a pattern, and the pattern's index.
    Matched(String, usize),
}

impl TextDecoder {
    /// Creates a decoder that searches for `patterns`; empty patterns never match.
    pub(crate) fn new<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            bytes: Vec::new(),
            patterns: patterns.into_iter().map(|pattern| pattern.as_bytes().to_vec()).collect(),
        }
    }

    /// Processes the bytes of the next token.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> DecoderOutput {
        self.bytes.extend_from_slice(bytes);
        let matched = |(index, pattern): (usize, &Vec<u8>)| find(&self.bytes, pattern).map(|at| (at, index));
        if let Some((at, index)) = self.patterns.iter().enumerate().filter_map(matched).min() {
            let text = String::from_utf8_lossy(&self.bytes[..at]).into_owned();
            self.bytes.drain(..at + self.patterns[index].len());
            return DecoderOutput::Matched(text, index);
        }
        let held_back =
            self.patterns.iter().map(|pattern| partial_match_bytes(&self.bytes, pattern)).max().unwrap_or(0);
        let emitted = complete_character_bytes(&self.bytes[..self.bytes.len() - held_back]);
        DecoderOutput::Text(
            String::from_utf8_lossy(&self.bytes.drain(..emitted).collect::<Vec<u8>>()).into_owned(),
        )
    }

    /// Length of the pattern with this index, in bytes.
    pub(crate) fn pattern_bytes(&self, index: usize) -> usize {
        self.patterns[index].len()
    }

    /// Returns and clears the held-back text.
    pub(crate) fn flush(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.bytes)).into_owned()
    }
}

fn find(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    if pattern.is_empty() {
        return None;
    }
    bytes.windows(pattern.len()).position(|window| window == pattern)
}

/// Returns the length of the longest suffix of `bytes` that is a proper prefix of `pattern`.
fn partial_match_bytes(bytes: &[u8], pattern: &[u8]) -> usize {
    let longest = bytes.len().min(pattern.len().saturating_sub(1));
    (1..=longest).rev().find(|length| bytes.ends_with(&pattern[..*length])).unwrap_or(0)
}

/// Returns the length of `bytes` without an incomplete UTF-8 character at the end.
fn complete_character_bytes(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(4) {
        let at = bytes.len() - back;
        let needed = match bytes[at] {
            0x00..=0x7f => 1,
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf7 => 4,
            _ => continue,
        };
        return if needed > back { at } else { bytes.len() };
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(patterns: &[&str], tokens: &[&[u8]]) -> (String, Option<usize>) {
        let mut decoder = TextDecoder::new(patterns.iter().copied());
        let mut all = String::new();
        for token in tokens {
            match decoder.push(token) {
                DecoderOutput::Text(text) => all.push_str(&text),
                DecoderOutput::Matched(text, index) => return (all + &text, Some(index)),
            }
        }
        (all + &decoder.flush(), None)
    }

    #[test]
    fn character_split_at_any_byte_is_emitted_whole() {
        let text = "aä€😀z".as_bytes();
        for split in 0..text.len() {
            assert_eq!(decode(&[], &[&text[..split], &text[split..]]), ("aä€😀z".to_owned(), None));
            let mut decoder = TextDecoder::new([]);
            let DecoderOutput::Text(first) = decoder.push(&text[..split]) else { continue };
            assert!(!first.contains('\u{fffd}'), "{split}");
        }
    }

    #[test]
    fn stop_sequence_split_anywhere_is_found_and_not_emitted() {
        let text = b"one STOP two";
        for split in 0..text.len() {
            assert_eq!(
                decode(&["nope", "STOP"], &[&text[..split], &text[split..]]),
                ("one ".to_owned(), Some(1))
            );
        }
    }

    #[test]
    fn partial_match_that_fails_is_emitted() {
        assert_eq!(decode(&["STOP"], &[b"a ST", b"OKEN ST"]), ("a STOKEN ST".to_owned(), None));
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        assert_eq!(decode(&[], &[b"a\xff", b"b\xe2\x82"]).0, "a\u{fffd}b\u{fffd}");
    }
}
