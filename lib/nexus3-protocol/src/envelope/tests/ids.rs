//! Request ids: echoed byte for byte, or rejected.

use super::super::{EnvelopeRules, Id, encode_result};
use super::{parse_accepted, parse_rejected};

fn with_id(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"m","id":{id}}}"#)
}

#[test]
fn string_and_integer_ids_are_echoed_byte_for_byte() {
    let long = format!("\"{}\"", "x".repeat(10_000));
    let digits = "9".repeat(1000);
    let ids = [
        "0",
        "-0",
        "1",
        "-1",
        "9007199254740993",
        "1180591620717411303424",
        "-1180591620717411303424",
        digits.as_str(),
        r#""""#,
        r#"" ""#,
        r#""1""#,
        r#""null""#,
        long.as_str(),
        r#""\u0041\/\n\ud83d\ude00""#,
        r#""é😀""#,
        r#""\u0000\"\\""#,
    ];
    for id in ids {
        let text = with_id(id);
        let request = parse_accepted(&text, EnvelopeRules::HTTP);
        let sent = request.id.unwrap();
        assert_eq!(sent.raw(), id);
        assert!(!sent.is_null(), "{id}");
        let response = encode_result(&sent, &()).unwrap();
        assert_eq!(response, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":null}}"#).into_bytes());
    }
}

#[test]
fn whitespace_around_an_id_is_not_part_of_it() {
    let text = "{\"id\" : \n 12 \t,\"jsonrpc\":\"2.0\",\"method\":\"m\"}";
    assert_eq!(parse_accepted(text, EnvelopeRules::HTTP).id.unwrap().raw(), "12");
}

#[test]
fn absent_id_differs_from_null_id() {
    assert_eq!(parse_accepted(r#"{"jsonrpc":"2.0","method":"m"}"#, EnvelopeRules::HTTP).id, None);
    let text = with_id("null");
    let id = parse_accepted(&text, EnvelopeRules::HTTP).id.unwrap();
    assert_eq!(id, Id::NULL);
    assert!(id.is_null());
}

#[test]
fn fraction_boolean_and_container_ids_are_rejected() {
    let ids = [
        ("1.0", "float"),
        ("1.5", "float"),
        ("1e2", "float"),
        ("1E2", "float"),
        ("-0.0", "float"),
        ("1e400", "float"),
        ("true", "bool"),
        ("false", "bool"),
        ("{}", "dict"),
        (r#"{"id":1}"#, "dict"),
        ("[]", "list"),
        ("[1]", "list"),
    ];
    for (id, kind) in ids {
        for rules in [EnvelopeRules::HTTP, EnvelopeRules::FULL] {
            let text = with_id(id);
            let rejected = parse_rejected(&text, rules);
            let message = format!("id must be string, number, or null, got: {kind}");
            assert_eq!((rejected.error.code, rejected.error.message), (-32600, message), "{id}");
            assert_eq!(rejected.id, Id::NULL, "{id}");
        }
    }
}

#[test]
fn rejected_request_without_valid_id_gets_the_null_id() {
    for text in [r#"{"method":"m"}"#, r#"{"method":"m","id":null}"#, r#"{"method":"m","id":1.5}"#] {
        assert_eq!(parse_rejected(text, EnvelopeRules::HTTP).id, Id::NULL, "{text}");
    }
    assert_eq!(
        parse_rejected(r#"{"method":"m","id":"\u0041"}"#, EnvelopeRules::HTTP).id.raw(),
        r#""\u0041""#
    );
}

#[test]
fn client_id_is_serialized_as_json() {
    let ids = [
        (Id::from(0), "0"),
        (Id::from(u64::MAX), "18446744073709551615"),
        (Id::from(""), r#""""#),
        (Id::from("null"), r#""null""#),
        (Id::from("a\"\\\n\u{1}é"), r#""a\"\\\n\u0001é""#),
        (Id::NULL, "null"),
    ];
    for (id, raw) in ids {
        assert_eq!(id.raw(), raw);
        assert_eq!(id.is_null(), raw == "null");
        assert_eq!(id.clone().into_owned(), id);
    }
}

#[test]
fn number_and_quoted_number_are_different_ids() {
    assert_ne!(Id::from(5), Id::from("5"));
}
