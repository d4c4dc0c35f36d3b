//! Cases: bodies that are no JSON-RPC request, which ids are echoed, notifications, and errors of the dispatcher.

use testkit::http::RequestBuilder;

use super::{Case, Expected, ExpectedMessage};

const PARSE: i64 = -32700;
const INVALID: i64 = -32600;
const NO_METHOD: i64 = -32601;
const PARAMS: i64 = -32602;

pub(super) const CASES: &[Case] = &[
    // Not JSON. Lines, columns and characters are counted as Python counts them.
    parse_error(
        "a bare word",
        |request| request.body("nonsense").bytes(),
        "Invalid JSON: Expecting value: line 1 column 1 (char 0)",
    ),
    parse_error(
        "only white space",
        |request| request.body(" \n ").bytes(),
        "Invalid JSON: Expecting value: line 2 column 2 (char 3)",
    ),
    parse_error(
        "byte order mark",
        |request| request.body("\u{feff}{}").bytes(),
        "Invalid JSON: Unexpected UTF-8 BOM (decode using utf-8-sig): line 1 column 1 (char 0)",
    ),
    parse_error(
        "trailing data",
        |request| request.body("{} x").bytes(),
        "Invalid JSON: Extra data: line 1 column 4 (char 3)",
    ),
    parse_error(
        "two objects",
        |request| request.body("{}{}").bytes(),
        "Invalid JSON: Extra data: line 1 column 3 (char 2)",
    ),
    Case::new(
        "unterminated object",
        |request| request.body(r#"{"jsonrpc":"2.0""#).bytes(),
        error(400, PARSE, ExpectedMessage::StartsWith("Invalid JSON: "), "null"),
    ),
    Case::new(
        "number with a leading zero",
        |request| request.body(r#"{"jsonrpc":"2.0","id":01,"method":"m"}"#).bytes(),
        error(400, PARSE, ExpectedMessage::StartsWith("Invalid JSON: "), "null"),
    ),
    Case::new(
        "NaN",
        |request| request.body(r#"{"jsonrpc":"2.0","id":NaN,"method":"m"}"#).bytes(),
        error(400, PARSE, ExpectedMessage::StartsWith("Invalid JSON: "), "null"),
    ),
    parse_error(
        "65 levels",
        |request| request.body("[".repeat(65)).bytes(),
        "Invalid JSON: nested deeper than 64 levels",
    ),
    parse_error(
        "a million levels",
        |request| request.body("[".repeat(1_000_000)).bytes(),
        "Invalid JSON: nested deeper than 64 levels",
    ),
    // JSON, but not an object.
    invalid_request("an empty array", |request| request.body("[]").bytes(), NO_OBJECT, "null"),
    invalid_request(
        "a batch",
        |request| request.body(r#"[{"jsonrpc":"2.0","id":1,"method":"list_agents"}]"#).bytes(),
        NO_OBJECT,
        "null",
    ),
    invalid_request("a string", |request| request.body(r#""list_agents""#).bytes(), NO_OBJECT, "null"),
    invalid_request("a number", |request| request.body("1").bytes(), NO_OBJECT, "null"),
    invalid_request("a boolean", |request| request.body("true").bytes(), NO_OBJECT, "null"),
    invalid_request("a null", |request| request.body("null").bytes(), NO_OBJECT, "null"),
    // An object, but not a request.
    invalid_request(
        "an empty object",
        |request| request.body("{}").bytes(),
        "jsonrpc must be '2.0', got: None",
        "null",
    ),
    invalid_request(
        "no version",
        |request| request.body(r#"{"id":7,"method":"m"}"#).bytes(),
        "jsonrpc must be '2.0', got: None",
        "7",
    ),
    invalid_request(
        "version 1.0",
        |request| request.body(r#"{"jsonrpc":"1.0","id":7,"method":"m"}"#).bytes(),
        "jsonrpc must be '2.0', got: '1.0'",
        "7",
    ),
    invalid_request(
        "version 2.00",
        |request| request.body(r#"{"jsonrpc":"2.00","id":7,"method":"m"}"#).bytes(),
        "jsonrpc must be '2.0', got: '2.00'",
        "7",
    ),
    invalid_request(
        "version as a number",
        |request| request.body(r#"{"jsonrpc":2.0,"id":7,"method":"m"}"#).bytes(),
        "jsonrpc must be '2.0', got: 2.0",
        "7",
    ),
    invalid_request(
        "no method",
        |request| request.body(r#"{"jsonrpc":"2.0","id":7}"#).bytes(),
        "method must be a string, got: NoneType",
        "7",
    ),
    invalid_request(
        "method is a number",
        |request| request.body(r#"{"jsonrpc":"2.0","id":7,"method":1}"#).bytes(),
        "method must be a string, got: int",
        "7",
    ),
    invalid_request(
        "method is an array",
        |request| request.body(r#"{"jsonrpc":"2.0","id":7,"method":[]}"#).bytes(),
        "method must be a string, got: list",
        "7",
    ),
    invalid_request(
        "method is an object",
        |request| request.body(r#"{"jsonrpc":"2.0","id":7,"method":{}}"#).bytes(),
        "method must be a string, got: dict",
        "7",
    ),
    invalid_request(
        "an empty method",
        |request| request.body(r#"{"jsonrpc":"2.0","id":7,"method":""}"#).bytes(),
        "method must be a non-empty string",
        "7",
    ),
    invalid_request(
        "positional params",
        |request| request.body(r#"{"jsonrpc":"2.0","id":7,"method":"m","params":[]}"#).bytes(),
        POSITIONAL,
        "7",
    ),
    invalid_request(
        "params is a string",
        |request| request.body(r#"{"jsonrpc":"2.0","id":7,"method":"m","params":"a"}"#).bytes(),
        "params must be object or array, got: str",
        "7",
    ),
    invalid_request(
        "params is a number",
        |request| request.body(r#"{"jsonrpc":"2.0","id":7,"method":"m","params":1}"#).bytes(),
        "params must be object or array, got: int",
        "7",
    ),
    invalid_request(
        "params is a boolean",
        |request| request.body(r#"{"jsonrpc":"2.0","id":7,"method":"m","params":true}"#).bytes(),
        "params must be object or array, got: bool",
        "7",
    ),
    invalid_request(
        "id is a boolean",
        |request| request.body(r#"{"jsonrpc":"2.0","id":true,"method":"m"}"#).bytes(),
        "id must be string, number, or null, got: bool",
        "null",
    ),
    invalid_request(
        "id is a fraction",
        |request| request.body(r#"{"jsonrpc":"2.0","id":1.5,"method":"m"}"#).bytes(),
        "id must be string, number, or null, got: float",
        "null",
    ),
    invalid_request(
        "id is 1.0",
        |request| request.body(r#"{"jsonrpc":"2.0","id":1.0,"method":"m"}"#).bytes(),
        "id must be string, number, or null, got: float",
        "null",
    ),
    invalid_request(
        "id with an exponent",
        |request| request.body(r#"{"jsonrpc":"2.0","id":1e2,"method":"m"}"#).bytes(),
        "id must be string, number, or null, got: float",
        "null",
    ),
    invalid_request(
        "id is an object",
        |request| request.body(r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#).bytes(),
        "id must be string, number, or null, got: dict",
        "null",
    ),
    invalid_request(
        "id is an array",
        |request| request.body(r#"{"jsonrpc":"2.0","id":[],"method":"m"}"#).bytes(),
        "id must be string, number, or null, got: list",
        "null",
    ),
    invalid_request(
        "unknown member",
        |request| request.body(r#"{"jsonrpc":"2.0","id":7,"method":"m","x":1}"#).bytes(),
        "Invalid JSON-RPC request",
        "7",
    ),
    invalid_request(
        "duplicate method",
        |request| request.body(r#"{"jsonrpc":"2.0","id":7,"method":"m","method":"m"}"#).bytes(),
        "Duplicate key in request: 'method'",
        "7",
    ),
    invalid_request(
        "duplicate id",
        |request| request.body(r#"{"jsonrpc":"2.0","id":7,"id":7,"method":"m"}"#).bytes(),
        "Duplicate key in request: 'id'",
        "null",
    ),
    invalid_request(
        "a parameter twice",
        |request| request.body(r#"{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":1,"a":1}}"#).bytes(),
        "Duplicate key in request: 'a'",
        "7",
    ),
    // Order of the checks.
    invalid_request(
        "positional params before the version",
        |request| request.body(r#"{"id":7,"params":[]}"#).bytes(),
        POSITIONAL,
        "7",
    ),
    invalid_request(
        "an empty method before the version",
        |request| request.body(r#"{"id":7,"method":""}"#).bytes(),
        "method must be a non-empty string",
        "7",
    ),
    invalid_request(
        "the version before the method",
        |request| request.body(r#"{"id":7,"method":1}"#).bytes(),
        "jsonrpc must be '2.0', got: None",
        "7",
    ),
    invalid_request(
        "the method before the params",
        |request| request.body(r#"{"jsonrpc":"2.0","id":7,"params":1}"#).bytes(),
        "method must be a string, got: NoneType",
        "7",
    ),
    invalid_request(
        "the params before the id",
        |request| request.body(r#"{"jsonrpc":"2.0","id":{},"method":"m","params":1}"#).bytes(),
        "params must be object or array, got: int",
        "null",
    ),
    invalid_request(
        "the id before the rest",
        |request| request.body(r#"{"jsonrpc":"2.0","id":{},"method":"m","x":1}"#).bytes(),
        "id must be string, number, or null, got: dict",
        "null",
    ),
    // Ids are echoed byte for byte.
    unknown_method(
        "a big id",
        |request| request.body(r#"{"jsonrpc":"2.0","id":1180591620717411303424,"method":"m"}"#).bytes(),
        "1180591620717411303424",
    ),
    unknown_method(
        "a negative id",
        |request| request.body(r#"{"jsonrpc":"2.0","id":-5,"method":"m"}"#).bytes(),
        "-5",
    ),
    unknown_method("id 0", |request| request.body(r#"{"jsonrpc":"2.0","id":0,"method":"m"}"#).bytes(), "0"),
    unknown_method(
        "an empty id",
        |request| request.body(r#"{"jsonrpc":"2.0","id":"","method":"m"}"#).bytes(),
        r#""""#,
    ),
    unknown_method(
        "an id with an escape",
        |request| request.body(r#"{"jsonrpc":"2.0","id":"\u0041\n","method":"m"}"#).bytes(),
        r#""\u0041\n""#,
    ),
    // The dispatcher responds with status 200.
    unknown_method(
        "params is null",
        |request| {
            request
                .target("/agent/main")
                .body(r#"{"jsonrpc":"2.0","id":7,"method":"m","params":null}"#)
                .bytes()
        },
        "7",
    ),
    Case::new(
        "method of the daemon on an agent's path",
        |request| request.target("/agent/main").bytes(),
        error(200, NO_METHOD, ExpectedMessage::Exactly("Method not found: list_agents"), "1"),
    ),
    Case::new(
        "missing parameter",
        |request| request.body(r#"{"jsonrpc":"2.0","id":7,"method":"destroy_agent"}"#).bytes(),
        error(200, PARAMS, ExpectedMessage::StartsWith(""), "7"),
    ),
    // Notifications run; the response has no result and no error.
    notification("a notification", |request| {
        request.body(r#"{"jsonrpc":"2.0","method":"list_agents"}"#).bytes()
    }),
    notification("a null id", |request| {
        request.body(r#"{"jsonrpc":"2.0","id":null,"method":"list_agents"}"#).bytes()
    }),
    notification("an unknown notification", |request| {
        request.body(r#"{"jsonrpc":"2.0","method":"nope"}"#).bytes()
    }),
    notification("a notification with wrong params", |request| {
        request.body(r#"{"jsonrpc":"2.0","method":"list_agents","params":{"x":1}}"#).bytes()
    }),
    notification("a chunked notification", |request| {
        request.chunks([&br#"{"jsonrpc":"2.0","method":"nope"}"#[..]]).bytes()
    })
    .then_closed_with_header(),
    invalid_request(
        "an invalid notification",
        |request| request.body(r#"{"jsonrpc":"2.0","method":1}"#).bytes(),
        "method must be a string, got: int",
        "null",
    ),
];

const NO_OBJECT: &str = "Request must be a JSON object";
const POSITIONAL: &str = "Positional params (array) not supported, use named params (object)";

const fn error(status: u16, code: i64, message: ExpectedMessage, id: &'static str) -> Expected {
    Expected::Error { status, code, message, id }
}

const fn parse_error(
    name: &'static str,
    bytes: fn(RequestBuilder) -> Vec<u8>,
    message: &'static str,
) -> Case {
    Case::new(name, bytes, error(400, PARSE, ExpectedMessage::Exactly(message), "null"))
}

const fn invalid_request(
    name: &'static str,
    bytes: fn(RequestBuilder) -> Vec<u8>,
    message: &'static str,
    id: &'static str,
) -> Case {
    Case::new(name, bytes, error(400, INVALID, ExpectedMessage::Exactly(message), id))
}

/// A call of the method `m`, which does not exist.
const fn unknown_method(name: &'static str, bytes: fn(RequestBuilder) -> Vec<u8>, id: &'static str) -> Case {
    Case::new(name, bytes, error(200, NO_METHOD, ExpectedMessage::Exactly("Method not found: m"), id))
}

const fn notification(name: &'static str, bytes: fn(RequestBuilder) -> Vec<u8>) -> Case {
    Case::new(name, bytes, Expected::NoContent)
}
