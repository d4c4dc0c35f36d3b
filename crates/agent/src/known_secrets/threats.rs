//! Canaries in every form that a tool's result may give them (row 119 of the threats), whole and in pieces, and texts
//! that are no secrets (row 120).

use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

use super::*;

/// A generator of reproducible numbers (xorshift).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap()
    }

    fn text(&mut self, alphabet: &[u8], length: usize) -> String {
        (0..length).map(|_| char::from(alphabet[self.next() % alphabet.len()])).collect()
    }
}

const BASE64: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const WORD: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
const MARKS: &[u8] = b"abcXYZ019!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";

/// Keys as providers, headers and configurations have them: 190 known ones and 10 tokens of the daemon.
fn canaries() -> (KnownSecrets, Vec<String>) {
    let (secrets, mut rng) = (KnownSecrets::default(), Rng(0x0119_2026));
    let mut values = Vec::new();
    for number in 0..190 {
        let value = match number % 6 {
            0 => format!("sk-proj-{}", rng.text(WORD, 40)),
            1 => format!("sk-ant-api03-{}", rng.text(WORD, 60)),
            2 => format!("AIza{}", rng.text(WORD, 35)),
            3 => rng.text(b"0123456789abcdef", 32),
            4 => rng.text(BASE64, 24),
            _ => rng.text(MARKS, 20),
        };
        secrets.add(&value);
        values.push(value);
    }
    values.extend((0..10).map(|number| format!("nx{}_{}", ["k", "c"][number % 2], rng.text(WORD, 43))));
    (secrets, values)
}

fn each(value: &str, write: impl Fn(&mut String, usize, char)) -> String {
    let mut out = String::new();
    value.chars().enumerate().for_each(|(index, character)| write(&mut out, index, character));
    out
}

fn each_byte(value: &str, write: impl Fn(usize, u8) -> String) -> String {
    value.bytes().enumerate().map(|(index, byte)| write(index, byte)).collect()
}

fn html(value: &str) -> String {
    value
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

fn json(value: &str) -> String {
    each(value, |out, _, character| match character {
        '"' | '\\' => write!(out, "\\{character}").unwrap(),
        '\n' => out.push_str("\\n"),
        '\0'..' ' => write!(out, "\\u{:04x}", u32::from(character)).unwrap(),
        _ => out.push(character),
    })
}

/// A canary in all forms, each with its name.
fn disguises(value: &str) -> Vec<(&'static str, String)> {
    [escaped(value), in_a_terminal(value), encoded(value)].concat()
}

fn escaped(value: &str) -> Vec<(&'static str, String)> {
    let unicode = each_byte(value, |_, byte| format!("\\u{byte:04x}"));
    let some_unicode = |index: usize, byte: u8| match index % 3 {
        0 => format!("\\u{byte:04x}"),
        _ => json(&char::from(byte).to_string()),
    };
    let some_percent = |index: usize, byte: u8| match index % 2 {
        1 if byte != b'%' => char::from(byte).to_string(),
        _ => format!("%{byte:02x}"),
    };
    let shell = each(value, |out, _, character| match character.is_ascii_alphanumeric() {
        true => out.push(character),
        false => write!(out, "\\{character}").unwrap(),
    });
    vec![
        ("plain", value.to_owned()),
        ("JSON", json(value)),
        ("JSON, slash escaped", json(value).replace('/', "\\/")),
        ("JSON in JSON", json(&json(value))),
        ("JSON, all in \\u", unicode.clone()),
        ("JSON, all in \\u, upper", each_byte(value, |_, byte| format!("\\u{byte:04X}"))),
        ("JSON in JSON, all in \\u", unicode.replace('\\', "\\\\")),
        ("some in \\u", each_byte(value, some_unicode)),
        ("braces", each_byte(value, |_, byte| format!("\\u{{{byte:x}}}"))),
        ("\\x", each_byte(value, |_, byte| format!("\\x{byte:02x}"))),
        ("octal", each_byte(value, |_, byte| format!("\\{byte:03o}"))),
        ("URL, all", each_byte(value, |_, byte| format!("%{byte:02X}"))),
        ("URL, all, lower", each_byte(value, |_, byte| format!("%{byte:02x}"))),
        ("URL, some", each_byte(value, some_percent)),
        ("URL in URL", each_byte(value, |_, byte| format!("%25{byte:02X}"))),
        ("HTML", html(value)),
        ("HTML, decimal", each_byte(value, |_, byte| format!("&#{byte};"))),
        ("HTML, hex", each_byte(value, |_, byte| format!("&#x{byte:x};"))),
        ("shell", shell),
    ]
}

fn in_a_terminal(value: &str) -> Vec<(&'static str, String)> {
    let with =
        |sequence: &str| each(value, |out, _, character| write!(out, "{character}{sequence}").unwrap());
    let wrapped = |width: usize, line_break: &str| {
        each(value, |out, index, character| {
            let line_break = if index > 0 && index % width == 0 { line_break } else { "" };
            write!(out, "{line_break}{character}").unwrap();
        })
    };
    vec![
        ("SGR", with("\u{1b}[31m")),
        ("SGR in JSON", json(&with("\u{1b}[31m"))),
        ("OSC with BEL", with("\u{1b}]0;title\u{7}")),
        ("OSC with ST", with("\u{1b}]8;;http://a/\u{1b}\\")),
        ("C1", with("\u{9b}1m")),
        ("two-byte escapes", with("\u{1b}7\u{1b}(B")),
        ("in a link", format!("\u{1b}]8;;http://a/?k={value}\u{1b}\\text\u{1b}]8;;\u{1b}\\")),
        ("NUL", with("\0")),
        ("zero width", with("\u{200b}\u{feff}\u{2060}\u{ad}")),
        ("directions", with("\u{202e}\u{2066}")),
        ("lines", wrapped(7, "\n")),
        ("lines of a terminal", wrapped(10, "\r\n")),
        ("a character per line", wrapped(1, "\n")),
        ("lines in JSON", json(&wrapped(9, "\n"))),
    ]
}

fn encoded(value: &str) -> Vec<(&'static str, String)> {
    let mut forms = vec![
        ("hex", each_byte(value, |_, byte| format!("{byte:02x}"))),
        ("hex, upper", each_byte(value, |_, byte| format!("{byte:02X}"))),
    ];
    for before in ["", "a", "ab"] {
        let encoded = STANDARD.encode(format!("{before}{value}"));
        let lines = encoded.as_bytes().chunks(16).map(|line| str::from_utf8(line).unwrap());
        forms.push(("base64 in lines", lines.collect::<Vec<_>>().join("\n")));
        forms.push(("base64", STANDARD.encode(format!("{before}{value}~"))));
        forms.push(("base64 of URLs", URL_SAFE.encode(format!("{before}{value}"))));
    }
    forms
}

/// Asserts that at most the characters around a canary are left of its form.
fn assert_hidden(clean: &str, form: &str, name: &str, value: &str) {
    let rest = clean.replace(PLACEHOLDER, "");
    let is_hidden = match name {
        "in a link" => !clean.contains(value),
        _ => rest.len() <= 24,
    };
    assert!(clean.contains(PLACEHOLDER) && is_hidden, "{name}: {form:?} became {clean:?}");
}

#[test]
fn threat_119_canaries_are_hidden_in_every_form() {
    let (secrets, values) = canaries();
    assert_eq!(values.len(), 200);
    for value in &values {
        for (name, form) in disguises(value) {
            assert_hidden(&secrets.redact(&form), &form, name, value);
            let text = format!("a line\nkey: {form} end\n");
            let clean = secrets.redact(&text).into_owned();
            assert!(clean.starts_with("a line\nkey: ") && clean.ends_with(" end\n"), "{name}: {clean:?}");
            assert_hidden(clean.trim_start_matches("a line\nkey: "), &form, name, value);
        }
    }
}

/// Shows a text that arrives in pieces.
fn show<'a>(secrets: &KnownSecrets, pieces: impl IntoIterator<Item = &'a str>) -> String {
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
fn threat_119_canaries_are_hidden_when_cut_anywhere() {
    let (secrets, values) = canaries();
    for value in values.iter().step_by(47).chain(&values[190..191]) {
        for (name, form) in disguises(value) {
            let text = format!("> {form} <");
            let whole = secrets.redact(&text).into_owned();
            let boundaries: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            for cut in boundaries.iter().step_by(boundaries.len() / 50 + 1) {
                let (left, right) = text.split_at(*cut);
                assert_eq!(show(&secrets, [left, right]), whole, "{name}: {left:?} | {right:?}");
            }
            let characters = text.split_inclusive(|_: char| true);
            assert_eq!(show(&secrets, characters), whole, "{name}: {text:?}");
        }
    }
}

#[test]
fn threat_119_canary_between_parts_of_a_long_text_is_hidden() {
    let secrets = KnownSecrets::default();
    secrets.add("sk-canary-0123456789");
    let form = "s\u{1b}[1mk-\ncanary%2d0123\\u003456789";
    for before in PART_BYTES - form.len() - 1..=PART_BYTES + 1 {
        let text = format!("{}{form} and more {form}", " ".repeat(before));
        assert_eq!(secrets.redact(&text).trim_start(), "[redacted] and more [redacted]", "{before}");
    }
}

#[test]
fn threat_120_texts_without_secrets_are_unchanged() {
    let ((secrets, _), mut rng) = (canaries(), Rng(0x0120_2026));
    const SOURCE: &str = include_str!("../known_secrets.rs");
    const WORDS: [&str; 12] = [
        "the",
        "token",
        "key",
        "secret",
        "nxk_",
        "sk-",
        "password:",
        "%41",
        "\\u0041",
        "&amp;",
        "naïve",
        "\u{1b}[1m",
    ];
    let mut altered = Vec::new();
    for number in 0..5000 {
        let length = 1 + rng.next() % 400;
        let text = match number % 8 {
            0 => rng.text(b"0123456789abcdef", 64),
            1 => rng.text(BASE64, length),
            2 => (0..length).map(|_| WORDS[rng.next() % WORDS.len()].to_owned() + " ").collect(),
            3 => [8, 4, 4, 4, 12].map(|count| rng.text(b"0123456789abcdef", count)).join("-"),
            4 => SOURCE.lines().skip(rng.next() % 200).take(20).map(|line| format!("{line}\n")).collect(),
            5 => (0..20).map(|_| rng.text(WORD, 6) + "\n").collect(),
            6 => format!("nxk_{}\nsk-proj-{}", rng.text(WORD, 20).to_lowercase() + " ", rng.text(WORD, 40)),
            _ => STANDARD.encode(rng.text(WORD, length)),
        };
        if secrets.redact(&text) != text {
            altered.push(text);
        }
    }
    assert_eq!(altered, Vec::<String>::new());
}
