//! Bounded capture of a command's output: its beginning and its end, and how much is missing between them.

use std::collections::VecDeque;

/// How much output is retained. The rest is read and counted, so that the command never waits for a full pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputLimits {
    /// Bytes of the beginning.
    pub head_bytes_max: usize,
    /// Bytes of the end.
    pub tail_bytes_max: usize,
}

/// The captured output of one stream.
#[derive(Debug, Clone)]
pub struct CapturedOutput {
    limits: OutputLimits,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    bytes_total: u64,
}

impl CapturedOutput {
    /// Nothing captured yet.
    #[must_use]
    pub fn new(limits: OutputLimits) -> Self {
        Self { limits, head: Vec::new(), tail: VecDeque::new(), bytes_total: 0 }
    }

    /// Adds output.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes_total += bytes.len() as u64;
        let room = self.limits.head_bytes_max - self.head.len();
        let (head, rest) = bytes.split_at(bytes.len().min(room));
        self.head.extend_from_slice(head);
        let rest = &rest[rest.len().saturating_sub(self.limits.tail_bytes_max)..];
        let excess = (self.tail.len() + rest.len()).saturating_sub(self.limits.tail_bytes_max);
        self.tail.drain(..excess);
        self.tail.extend(rest);
    }

    /// The number of bytes that the command has written.
    #[must_use]
    pub fn bytes_total(&self) -> u64 {
        self.bytes_total
    }

    /// The number of bytes between beginning and end that were dropped.
    #[must_use]
    pub fn bytes_dropped(&self) -> u64 {
        self.bytes_total - (self.head.len() + self.tail.len()) as u64
    }

    /// Takes the captured text, and continues empty. A character whose end is still to come stays.
    #[must_use]
    pub fn take_text(&mut self) -> String {
        let before_last = (self.head.len() + self.tail.len()).saturating_sub(3);
        let last: Vec<u8> = self.head.iter().chain(&self.tail).skip(before_last).copied().collect();
        let incomplete = last[last.len() - incomplete_bytes(&last)..].to_vec();
        for _ in &incomplete {
            let _ = self.tail.pop_back().or_else(|| self.head.pop());
        }
        self.bytes_total -= incomplete.len() as u64;
        let text = self.text();
        *self = Self::new(self.limits);
        self.push(&incomplete);
        text
    }

    /// The captured text, with a line that says how much is missing. Bytes that are not UTF-8 are replaced.
    #[must_use]
    pub fn text(&self) -> String {
        let dropped = self.bytes_dropped();
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        if dropped == 0 {
            return String::from_utf8_lossy(&[&self.head[..], &tail].concat()).into_owned();
        }
        let head = &self.head[..whole_characters(&self.head)];
        let tail = &tail[tail.iter().take_while(|byte| is_continuation(**byte)).count()..];
        format!(
            "{}\n[… {dropped} bytes omitted …]\n{}",
            String::from_utf8_lossy(head),
            String::from_utf8_lossy(tail)
        )
    }
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// The length without a character that is cut at the end.
fn whole_characters(bytes: &[u8]) -> usize {
    bytes.len() - incomplete_bytes(bytes)
}

/// The length of a character that is cut at the end; zero if none is.
fn incomplete_bytes(bytes: &[u8]) -> usize {
    let last = bytes.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
    match std::str::from_utf8(last) {
        Err(error) if error.error_len().is_none() => last.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(pieces: &[&str], head: usize, tail: usize) -> CapturedOutput {
        let mut output = CapturedOutput::new(OutputLimits { head_bytes_max: head, tail_bytes_max: tail });
        pieces.iter().for_each(|piece| output.push(piece.as_bytes()));
        output
    }

    #[test]
    fn short_output_is_complete_however_it_arrives() {
        for pieces in [&["abcdefgh"][..], &["abc", "", "defgh"], &["a", "b", "c", "d", "e", "f", "g", "h"]] {
            let output = capture(pieces, 4, 4);
            assert_eq!((output.text().as_str(), output.bytes_dropped()), ("abcdefgh", 0));
        }
    }

    #[test]
    fn long_output_keeps_its_beginning_and_its_end() {
        for pieces in [&["abcdefghij"][..], &["abcd", "efg", "hij"], &["a", "bcdefghi", "j"]] {
            let output = capture(pieces, 3, 2);
            assert_eq!(output.text(), "abc\n[… 5 bytes omitted …]\nij");
            assert_eq!(output.bytes_total(), 10);
        }
    }

    #[test]
    fn taken_text_is_not_repeated_and_cuts_no_character() {
        let mut output = capture(&["aä"], 2, 8);
        let (first, rest) = "ö€".as_bytes().split_at(1);
        output.push(first);
        assert_eq!((output.take_text().as_str(), output.bytes_total()), ("aä", 1));
        output.push(rest);
        assert_eq!(output.take_text(), "ö€");
        assert_eq!((output.take_text().as_str(), output.bytes_total()), ("", 0));
        output.push(b"0123456789abc\xff");
        assert_eq!(output.take_text(), "01\n[… 4 bytes omitted …]\n6789abc\u{fffd}");
    }

    #[test]
    fn characters_are_not_cut() {
        let output = capture(&["aäöü", "äöüz"], 2, 2);
        assert_eq!(output.text(), "a\n[… 10 bytes omitted …]\nz");
    }
}
