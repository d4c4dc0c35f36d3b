//! Exact bytes of encoded messages.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::super::{ErrorCode, Id, RpcError, encode_error, encode_request, encode_result};
use crate::methods::{NoParams, SendParams};

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

#[test]
fn request_is_compact_and_omits_empty_members() {
    let (id, quoted) = (Id::from(1), Id::from("a\"b"));
    let request = |id, method, params: &Value| text(encode_request(id, method, params).unwrap());
    assert_eq!(request(Some(&id), "m", &Value::Null), r#"{"jsonrpc":"2.0","method":"m","id":1}"#);
    assert_eq!(request(Some(&id), "m", &json!({})), r#"{"jsonrpc":"2.0","method":"m","id":1}"#);
    assert_eq!(request(None, "m", &json!({})), r#"{"jsonrpc":"2.0","method":"m"}"#);
    assert_eq!(request(Some(&Id::NULL), "m", &json!({})), r#"{"jsonrpc":"2.0","method":"m","id":null}"#);
    assert_eq!(
        request(Some(&quoted), "send", &json!({ "content": "é\n\u{1}" })),
        r#"{"jsonrpc":"2.0","method":"send","params":{"content":"é\n\u0001"},"id":"a\"b"}"#
    );
    assert_eq!(request(Some(&id), "m", &json!([])), r#"{"jsonrpc":"2.0","method":"m","params":[],"id":1}"#);
    assert_eq!(request(Some(&id), "a\"b", &json!({})), r#"{"jsonrpc":"2.0","method":"a\"b","id":1}"#);
}

#[test]
fn params_are_serialized_in_declaration_order() {
    let params = SendParams {
        content: "hi".to_owned(),
        images: None,
        request_id: None,
        source: Some("test".to_owned()),
        source_agent_id: None,
    };
    assert_eq!(
        text(encode_request(Some(&Id::from(2)), "send", &params).unwrap()),
        r#"{"jsonrpc":"2.0","method":"send","params":{"content":"hi","source":"test"},"id":2}"#
    );
    assert_eq!(
        text(encode_request(Some(&Id::from(2)), "get_tokens", &NoParams {}).unwrap()),
        r#"{"jsonrpc":"2.0","method":"get_tokens","id":2}"#
    );
}

#[test]
fn result_is_compact_with_the_id_first() {
    assert_eq!(text(encode_result(&Id::from(1), &()).unwrap()), r#"{"jsonrpc":"2.0","id":1,"result":null}"#);
    assert_eq!(
        text(encode_result(&Id::from("x"), &json!({ "a": [1, 1.5, null, "\u{2028}/"] })).unwrap()),
        "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"result\":{\"a\":[1,1.5,null,\"\u{2028}/\"]}}"
    );
    assert_eq!(
        text(encode_result(&Id::NULL, &true).unwrap()),
        r#"{"jsonrpc":"2.0","id":null,"result":true}"#
    );
}

#[test]
fn error_is_compact_and_omits_empty_data() {
    let error = RpcError::new(ErrorCode::InvalidParams, "content must be string, got: int");
    assert_eq!(
        text(encode_error(&Id::from(7), &error)),
        r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"content must be string, got: int"}}"#
    );
    let busy = RpcError::new(ErrorCode::Busy, "busy").with_data(json!({ "retry_after_ms": 250 }));
    assert_eq!(
        text(encode_error(&Id::NULL, &busy)),
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"busy","data":{"retry_after_ms":250}}}"#
    );
}

#[test]
fn unserializable_value_is_an_error_not_a_partial_message() {
    let keyed_by_list = HashMap::from([(vec![1], 1)]);
    assert!(encode_result(&Id::from(1), &keyed_by_list).is_err());
    assert!(encode_request(None, "m", &keyed_by_list).is_err());
}

#[test]
fn every_error_code_has_its_number() {
    let codes = [
        (ErrorCode::Parse, -32700),
        (ErrorCode::InvalidRequest, -32600),
        (ErrorCode::MethodNotFound, -32601),
        (ErrorCode::InvalidParams, -32602),
        (ErrorCode::Internal, -32603),
        (ErrorCode::Server, -32000),
        (ErrorCode::Busy, -32001),
    ];
    for (code, number) in codes {
        assert_eq!(code.number(), number);
        assert_eq!(RpcError::new(code, "x").code, number);
    }
    assert_eq!(RpcError::new(ErrorCode::Busy, "busy").to_string(), "busy (-32001)");
}
