//! The answer's text on its way out: whole characters only, and nothing that may still turn out to be the
//! beginning of a stop text or of a call.

/// Holds back what is not certain yet.
#[derive(Debug)]
pub(crate) struct TextDecoder {
    bytes: Vec<u8>,
    patterns: Vec<Vec<u8>>,
}

/// What came of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DecoderOutput {
    /// This text is certain.
    Text(String),
    /// This text is certain, and behind it the watched text with this index was met.
    Matched(String, usize),
}

impl TextDecoder {
    /// Watches for `watched`; empty texts are ignored.
    pub(crate) fn new<'a>(watched: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            bytes: Vec::new(),
            patterns: watched.into_iter().map(|text| text.as_bytes().to_vec()).collect(),
        }
    }

    /// Takes the bytes of the next token.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> DecoderOutput {
        self.bytes.extend_from_slice(bytes);
        let met = |(index, text): (usize, &Vec<u8>)| find(&self.bytes, text).map(|at| (at, index));
        if let Some((at, index)) = self.patterns.iter().enumerate().filter_map(met).min() {
            let text = String::from_utf8_lossy(&self.bytes[..at]).into_owned();
            self.bytes.drain(..at + self.patterns[index].len());
            return DecoderOutput::Matched(text, index);
        }
        let held = self.patterns.iter().map(|text| partial_match_bytes(&self.bytes, text)).max().unwrap_or(0);
        let certain = complete_character_bytes(&self.bytes[..self.bytes.len() - held]);
        DecoderOutput::Text(
            String::from_utf8_lossy(&self.bytes.drain(..certain).collect::<Vec<u8>>()).into_owned(),
        )
    }

    /// How many bytes the watched text with this index has.
    pub(crate) fn pattern_bytes(&self, index: usize) -> usize {
        self.patterns[index].len()
    }

    /// What is left at the end.
    pub(crate) fn flush(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.bytes)).into_owned()
    }
}

fn find(bytes: &[u8], text: &[u8]) -> Option<usize> {
    if text.is_empty() {
        return None;
    }
    bytes.windows(text.len()).position(|window| window == text)
}

/// How many of the last bytes could be the beginning of `text`.
fn partial_match_bytes(bytes: &[u8], text: &[u8]) -> usize {
    let longest = bytes.len().min(text.len().saturating_sub(1));
    (1..=longest).rev().find(|length| bytes.ends_with(&text[..*length])).unwrap_or(0)
}

/// How many bytes remain when a character that is only half there is left out.
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

    fn decode(watched: &[&str], tokens: &[&[u8]]) -> (String, Option<usize>) {
        let mut outflow = TextDecoder::new(watched.iter().copied());
        let mut all = String::new();
        for token in tokens {
            match outflow.push(token) {
                DecoderOutput::Text(text) => all.push_str(&text),
                DecoderOutput::Matched(text, index) => return (all + &text, Some(index)),
            }
        }
        (all + &outflow.flush(), None)
    }

    #[test]
    fn a_character_cut_at_any_byte_comes_out_whole() {
        let text = "aä€😀z".as_bytes();
        for cut in 0..text.len() {
            assert_eq!(decode(&[], &[&text[..cut], &text[cut..]]), ("aä€😀z".to_owned(), None));
            let mut outflow = TextDecoder::new([]);
            let DecoderOutput::Text(first) = outflow.push(&text[..cut]) else { continue };
            assert!(!first.contains('\u{fffd}'), "{cut}");
        }
    }

    #[test]
    fn a_stop_text_cut_anywhere_is_met_and_not_said() {
        let text = b"one STOP two";
        for cut in 0..text.len() {
            assert_eq!(
                decode(&["nope", "STOP"], &[&text[..cut], &text[cut..]]),
                ("one ".to_owned(), Some(1))
            );
        }
    }

    #[test]
    fn what_only_looked_like_a_stop_text_is_said() {
        assert_eq!(decode(&["STOP"], &[b"a ST", b"OKEN ST"]), ("a STOKEN ST".to_owned(), None));
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(decode(&[], &[b"a\xff", b"b\xe2\x82"]).0, "a\u{fffd}b\u{fffd}");
    }
}
