//! Required members of a request, the error text for each violation, and which of several errors is reported.

use super::super::{EnvelopeRules, Id, Incoming, Params};
use super::{parse_accepted, parse_rejected};
use crate::json::{Json, from_members};

/// Checks that each text, whose id is 7, is rejected with −32600, that id and this message.
fn check(rules: EnvelopeRules, cases: &[(&str, &str)]) {
    for (text, message) in cases {
        let rejected = parse_rejected(text, rules);
        assert_eq!(rejected.error.message, *message, "{text}");
        assert_eq!((rejected.error.code, rejected.id.raw()), (-32600, "7"), "{text}");
        assert_eq!(rejected.error.data, None, "{text}");
    }
}

#[test]
fn complete_request_is_parsed() {
    let request = parse_accepted(
        r#"{"jsonrpc":"2.0","id":7,"method":"send","params":{"content":"hi","n":[1]}}"#,
        EnvelopeRules::HTTP,
    );
    assert_eq!(request.method, "send");
    assert_eq!(request.id.as_ref().map(Id::raw), Some("7"));
    let members = vec![
        ("content".into(), Json::String("hi".into())),
        ("n".into(), Json::Array(vec![Json::Number("1")])),
    ];
    assert_eq!(request.params, Params::Named(members));
}

#[test]
fn members_may_be_reordered_and_escaped() {
    let text = r#" {"params":{},"id":"x","m\u0065thod":"\u0073end","jsonrpc":"\u0032.0"} "#;
    let request = parse_accepted(text, EnvelopeRules::HTTP);
    assert_eq!((request.method.as_ref(), request.id.as_ref().map(Id::raw)), ("send", Some("\"x\"")));
}

#[test]
fn absent_null_and_empty_params_are_equal() {
    for params in ["", r#","params":null"#, r#","params":{}"#] {
        let text = format!(r#"{{"jsonrpc":"2.0","method":"m","id":1{params}}}"#);
        assert_eq!(parse_accepted(&text, EnvelopeRules::HTTP).params, Params::Named(Vec::new()), "{text}");
    }
}

#[test]
fn value_other_than_an_object_is_rejected() {
    for text in ["[]", "[1,2,3]", "[[]]", "\"{}\"", "1", "-0", "1e400", "null", "true", "false", " [ ] "] {
        let rejected = parse_rejected(text, EnvelopeRules::HTTP);
        assert_eq!(rejected.error.message, "Request must be a JSON object", "{text}");
        assert_eq!((rejected.error.code, rejected.id.raw()), (-32600, "null"), "{text}");
    }
}

#[test]
fn http_rejects_a_batch() {
    let text = r#"[{"jsonrpc":"2.0","method":"m","id":1}]"#;
    assert_eq!(parse_rejected(text, EnvelopeRules::HTTP).error.message, "Request must be a JSON object");
    assert!(
        matches!(Incoming::parse(text.as_bytes(), EnvelopeRules::FULL), Ok(Incoming::Batch(items)) if items.len() == 1)
    );
}

#[test]
fn other_jsonrpc_version_is_rejected_with_its_value() {
    check(
        EnvelopeRules::HTTP,
        &[
            (r#"{"id":7,"method":"m"}"#, "jsonrpc must be '2.0', got: None"),
            (r#"{"jsonrpc":null,"id":7,"method":"m"}"#, "jsonrpc must be '2.0', got: None"),
            (r#"{"jsonrpc":"1.0","id":7,"method":"m"}"#, "jsonrpc must be '2.0', got: '1.0'"),
            (r#"{"jsonrpc":"2.00","id":7,"method":"m"}"#, "jsonrpc must be '2.0', got: '2.00'"),
            (r#"{"jsonrpc":" 2.0","id":7,"method":"m"}"#, "jsonrpc must be '2.0', got: ' 2.0'"),
            (r#"{"jsonrpc":"","id":7,"method":"m"}"#, "jsonrpc must be '2.0', got: ''"),
            (r#"{"jsonrpc":2.0,"id":7,"method":"m"}"#, "jsonrpc must be '2.0', got: 2.0"),
            (r#"{"jsonrpc":2,"id":7,"method":"m"}"#, "jsonrpc must be '2.0', got: 2"),
            (r#"{"jsonrpc":true,"id":7,"method":"m"}"#, "jsonrpc must be '2.0', got: True"),
            (r#"{"jsonrpc":["2.0"],"id":7,"method":"m"}"#, "jsonrpc must be '2.0', got: [...]"),
            (r#"{"jsonrpc":{},"id":7,"method":"m"}"#, "jsonrpc must be '2.0', got: {...}"),
            (r#"{"JSONRPC":"2.0","id":7,"method":"m"}"#, "jsonrpc must be '2.0', got: None"),
        ],
    );
}

#[test]
fn method_that_is_not_a_string_is_rejected_with_its_type() {
    check(
        EnvelopeRules::HTTP,
        &[
            (r#"{"jsonrpc":"2.0","id":7}"#, "method must be a string, got: NoneType"),
            (r#"{"jsonrpc":"2.0","id":7,"method":null}"#, "method must be a string, got: NoneType"),
            (r#"{"jsonrpc":"2.0","id":7,"method":1}"#, "method must be a string, got: int"),
            (r#"{"jsonrpc":"2.0","id":7,"method":1.5}"#, "method must be a string, got: float"),
            (r#"{"jsonrpc":"2.0","id":7,"method":true}"#, "method must be a string, got: bool"),
            (r#"{"jsonrpc":"2.0","id":7,"method":["m"]}"#, "method must be a string, got: list"),
            (r#"{"jsonrpc":"2.0","id":7,"method":{}}"#, "method must be a string, got: dict"),
            (r#"{"jsonrpc":"2.0","id":7,"method":""}"#, "method must be a non-empty string"),
        ],
    );
}

#[test]
fn any_non_empty_method_name_is_accepted() {
    let long = "x".repeat(1 << 20);
    for name in ["rpc.x", "__proto__", "agent.send\\u0000", " ", "sénd", "SEND", "\\u202e", long.as_str()] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{name}"}}"#);
        let expected: String = serde_json::from_str(&format!("\"{name}\"")).unwrap();
        assert_eq!(parse_accepted(&text, EnvelopeRules::HTTP).method, expected);
    }
}

#[test]
fn scalar_params_are_rejected_with_their_type() {
    for (params, kind) in [
        ("\"x\"", "str"),
        ("1", "int"),
        ("1.0", "float"),
        ("1e400", "float"),
        ("true", "bool"),
        ("false", "bool"),
    ] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","params":{params}}}"#);
        let message = format!("params must be object or array, got: {kind}");
        check(EnvelopeRules::HTTP, &[(&text, &message)]);
        check(EnvelopeRules::FULL, &[(&text, &message)]);
    }
}

#[test]
fn positional_params_need_the_positional_rule() {
    for params in ["[]", "[1]", "[{\"content\":\"hi\"}]"] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"m","params":{params}}}"#);
        check(
            EnvelopeRules::HTTP,
            &[(&text, "Positional params (array) not supported, use named params (object)")],
        );
        assert!(matches!(parse_accepted(&text, EnvelopeRules::FULL).params, Params::Positional(_)), "{text}");
    }
}

#[test]
fn unknown_member_is_rejected() {
    let message = "Invalid JSON-RPC request";
    check(
        EnvelopeRules::HTTP,
        &[
            (r#"{"jsonrpc":"2.0","id":7,"method":"m","extra":1}"#, message),
            (r#"{"jsonrpc":"2.0","id":7,"method":"m","":null}"#, message),
            (r#"{"jsonrpc":"2.0","id":7,"method":"m","Method":"m"}"#, message),
            (r#"{"jsonrpc":"2.0","id":7,"method":"m","result":1}"#, message),
            (r#"{"jsonrpc":"2.0","id":7,"method":"m","__proto__":{}}"#, message),
        ],
    );
}

#[test]
fn only_the_first_error_is_reported_in_original_order() {
    let positional = "Positional params (array) not supported, use named params (object)";
    check(
        EnvelopeRules::HTTP,
        &[
            (r#"{"params":[],"method":"","jsonrpc":"1","extra":1,"id":7}"#, positional),
            (
                r#"{"params":1,"method":"","jsonrpc":"1","extra":1,"id":7}"#,
                "method must be a non-empty string",
            ),
            (r#"{"params":1,"method":1,"jsonrpc":"1","extra":1,"id":7}"#, "jsonrpc must be '2.0', got: '1'"),
            (
                r#"{"params":1,"method":1,"jsonrpc":"2.0","extra":1,"id":7}"#,
                "method must be a string, got: int",
            ),
            (
                r#"{"params":1,"method":"m","jsonrpc":"2.0","extra":1,"id":7}"#,
                "params must be object or array, got: int",
            ),
            (r#"{"params":{},"method":"m","jsonrpc":"2.0","extra":1,"id":7}"#, "Invalid JSON-RPC request"),
        ],
    );
    let invalid = parse_rejected(
        r#"{"params":{},"method":"m","jsonrpc":"2.0","extra":1,"id":true}"#,
        EnvelopeRules::HTTP,
    );
    assert_eq!(invalid.error.message, "id must be string, number, or null, got: bool");
    let earlier = parse_rejected(
        r#"{"params":1,"method":"m","jsonrpc":"2.0","extra":1,"id":true}"#,
        EnvelopeRules::HTTP,
    );
    assert_eq!(earlier.error.message, "params must be object or array, got: int");
}

#[test]
fn syntax_comes_before_duplicates_before_other_checks() {
    let syntax = parse_rejected(r#"{"id":7,"id":7,"method":"#, EnvelopeRules::HTTP);
    assert_eq!((syntax.error.code, syntax.id.raw()), (-32700, "null"));
    assert_eq!(syntax.error.message, "Invalid JSON: Expecting value: line 1 column 25 (char 24)");
    check(
        EnvelopeRules::HTTP,
        &[(r#"{"params":[],"method":"","a":1,"a":2,"id":7}"#, "Duplicate key in request: 'a'")],
    );
}

#[test]
fn duplicate_key_error_has_the_id_if_unambiguous() {
    let shapes = [
        (r#"{"jsonrpc":"2.0","jsonrpc":"2.0","method":"m","id":7}"#, "7", "jsonrpc"),
        (r#"{"jsonrpc":"2.0","method":"m","method":"n","id":7}"#, "7", "method"),
        (r#"{"jsonrpc":"2.0","method":"m","m\u0065thod":"n","id":7}"#, "7", "method"),
        (r#"{"jsonrpc":"2.0","method":"m","params":{},"params":{},"id":7}"#, "7", "params"),
        (r#"{"jsonrpc":"2.0","method":"m","id":7,"id":7}"#, "null", "id"),
        (r#"{"jsonrpc":"2.0","method":"m","id":7,"\u0069d":8}"#, "null", "id"),
        (r#"{"jsonrpc":"2.0","method":"m","id":7,"id":null}"#, "null", "id"),
        (r#"{"jsonrpc":"2.0","method":"m","id":7,"extra":1,"extra":2}"#, "7", "extra"),
        (r#"{"jsonrpc":"2.0","method":"m","id":7,"params":{"a":1,"a":2}}"#, "7", "a"),
        (r#"{"jsonrpc":"2.0","method":"m","id":7,"params":{"a":1,"\u0061":2}}"#, "7", "a"),
        (r#"{"jsonrpc":"2.0","method":"m","id":7,"params":{"a":{"b":[{"c":1,"c":2}]}}}"#, "7", "c"),
        (r#"{"jsonrpc":"2.0","method":"m","id":7,"params":[{"":1,"":2}]}"#, "7", ""),
        (r#"{"jsonrpc":"2.0","method":"m","params":{"a":1,"a":2}}"#, "null", "a"),
        (r#"{"jsonrpc":"2.0","method":"m","id":{"a":1,"a":2}}"#, "null", "a"),
    ];
    for (text, id, key) in shapes {
        for rules in [EnvelopeRules::HTTP, EnvelopeRules::FULL] {
            let rejected = parse_rejected(text, rules);
            assert_eq!(rejected.error.message, format!("Duplicate key in request: '{key}'"), "{text}");
            assert_eq!((rejected.error.code, rejected.id.raw()), (-32600, id), "{text}");
        }
    }
}

#[test]
fn long_duplicate_key_is_truncated_in_the_message() {
    let key = "k".repeat(100_000);
    let text = format!(r#"{{"{key}":1,"{key}":2}}"#);
    let message = format!("Duplicate key in request: '{}...'", "k".repeat(64));
    assert_eq!(parse_rejected(&text, EnvelopeRules::HTTP).error.message, message);
}

#[test]
fn string_params_are_unescaped_without_change() {
    let text =
        r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"t":"\u0000\u202e\u2028\u001b[31m\ud83d\ude00é"}}"#;
    let Params::Named(members) = parse_accepted(text, EnvelopeRules::HTTP).params else {
        panic!("not named parameters")
    };
    let params: std::collections::BTreeMap<String, String> = from_members(&members).unwrap();
    assert_eq!(params["t"], "\0\u{202e}\u{2028}\u{1b}[31m😀é");
}
