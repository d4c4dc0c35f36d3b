//! Property tests against `serde_json`: random values, random bytes and mutated texts. Intended differences: depth
//! (below both limits here), and numbers out of range, which this parser preserves as text and `serde_json` rejects.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use serde_json::Value;

use super::super::{from_json, parse, parse_members};
use super::is_equivalent;
use crate::envelope::{EnvelopeRules, Incoming, Response};
use crate::methods::{CreateAgentParams, MessagesParams, SendParams};

fn config() -> ProptestConfig {
    // A failure becomes a named test instead of a file of seeds.
    ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() }
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        prop::num::f64::NORMAL.prop_map(Value::from),
        prop::num::f64::SUBNORMAL.prop_map(Value::from),
        prop::num::f64::ZERO.prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        prop::collection::vec(any::<char>(), 0..8)
            .prop_map(|letters| Value::from(String::from_iter(letters))),
    ];
    leaf.prop_recursive(6, 64, 8, |inner| {
        let object = prop::collection::btree_map(any::<String>(), inner.clone(), 0..12);
        prop_oneof![
            prop::collection::vec(inner, 0..8).prop_map(Value::from),
            object.prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Sequences of valid and almost valid JSON tokens, which are closer to valid texts than random bytes are.
fn token_sequences() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\\",
        "\"a\"",
        "\"b\"",
        "\"\"",
        "0",
        "1",
        "-",
        "-0",
        ".",
        ".5",
        "e",
        "E+1",
        "e-",
        "1e400",
        "123456789012345678901",
        "true",
        "false",
        "null",
        "nul",
        " ",
        "\n",
        "\\u",
        "00e9",
        "\\ud83d",
        "\\ude00",
        "\\n",
        "é",
        "😀",
        "\u{feff}",
        "\u{0}",
        "\u{1f}",
        "\u{7f}",
        "\u{a0}",
        "{\"a\":",
        "[1,",
        ",\"a\":2}",
        "/",
        "'",
    ]);
    prop::collection::vec(pieces, 0..40).prop_map(|pieces| pieces.concat().into_bytes())
}

#[derive(Debug, Clone)]
enum Mutation {
    Set(usize, u8),
    Insert(usize, u8),
    Remove(usize),
    Truncate(usize),
    Repeat(usize, usize),
}

fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let byte =
        || prop_oneof![any::<u8>(), prop::sample::select(b"{}[],:\"\\-+.eE0123456789utfn \n".to_vec())];
    let change = prop_oneof![
        (any::<usize>(), byte()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        (any::<usize>(), byte()).prop_map(|(at, byte)| Mutation::Insert(at, byte)),
        any::<usize>().prop_map(Mutation::Remove),
        any::<usize>().prop_map(Mutation::Truncate),
        (any::<usize>(), 1..9_usize).prop_map(|(at, length)| Mutation::Repeat(at, length)),
    ];
    prop::collection::vec(change, 1..4)
}

fn mutate(mut bytes: Vec<u8>, changes: Vec<Mutation>) -> Vec<u8> {
    for change in changes {
        let index = |at: usize| at % (bytes.len() + 1);
        match change {
            Mutation::Set(at, byte) => {
                let at = index(at);
                if let Some(old) = bytes.get_mut(at) {
                    *old = byte;
                }
            }
            Mutation::Insert(at, byte) => bytes.insert(index(at), byte),
            Mutation::Remove(at) => {
                let at = index(at);
                bytes.drain(at..(at + 1).min(bytes.len()));
            }
            Mutation::Truncate(at) => bytes.truncate(index(at)),
            Mutation::Repeat(at, length) => {
                let at = index(at);
                let repeated = bytes[at..(at + length).min(bytes.len())].to_vec();
                bytes.splice(at..at, repeated);
            }
        }
    }
    bytes
}

fn check_against_serde_json(bytes: &[u8]) -> TestCaseResult {
    let other = serde_json::from_slice::<Value>(bytes);
    match (parse(bytes), other) {
        (Ok(ours), Ok(other)) => {
            prop_assert!(is_equivalent(&ours.value, &other), "{:?} is not {other}", ours.value);
        }
        (Err(_), Err(_)) => {}
        (Ok(_), Err(other)) => {
            prop_assert!(
                other.to_string().starts_with("number out of range"),
                "only serde_json rejects: {other}"
            );
        }
        (Err(ours), Ok(_)) => prop_assert!(false, "only this parser rejects: {ours}"),
    }
    prop_assert_eq!(parse_members(bytes).is_ok(), parse(bytes).is_ok());
    Ok(())
}

/// Checks that every parser returns without a panic and with an error text; other tests check the results.
fn check_every_parser_returns(bytes: &[u8]) -> TestCaseResult {
    for rules in [EnvelopeRules::HTTP, EnvelopeRules::FULL] {
        if let Err(rejected) = Incoming::parse(bytes, rules) {
            prop_assert_eq!(rejected.error.code == -32700, parse(bytes).is_err());
            prop_assert!(!rejected.error.message.is_empty());
        }
    }
    if let Err(fault) = Response::parse(bytes) {
        prop_assert!(!fault.to_string().is_empty());
    }
    if let Ok(document) = parse(bytes) {
        let faults = [
            from_json::<SendParams>(&document.value).err(),
            from_json::<MessagesParams>(&document.value).err(),
            from_json::<CreateAgentParams>(&document.value).err(),
            from_json::<Value>(&document.value).err(),
        ];
        prop_assert!(faults.into_iter().flatten().all(|fault| !fault.to_string().is_empty()));
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_value_round_trips(value in values()) {
        for text in [serde_json::to_vec(&value).unwrap(), serde_json::to_vec_pretty(&value).unwrap()] {
            let document = parse(&text).unwrap();
            prop_assert_eq!(&document.duplicate, &None);
            let back: Value = from_json(&document.value).unwrap();
            prop_assert_eq!(&back, &value);
        }
    }

    #[test]
    fn any_bytes_parse_as_in_serde_json(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        check_against_serde_json(&bytes)?;
        check_every_parser_returns(&bytes)?;
    }

    #[test]
    fn any_text_parses_as_in_serde_json(text in any::<String>()) {
        let quoted = [b"\"", text.as_bytes(), b"\""].concat();
        check_against_serde_json(&quoted)?;
        check_every_parser_returns(&quoted)?;
    }

    #[test]
    fn any_token_sequence_parses_as_in_serde_json(bytes in token_sequences()) {
        check_against_serde_json(&bytes)?;
        check_every_parser_returns(&bytes)?;
    }

    #[test]
    fn any_mutated_value_parses_as_in_serde_json(value in values(), changes in mutations()) {
        let bytes = mutate(serde_json::to_vec(&value).unwrap(), changes);
        check_against_serde_json(&bytes)?;
        check_every_parser_returns(&bytes)?;
    }

    #[test]
    fn any_mutated_request_is_handled_without_panic(params in values(), id in values(), changes in mutations()) {
        let request = serde_json::json!({ "jsonrpc": "2.0", "method": "send", "params": params, "id": id });
        let bytes = mutate(serde_json::to_vec(&request).unwrap(), changes);
        check_against_serde_json(&bytes)?;
        check_every_parser_returns(&bytes)?;
    }

    #[test]
    fn any_mutated_response_is_handled_without_panic(result in values(), data in values(), changes in mutations()) {
        let error = serde_json::json!({ "code": -32000, "message": "x", "data": data });
        for (member, value) in [("result", result), ("error", error)] {
            let response = serde_json::json!({ "jsonrpc": "2.0", "id": 1, member: value });
            check_every_parser_returns(&mutate(serde_json::to_vec(&response).unwrap(), changes.clone()))?;
        }
    }
}
