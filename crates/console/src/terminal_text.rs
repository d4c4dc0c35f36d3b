//! Text from models, tools and daemons on its way to a terminal: control characters and directions of writing are shown
//! as escapes. With them, a text could rewrite what the terminal shows, set its title or clipboard, or hide a part.

use std::fmt::Write as _;
use std::io::{self, Write};

/// Writes text to a terminal, with dangerous characters as `\u001b`; in JSON this is the same value.
pub struct TerminalWriter<W> {
    terminal: W,
    /// The beginning of a character whose end is still to come.
    incomplete: Vec<u8>,
}

impl<W: Write> TerminalWriter<W> {
    /// A writer to a terminal.
    pub fn new(terminal: W) -> Self {
        Self { terminal, incomplete: Vec::new() }
    }
}

impl<W: Write> Write for TerminalWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.incomplete.extend_from_slice(bytes);
        let (mut text, mut rest) = (String::new(), Vec::new());
        let mut chunks = self.incomplete.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            let invalid = chunk.invalid();
            let is_cut = std::str::from_utf8(invalid).is_err_and(|fault| fault.error_len().is_none());
            if chunks.peek().is_none() && is_cut {
                rest = invalid.to_vec();
            } else if !invalid.is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.incomplete = rest;
        self.terminal.write_all(escape(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.terminal.flush()
    }
}

/// Replaces dangerous characters by escapes.
fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\t' => safe.push(character),
            // Infallible: a string grows.
            _ if is_dangerous(character) => drop(write!(safe, "\\u{:04x}", u32::from(character))),
            _ => safe.push(character),
        }
    }
    safe
}

/// Whether a character controls a terminal, or changes the order in which it shows others. Joiners, which emoji need, do
/// neither.
pub(crate) fn is_dangerous(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{206f}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let mut writer = TerminalWriter::new(Vec::new());
        writer.write_all(text.as_bytes()).unwrap();
        String::from_utf8(writer.terminal).unwrap()
    }

    /// What a hostile text may send to a terminal.
    const PAYLOADS: [&str; 32] = [
        "\u{1b}[31mred",
        "\u{1b}[2J\u{1b}[H",
        "\u{1b}[1A\u{1b}[2K",
        "\u{1b}[?1049h",
        "\u{1b}[?25l",
        "\u{1b}[8m",
        "\u{1b}[6n",
        "\u{1b}[c",
        "\u{1b}[21t",
        "\u{1b}[200~",
        "\u{1b}]0;title\u{7}",
        "\u{1b}]2;title\u{1b}\\",
        "\u{1b}]8;;https://evil.example/\u{1b}\\link\u{1b}]8;;\u{1b}\\",
        "\u{1b}]52;c;cm0gLXJm\u{7}",
        "\u{1b}]1337;File=inline=1:AAAA\u{7}",
        "\u{1b}]4;0;?\u{7}",
        "\u{1b}P$qm\u{1b}\\",
        "\u{1b}_Gf=100;AAAA\u{1b}\\",
        "\u{1b}^private\u{1b}\\",
        "\u{1b}c",
        "\u{1b}(0",
        "\u{9b}2J",
        "\u{9d}0;title\u{9c}",
        "\u{90}q\u{9c}",
        "allow\rdeny ",
        "rm -rf /\u{8}\u{8}\u{8}\u{8}\u{8}\u{8}\u{8}\u{8}ls",
        "\u{7}\u{7f}\0\u{b}\u{c}\u{e}\u{f}",
        "\u{202e}gpj.exe",
        "\u{2066}a\u{2069}\u{2067}b\u{2068}",
        "\u{200e}\u{200f}\u{61c}",
        "line\u{2028}line\u{2029}line\u{85}",
        "tag\u{e0041}\u{e007f}",
    ];

    #[test]
    fn threat_121_payloads_reach_no_terminal() {
        for payload in PAYLOADS {
            let text = shown(payload);
            assert!(!text.chars().any(is_dangerous), "{payload:?}: {text:?}");
            assert_ne!(text, payload);
            let json = format!("\"{}\"", text.replace('"', "\\\""));
            if !payload.contains(['\\', '\u{e0041}']) {
                assert_eq!(serde_json::from_str::<String>(&json).unwrap(), payload, "the same value in JSON");
            }
        }
    }

    #[test]
    fn threat_121_payloads_in_pieces_reach_no_terminal() {
        for payload in PAYLOADS {
            let mut writer = TerminalWriter::new(Vec::new());
            payload.as_bytes().iter().for_each(|byte| writer.write_all(&[*byte]).unwrap());
            assert_eq!(String::from_utf8(writer.terminal).unwrap(), shown(payload));
        }
    }

    #[test]
    fn ordinary_text_is_unchanged() {
        let text = "naïve 日本語 עברית 👩\u{200d}💻\n\tindented \\u001b {}";
        assert_eq!(shown(text), text);
        let mut writer = TerminalWriter::new(Vec::new());
        writer.write_all(b"a\xffb\xe2\x82").unwrap();
        assert_eq!(writer.terminal, "a\u{fffd}b".as_bytes());
    }
}
