//! Rows: bodies that are no request, ids that are and are not echoed, notifications, and errors of the dispatcher.

use super::{Case, Expected, ExpectedMessage};
use crate::http::request_builder::RequestBuilder;

const PARSE: i64 = -32700;
const INVALID: i64 = -32600;
const NO_METHOD: i64 = -32601;
const PARAMS: i64 = -32602;

pub(super) const CASES: &[Case] = &[
    // Not JSON. The places are counted as Python does.
    parse(
        "a word",
        |good| good.body("nonsense").bytes(),
        "Invalid JSON: Expecting value: line 1 column 1 (char 0)",
    ),
    parse(
        "a blank",
        |good| good.body(" \n ").bytes(),
        "Invalid JSON: Expecting value: line 2 column 2 (char 3)",
    ),
    parse(
        "a mark before it",
        |good| good.body("\u{feff}{}").bytes(),
        "Invalid JSON: Unexpected UTF-8 BOM (decode using utf-8-sig): line 1 column 1 (char 0)",
    ),
    parse(
        "something behind it",
        |good| good.body("{} x").bytes(),
        "Invalid JSON: Extra data: line 1 column 4 (char 3)",
    ),
    parse(
        "two at once",
        |good| good.body("{}{}").bytes(),
        "Invalid JSON: Extra data: line 1 column 3 (char 2)",
    ),
    Case::new(
        "an object without an end",
        |good| good.body(r#"{"jsonrpc":"2.0""#).bytes(),
        error(400, PARSE, ExpectedMessage::StartsWith("Invalid JSON: "), "null"),
    ),
    Case::new(
        "a number that is none",
        |good| good.body(r#"{"jsonrpc":"2.0","id":01,"method":"m"}"#).bytes(),
        error(400, PARSE, ExpectedMessage::StartsWith("Invalid JSON: "), "null"),
    ),
    Case::new(
        "a number called NaN",
        |good| good.body(r#"{"jsonrpc":"2.0","id":NaN,"method":"m"}"#).bytes(),
        error(400, PARSE, ExpectedMessage::StartsWith("Invalid JSON: "), "null"),
    ),
    parse(
        "65 levels",
        |good| good.body("[".repeat(65)).bytes(),
        "Invalid JSON: nested deeper than 64 levels",
    ),
    parse(
        "a million levels",
        |good| good.body("[".repeat(1_000_000)).bytes(),
        "Invalid JSON: nested deeper than 64 levels",
    ),
    // JSON, but no object.
    invalid("an empty array", |good| good.body("[]").bytes(), NO_OBJECT, "null"),
    invalid(
        "a batch",
        |good| good.body(r#"[{"jsonrpc":"2.0","id":1,"method":"list_agents"}]"#).bytes(),
        NO_OBJECT,
        "null",
    ),
    invalid("a string", |good| good.body(r#""list_agents""#).bytes(), NO_OBJECT, "null"),
    invalid("a number", |good| good.body("1").bytes(), NO_OBJECT, "null"),
    invalid("a truth", |good| good.body("true").bytes(), NO_OBJECT, "null"),
    invalid("a null", |good| good.body("null").bytes(), NO_OBJECT, "null"),
    // An object, but no request.
    invalid("an empty object", |good| good.body("{}").bytes(), "jsonrpc must be '2.0', got: None", "null"),
    invalid(
        "no version",
        |good| good.body(r#"{"id":7,"method":"m"}"#).bytes(),
        "jsonrpc must be '2.0', got: None",
        "7",
    ),
    invalid(
        "an old version",
        |good| good.body(r#"{"jsonrpc":"1.0","id":7,"method":"m"}"#).bytes(),
        "jsonrpc must be '2.0', got: '1.0'",
        "7",
    ),
    invalid(
        "a longer version",
        |good| good.body(r#"{"jsonrpc":"2.00","id":7,"method":"m"}"#).bytes(),
        "jsonrpc must be '2.0', got: '2.00'",
        "7",
    ),
    invalid(
        "a version in digits",
        |good| good.body(r#"{"jsonrpc":2.0,"id":7,"method":"m"}"#).bytes(),
        "jsonrpc must be '2.0', got: 2.0",
        "7",
    ),
    invalid(
        "no method",
        |good| good.body(r#"{"jsonrpc":"2.0","id":7}"#).bytes(),
        "method must be a string, got: NoneType",
        "7",
    ),
    invalid(
        "a number for a method",
        |good| good.body(r#"{"jsonrpc":"2.0","id":7,"method":1}"#).bytes(),
        "method must be a string, got: int",
        "7",
    ),
    invalid(
        "an array for a method",
        |good| good.body(r#"{"jsonrpc":"2.0","id":7,"method":[]}"#).bytes(),
        "method must be a string, got: list",
        "7",
    ),
    invalid(
        "an object for a method",
        |good| good.body(r#"{"jsonrpc":"2.0","id":7,"method":{}}"#).bytes(),
        "method must be a string, got: dict",
        "7",
    ),
    invalid(
        "an empty method",
        |good| good.body(r#"{"jsonrpc":"2.0","id":7,"method":""}"#).bytes(),
        "method must be a non-empty string",
        "7",
    ),
    invalid(
        "params by place",
        |good| good.body(r#"{"jsonrpc":"2.0","id":7,"method":"m","params":[]}"#).bytes(),
        POSITIONAL,
        "7",
    ),
    invalid(
        "a string for params",
        |good| good.body(r#"{"jsonrpc":"2.0","id":7,"method":"m","params":"a"}"#).bytes(),
        "params must be object or array, got: str",
        "7",
    ),
    invalid(
        "a number for params",
        |good| good.body(r#"{"jsonrpc":"2.0","id":7,"method":"m","params":1}"#).bytes(),
        "params must be object or array, got: int",
        "7",
    ),
    invalid(
        "a truth for params",
        |good| good.body(r#"{"jsonrpc":"2.0","id":7,"method":"m","params":true}"#).bytes(),
        "params must be object or array, got: bool",
        "7",
    ),
    invalid(
        "a truth for an id",
        |good| good.body(r#"{"jsonrpc":"2.0","id":true,"method":"m"}"#).bytes(),
        "id must be string, number, or null, got: bool",
        "null",
    ),
    invalid(
        "a fraction for an id",
        |good| good.body(r#"{"jsonrpc":"2.0","id":1.5,"method":"m"}"#).bytes(),
        "id must be string, number, or null, got: float",
        "null",
    ),
    invalid(
        "a whole fraction for an id",
        |good| good.body(r#"{"jsonrpc":"2.0","id":1.0,"method":"m"}"#).bytes(),
        "id must be string, number, or null, got: float",
        "null",
    ),
    invalid(
        "an exponent for an id",
        |good| good.body(r#"{"jsonrpc":"2.0","id":1e2,"method":"m"}"#).bytes(),
        "id must be string, number, or null, got: float",
        "null",
    ),
    invalid(
        "an object for an id",
        |good| good.body(r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#).bytes(),
        "id must be string, number, or null, got: dict",
        "null",
    ),
    invalid(
        "an array for an id",
        |good| good.body(r#"{"jsonrpc":"2.0","id":[],"method":"m"}"#).bytes(),
        "id must be string, number, or null, got: list",
        "null",
    ),
    invalid(
        "one member too many",
        |good| good.body(r#"{"jsonrpc":"2.0","id":7,"method":"m","x":1}"#).bytes(),
        "Invalid JSON-RPC request",
        "7",
    ),
    invalid(
        "a method twice",
        |good| good.body(r#"{"jsonrpc":"2.0","id":7,"method":"m","method":"m"}"#).bytes(),
        "Duplicate key in request: 'method'",
        "7",
    ),
    invalid(
        "an id twice",
        |good| good.body(r#"{"jsonrpc":"2.0","id":7,"id":7,"method":"m"}"#).bytes(),
        "Duplicate key in request: 'id'",
        "null",
    ),
    invalid(
        "a parameter twice",
        |good| good.body(r#"{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":1,"a":1}}"#).bytes(),
        "Duplicate key in request: 'a'",
        "7",
    ),
    // Which of two wins.
    invalid(
        "params by place before the version",
        |good| good.body(r#"{"id":7,"params":[]}"#).bytes(),
        POSITIONAL,
        "7",
    ),
    invalid(
        "an empty method before the version",
        |good| good.body(r#"{"id":7,"method":""}"#).bytes(),
        "method must be a non-empty string",
        "7",
    ),
    invalid(
        "the version before the method",
        |good| good.body(r#"{"id":7,"method":1}"#).bytes(),
        "jsonrpc must be '2.0', got: None",
        "7",
    ),
    invalid(
        "the method before the params",
        |good| good.body(r#"{"jsonrpc":"2.0","id":7,"params":1}"#).bytes(),
        "method must be a string, got: NoneType",
        "7",
    ),
    invalid(
        "the params before the id",
        |good| good.body(r#"{"jsonrpc":"2.0","id":{},"method":"m","params":1}"#).bytes(),
        "params must be object or array, got: int",
        "null",
    ),
    invalid(
        "the id before the rest",
        |good| good.body(r#"{"jsonrpc":"2.0","id":{},"method":"m","x":1}"#).bytes(),
        "id must be string, number, or null, got: dict",
        "null",
    ),
    // Ids come back as they were sent.
    unknown(
        "a big id",
        |good| good.body(r#"{"jsonrpc":"2.0","id":1180591620717411303424,"method":"m"}"#).bytes(),
        "1180591620717411303424",
    ),
    unknown("a negative id", |good| good.body(r#"{"jsonrpc":"2.0","id":-5,"method":"m"}"#).bytes(), "-5"),
    unknown("no positive id", |good| good.body(r#"{"jsonrpc":"2.0","id":0,"method":"m"}"#).bytes(), "0"),
    unknown("an empty id", |good| good.body(r#"{"jsonrpc":"2.0","id":"","method":"m"}"#).bytes(), r#""""#),
    unknown(
        "an id with an escape",
        |good| good.body(r#"{"jsonrpc":"2.0","id":"\u0041\n","method":"m"}"#).bytes(),
        r#""\u0041\n""#,
    ),
    // The dispatcher answers 200.
    unknown(
        "null for params",
        |good| {
            good.target("/agent/main").body(r#"{"jsonrpc":"2.0","id":7,"method":"m","params":null}"#).bytes()
        },
        "7",
    ),
    Case::new(
        "a method of the daemon at an agent",
        |good| good.target("/agent/main").bytes(),
        error(200, NO_METHOD, ExpectedMessage::Exactly("Method not found: list_agents"), "1"),
    ),
    Case::new(
        "a parameter that is missing",
        |good| good.body(r#"{"jsonrpc":"2.0","id":7,"method":"destroy_agent"}"#).bytes(),
        error(200, PARAMS, ExpectedMessage::StartsWith(""), "7"),
    ),
    // Notifications run, and nobody is told how it went.
    silent("a notification", |good| good.body(r#"{"jsonrpc":"2.0","method":"list_agents"}"#).bytes()),
    silent("a null id", |good| good.body(r#"{"jsonrpc":"2.0","id":null,"method":"list_agents"}"#).bytes()),
    silent("an unknown notification", |good| good.body(r#"{"jsonrpc":"2.0","method":"nope"}"#).bytes()),
    silent("a notification with wrong params", |good| {
        good.body(r#"{"jsonrpc":"2.0","method":"list_agents","params":{"x":1}}"#).bytes()
    }),
    silent("a notification in chunks", |good| {
        good.chunks([&br#"{"jsonrpc":"2.0","method":"nope"}"#[..]]).bytes()
    })
    .then_closed_with_header(),
    invalid(
        "a notification that is no request",
        |good| good.body(r#"{"jsonrpc":"2.0","method":1}"#).bytes(),
        "method must be a string, got: int",
        "null",
    ),
];

const NO_OBJECT: &str = "Request must be a JSON object";
const POSITIONAL: &str = "Positional params (array) not supported, use named params (object)";

const fn error(status: u16, code: i64, says: ExpectedMessage, id: &'static str) -> Expected {
    Expected::Error { status, code, message: says, id }
}

const fn parse(name: &'static str, bytes: fn(RequestBuilder) -> Vec<u8>, message: &'static str) -> Case {
    Case::new(name, bytes, error(400, PARSE, ExpectedMessage::Exactly(message), "null"))
}

const fn invalid(
    name: &'static str,
    bytes: fn(RequestBuilder) -> Vec<u8>,
    message: &'static str,
    id: &'static str,
) -> Case {
    Case::new(name, bytes, error(400, INVALID, ExpectedMessage::Exactly(message), id))
}

/// A call of the method `m`, which nobody has.
const fn unknown(name: &'static str, bytes: fn(RequestBuilder) -> Vec<u8>, id: &'static str) -> Case {
    Case::new(name, bytes, error(200, NO_METHOD, ExpectedMessage::Exactly("Method not found: m"), id))
}

const fn silent(name: &'static str, bytes: fn(RequestBuilder) -> Vec<u8>) -> Case {
    Case::new(name, bytes, Expected::NoContent)
}
