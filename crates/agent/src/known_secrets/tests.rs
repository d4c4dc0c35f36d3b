//! Tests of the redaction of known secrets, as a whole and in pieces.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

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
    secrets.add_permanent("permanent");
    (0..SECRETS_MAX).for_each(|number| secrets.add(&format!("secret-{number}")));
    assert_eq!(secrets.redact("forgotten permanent secret-255"), "forgotten [redacted] [redacted]");
    assert!(!format!("{secrets:?}").contains("secret-"));
}
