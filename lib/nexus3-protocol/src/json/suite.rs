//! A JSON parsing suite derived from the grammar of RFC 8259: texts every parser accepts, texts every parser refuses,
//! and texts the document leaves to us. Each is read alone and as the `params` of a request.

mod accepted;
mod implementation_defined;
mod refused;

use std::collections::HashSet;

use accepted::ACCEPTED;
use implementation_defined::{ExpectedOutcome, IMPLEMENTATION_DEFINED};
use refused::{REFUSED, REFUSED_ALONE};

use super::tests::is_equivalent;
use super::{Json, from_json, parse, parse_members};
use crate::envelope::{EnvelopeRules, Incoming, RejectedRequest};

/// A request with `text` as its parameters, at both places a member can have.
fn requests(text: &[u8]) -> [Vec<u8>; 2] {
    let last = [br#"{"jsonrpc":"2.0","id":7,"method":"m","params":"#, text, b"}"].concat();
    let middle = [br#"{"params":"#, text, br#","jsonrpc":"2.0","method":"m","id":7}"#].concat();
    [last, middle]
}

/// The code and id a request is refused with, or nothing when it is taken.
fn refusal(request: &[u8]) -> Option<(i64, String)> {
    let refused = |refused: RejectedRequest<'_>| (refused.error.code, refused.id.raw().to_owned());
    Incoming::parse(request, EnvelopeRules::HTTP).err().map(refused)
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
fn what_is_accepted_means_what_another_parser_reads() {
    for (name, text) in ACCEPTED {
        let document = parse(text).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        let other: serde_json::Value = serde_json::from_slice(text).unwrap();
        assert!(is_equivalent(&document.value, &other), "{name}: {:?} is not {other}", document.value);
        let typed: serde_json::Value = from_json(&document.value).unwrap();
        assert!(is_equivalent(&document.value, &typed), "{name}: {:?} is not {typed}", document.value);
    }
}

#[test]
fn an_accepted_text_as_params_is_never_a_parse_error() {
    for (name, text) in ACCEPTED {
        for request in requests(text) {
            let expected = match parse(text).map(|document| document.value) {
                Ok(Json::Object(_) | Json::Null) => None,
                _ => Some((-32600, "7".to_owned())),
            };
            assert_eq!(refusal(&request), expected, "{name}");
        }
    }
}

#[test]
fn every_text_outside_the_grammar_is_refused() {
    for (name, text) in REFUSED.iter().chain(REFUSED_ALONE) {
        assert!(parse(text).is_err(), "{name}: {:?}", parse(text));
        assert_eq!(parse_members(text).err(), parse(text).err(), "{name}: alone and as a message");
        assert_eq!(refusal(text), Some((-32700, "null".to_owned())), "{name}");
    }
}

#[test]
fn a_refused_text_as_params_is_a_parse_error_without_id() {
    for (name, text) in REFUSED {
        for request in requests(text) {
            assert_eq!(refusal(&request), Some((-32700, "null".to_owned())), "{name}");
        }
    }
}

#[test]
fn a_text_that_params_make_whole_is_a_request_with_a_member_too_many() {
    for (name, text) in REFUSED_ALONE {
        for request in requests(text) {
            assert_eq!(refusal(&request), Some((-32600, "7".to_owned())), "{name}");
        }
    }
}

#[test]
fn what_the_grammar_leaves_open_has_a_fixed_answer() {
    for case in IMPLEMENTATION_DEFINED {
        let (name, text) = (case.name, case.text.bytes());
        match (case.expected, parse(&text)) {
            (ExpectedOutcome::Accepted, Ok(document)) => {
                assert_eq!(document.duplicate, None, "{name}");
                if let Json::Number(number) = document.value {
                    assert_eq!(number.as_bytes(), text, "{name}: digits are kept as sent");
                }
            }
            (ExpectedOutcome::DuplicateKey(key), Ok(document)) => {
                assert_eq!(document.duplicate.as_deref(), Some(key), "{name}");
            }
            (ExpectedOutcome::Rejected(message), Err(fault)) => {
                assert_eq!(fault.to_string(), message, "{name}")
            }
            (answer, read) => panic!("{name}: {answer:?} was expected, got {:?}", read.map(|_| ())),
        }
        for request in requests(&text) {
            assert_eq!(refusal(&request).map(|(code, _)| code), case.params_code, "{name}");
        }
    }
}

#[test]
fn a_control_character_inside_a_string_is_refused_whichever_it_is() {
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
fn only_eight_letters_and_a_code_may_follow_a_backslash() {
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
fn every_code_unit_is_read_unless_it_is_a_surrogate() {
    for unit in 0..=0xffff_u32 {
        for text in [format!("\"\\u{unit:04x}\""), format!("\"\\u{unit:04X}\"")] {
            let letter = char::from_u32(unit).map(|letter| Json::String(letter.to_string().into()));
            assert_eq!(parse(text.as_bytes()).ok().map(|document| document.value), letter, "{text}");
        }
    }
}

#[test]
fn a_cut_text_is_refused_wherever_the_cut_is() {
    let text = r#"{"a":[1,-2.5e+3,true,false,null,"é\u00e9\ud83d\ude00\n"],"":{"b":{}}}"#.as_bytes();
    assert!(parse(text).is_ok());
    for cut in 0..text.len() {
        assert!(parse(&text[..cut]).is_err(), "cut at byte {cut}");
    }
}

#[test]
fn the_suite_is_as_large_as_promised_and_names_each_case_once() {
    assert!(ACCEPTED.len() >= 95, "{}", ACCEPTED.len());
    assert!(REFUSED.len() + REFUSED_ALONE.len() >= 188, "{}", REFUSED.len());
    let plain = ACCEPTED.iter().chain(REFUSED).chain(REFUSED_ALONE);
    let mut names = HashSet::new();
    let mut texts = HashSet::new();
    for (name, text) in plain {
        assert!(names.insert(name), "{name} stands twice");
        assert!(texts.insert(text), "{name} has another case's text");
    }
    for case in IMPLEMENTATION_DEFINED {
        assert!(names.insert(&case.name), "{} stands twice", case.name);
    }
}
