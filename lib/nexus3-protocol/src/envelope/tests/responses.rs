//! Response parser: exactly one of result and error, and no other members.

use serde_json::json;

use super::super::{Response, ResponseFault, RpcError};
use crate::json::{Json, SyntaxFault};

fn shape_fault(text: &str) -> &'static str {
    match Response::parse(text.as_bytes()) {
        Err(ResponseFault::Shape(what)) => what,
        other => panic!("{text} is not a shape fault: {other:?}"),
    }
}

#[test]
fn result_of_any_type_is_parsed() {
    for (result, expected) in [
        ("null", Json::Null),
        ("true", Json::Bool(true)),
        ("1e400", Json::Number("1e400")),
        ("\"\\u0061\"", Json::String("a".into())),
        ("[]", Json::Array(Vec::new())),
        ("{}", Json::Object(Vec::new())),
    ] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
        let response = Response::parse(text.as_bytes()).unwrap();
        assert_eq!((response.id.raw(), response.outcome), ("1", Ok(expected)), "{text}");
    }
}

#[test]
fn error_is_parsed_with_and_without_data() {
    let cases = [
        (r#"{"code":-32601,"message":"no"}"#, None),
        (r#"{"code":-32601,"message":"no","data":null}"#, None),
        (
            r#"{"message":"no","data":{"retry_after_ms":5},"code":-32601}"#,
            Some(json!({ "retry_after_ms": 5 })),
        ),
        (r#"{"code":-32601,"message":"no","data":[1,-1,1.5,"a"]}"#, Some(json!([1, -1, 1.5, "a"]))),
    ];
    for (error, data) in cases {
        let text = format!(r#"{{"error":{error},"id":null,"jsonrpc":"2.0"}}"#);
        let response = Response::parse(text.as_bytes()).unwrap();
        assert!(response.id.is_null());
        assert_eq!(
            response.outcome,
            Err(RpcError { code: -32601, message: "no".to_owned(), data }),
            "{error}"
        );
    }
}

#[test]
fn any_error_code_is_parsed() {
    for code in [0, -32000, -32001, 1, i64::MIN, i64::MAX] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":"x"}}}}"#);
        assert_eq!(Response::parse(text.as_bytes()).unwrap().outcome.unwrap_err().code, code);
    }
}

#[test]
fn response_with_missing_or_extra_members_is_rejected() {
    let cases = [
        ("[]", "not an object"),
        (r#"[{"jsonrpc":"2.0","id":1,"result":1}]"#, "not an object"),
        ("null", "not an object"),
        (r#""x""#, "not an object"),
        ("{}", "jsonrpc is not 2.0"),
        (r#"{"id":1,"result":1}"#, "jsonrpc is not 2.0"),
        (r#"{"jsonrpc":2.0,"id":1,"result":1}"#, "jsonrpc is not 2.0"),
        (r#"{"jsonrpc":"1.0","id":1,"result":1}"#, "jsonrpc is not 2.0"),
        (r#"{"jsonrpc":"2.0","result":1}"#, "no id"),
        (r#"{"jsonrpc":"2.0","id":1.0,"result":1}"#, "invalid id"),
        (r#"{"jsonrpc":"2.0","id":true,"result":1}"#, "invalid id"),
        (r#"{"jsonrpc":"2.0","id":{},"result":1}"#, "invalid id"),
        (r#"{"jsonrpc":"2.0","id":[],"result":1}"#, "invalid id"),
        (r#"{"jsonrpc":"2.0","id":1}"#, "neither result nor error"),
        (r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{"code":1,"message":"x"}}"#, "both result and error"),
        (r#"{"jsonrpc":"2.0","id":1,"result":null,"error":null}"#, "both result and error"),
        (r#"{"jsonrpc":"2.0","id":1,"result":1,"extra":1}"#, "unknown member"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#, "unknown member"),
        (r#"{"jsonrpc":"2.0","id":1,"Result":1}"#, "unknown member"),
        (r#"{"jsonrpc":"2.0","id":1,"result":1,"result":2}"#, "duplicate key"),
        (r#"{"jsonrpc":"2.0","id":1,"id":1,"result":1}"#, "duplicate key"),
        (r#"{"jsonrpc":"2.0","id":1,"result":{"a":1,"\u0061":2}}"#, "duplicate key"),
    ];
    for (text, what) in cases {
        assert_eq!(shape_fault(text), what, "{text}");
    }
}

#[test]
fn error_with_missing_or_extra_members_is_rejected() {
    let cases = [
        ("null", "malformed error"),
        ("\"x\"", "malformed error"),
        ("{}", "malformed error"),
        (r#"[-32600,"positional"]"#, "malformed error"),
        (r#"{"code":1}"#, "malformed error"),
        (r#"{"message":"x"}"#, "malformed error"),
        (r#"{"code":"1","message":"x"}"#, "malformed error"),
        (r#"{"code":1.0,"message":"x"}"#, "malformed error"),
        (r#"{"code":9223372036854775808,"message":"x"}"#, "malformed error"),
        (r#"{"code":null,"message":"x"}"#, "malformed error"),
        (r#"{"code":1,"message":null}"#, "malformed error"),
        (r#"{"code":1,"message":5}"#, "malformed error"),
        (r#"{"code":1,"message":"x","extra":1}"#, "malformed error"),
        (r#"{"code":1,"message":""}"#, "empty error message"),
    ];
    for (error, what) in cases {
        assert_eq!(shape_fault(&format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#)), what, "{error}");
    }
}

#[test]
fn response_faults_have_their_texts() {
    let not_json = Response::parse(b"<html>").unwrap_err();
    assert!(matches!(not_json, ResponseFault::Syntax(SyntaxFault::Grammar { .. })));
    assert_eq!(not_json.to_string(), "Invalid JSON: Expecting value: line 1 column 1 (char 0)");
    assert_eq!(
        Response::parse(b"{}").unwrap_err().to_string(),
        "not a JSON-RPC response: jsonrpc is not 2.0"
    );
    assert!(matches!(Response::parse(b""), Err(ResponseFault::Syntax(_))));
    assert!(matches!(
        Response::parse(b"{\"id\":\"\xff\"}"),
        Err(ResponseFault::Syntax(SyntaxFault::Encoding(7)))
    ));
}
