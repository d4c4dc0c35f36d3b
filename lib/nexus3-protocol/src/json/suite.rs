//! JSON parsing suite derived from the grammar of RFC 8259: texts every parser accepts, texts every parser rejects, and
//! implementation-defined cases. Each text is parsed alone and as the `params` of a request.

mod accepted;
mod implementation_defined;
mod rejected;

use std::collections::HashSet;

use accepted::ACCEPTED;
use implementation_defined::{ExpectedOutcome, IMPLEMENTATION_DEFINED};
use rejected::{REJECTED, REJECTED_ALONE};

use super::tests::is_equivalent;
use super::{Json, from_json, parse, parse_members};
use crate::envelope::{EnvelopeRules, Incoming, RejectedRequest};

/// Returns requests with `text` as `params`: as the last member and before other members.
fn requests(text: &[u8]) -> [Vec<u8>; 2] {
    let last = [br#"{"jsonrpc":"2.0","id":7,"method":"m","params":"#, text, b"}"].concat();
    let middle = [br#"{"params":"#, text, br#","jsonrpc":"2.0","method":"m","id":7}"#].concat();
    [last, middle]
}

/// Returns the error code and id of a rejected request, or `None` when it is accepted.
fn rejection(request: &[u8]) -> Option<(i64, String)> {
    let rejected = |rejected: RejectedRequest<'_>| (rejected.error.code, rejected.id.raw().to_owned());
    Incoming::parse(request, EnvelopeRules::HTTP).err().map(rejected)
}

#[test]
fn every_production_of_the_grammar_is_accepted() {
    for (name, text) in ACCEPTED {
        let document = parse(text).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        assert_eq!(document.duplicate, None, "{name}");
        assert!(parse_members(text).is_ok(), "{name}");
    }
}

#[test]
fn accepted_texts_parse_as_in_serde_json() {
    for (name, text) in ACCEPTED {
        let document = parse(text).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        let other: serde_json::Value = serde_json::from_slice(text).unwrap();
        assert!(is_equivalent(&document.value, &other), "{name}: {:?} is not {other}", document.value);
        let typed: serde_json::Value = from_json(&document.value).unwrap();
        assert!(is_equivalent(&document.value, &typed), "{name}: {:?} is not {typed}", document.value);
    }
}

#[test]
fn accepted_text_as_params_is_never_a_parse_error() {
    for (name, text) in ACCEPTED {
        for request in requests(text) {
            let expected = match parse(text).map(|document| document.value) {
                Ok(Json::Object(_) | Json::Null) => None,
                _ => Some((-32600, "7".to_owned())),
            };
            assert_eq!(rejection(&request), expected, "{name}");
        }
    }
}

#[test]
fn every_text_outside_the_grammar_is_rejected() {
    for (name, text) in REJECTED.iter().chain(REJECTED_ALONE) {
        assert!(parse(text).is_err(), "{name}: {:?}", parse(text));
        assert_eq!(parse_members(text).err(), parse(text).err(), "{name}: alone and as a message");
        assert_eq!(rejection(text), Some((-32700, "null".to_owned())), "{name}");
    }
}

#[test]
fn rejected_text_as_params_is_a_parse_error_without_id() {
    for (name, text) in REJECTED {
        for request in requests(text) {
            assert_eq!(rejection(&request), Some((-32700, "null".to_owned())), "{name}");
        }
    }
}

#[test]
fn text_that_completes_params_adds_an_unknown_member() {
    for (name, text) in REJECTED_ALONE {
        for request in requests(text) {
            assert_eq!(rejection(&request), Some((-32600, "7".to_owned())), "{name}");
        }
    }
}

#[test]
fn implementation_defined_cases_have_a_fixed_outcome() {
    for case in IMPLEMENTATION_DEFINED {
        let (name, text) = (case.name, case.text.bytes());
        match (case.expected, parse(&text)) {
            (ExpectedOutcome::Accepted, Ok(document)) => {
                assert_eq!(document.duplicate, None, "{name}");
                if let Json::Number(number) = document.value {
                    assert_eq!(number.as_bytes(), text, "{name}: digits are preserved");
                }
            }
            (ExpectedOutcome::DuplicateKey(key), Ok(document)) => {
                assert_eq!(document.duplicate.as_deref(), Some(key), "{name}");
            }
            (ExpectedOutcome::Rejected(message), Err(fault)) => {
                assert_eq!(fault.to_string(), message, "{name}");
            }
            (expected, outcome) => panic!("{name}: expected {expected:?}, got {:?}", outcome.map(|_| ())),
        }
        for request in requests(&text) {
            assert_eq!(rejection(&request).map(|(code, _)| code), case.params_code, "{name}");
        }
    }
}

#[test]
fn every_control_character_in_a_string_is_rejected() {
    for control in 0..0x20 {
        assert!(parse(&[b'"', control, b'"']).is_err(), "{control:#x}");
        assert!(parse(&[b'{', b'"', control, b'"', b':', b'0', b'}']).is_err(), "{control:#x}");
    }
    for plain in 0x20..0x80 {
        let expected = !matches!(plain, b'"' | b'\\');
        assert_eq!(parse(&[b'"', plain, b'"']).is_ok(), expected, "{plain:#x}");
    }
}

#[test]
fn only_eight_letters_and_unicode_escapes_are_valid() {
    for letter in 0..=0xff {
        let known = br#""\/bfnrt"#.contains(&letter);
        assert_eq!(parse(&[b'"', b'\\', letter, b'"']).is_ok(), known, "{letter:#x}");
    }
}

#[test]
fn only_four_bytes_are_whitespace() {
    for byte in 0..=0xff {
        let blank = b" \t\n\r".contains(&byte);
        for text in [[byte, b'[', b']'], [b'[', byte, b']'], [b'[', b']', byte]] {
            let digit_inside = byte.is_ascii_digit() && text[1] == byte;
            assert_eq!(parse(&text).is_ok(), blank || digit_inside, "{byte:#x} in {text:?}");
        }
    }
}

#[test]
fn every_code_unit_except_surrogates_is_unescaped() {
    for unit in 0..=0xffff_u32 {
        for text in [format!("\"\\u{unit:04x}\""), format!("\"\\u{unit:04X}\"")] {
            let letter = char::from_u32(unit).map(|letter| Json::String(letter.to_string().into()));
            assert_eq!(parse(text.as_bytes()).ok().map(|document| document.value), letter, "{text}");
        }
    }
}

#[test]
fn truncated_text_is_rejected_at_every_byte() {
    let text = r#"{"a":[1,-2.5e+3,true,false,null,"é\u00e9\ud83d\ude00\n"],"":{"b":{}}}"#.as_bytes();
    assert!(parse(text).is_ok());
    for cut in 0..text.len() {
        assert!(parse(&text[..cut]).is_err(), "cut at byte {cut}");
    }
}

#[test]
fn suite_has_its_size_and_no_duplicate_cases() {
    assert!(ACCEPTED.len() >= 95, "{}", ACCEPTED.len());
    assert!(REJECTED.len() + REJECTED_ALONE.len() >= 188, "{}", REJECTED.len());
    let plain = ACCEPTED.iter().chain(REJECTED).chain(REJECTED_ALONE);
    let mut names = HashSet::new();
    let mut texts = HashSet::new();
    for (name, text) in plain {
        assert!(names.insert(name), "{name} is listed twice");
        assert!(texts.insert(text), "{name} has another case's text");
    }
    for case in IMPLEMENTATION_DEFINED {
        assert!(names.insert(&case.name), "{} is listed twice", case.name);
    }
}
