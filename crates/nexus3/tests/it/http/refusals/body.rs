//! Rows: lengths and bodies, from both sides of their limit.

use super::{Case, Expected, ExpectedMessage};
use crate::http::request_builder::{LIST_AGENTS, RequestBuilder};

const PARSE: i64 = -32700;

pub(super) const CASES: &[Case] = &[
    Case::refused_and_closed(
        "a length that is no number",
        |good| length(good, "abc"),
        400,
        "Invalid Content-Length: abc",
    ),
    Case::refused_and_closed(
        "a length with a sign",
        |good| length(good, "+47"),
        400,
        "Invalid Content-Length: +47",
    ),
    Case::refused_and_closed(
        "a negative length",
        |good| length(good, "-1"),
        400,
        "Invalid Content-Length: -1",
    ),
    Case::refused_and_closed(
        "a length in hexadecimal",
        |good| length(good, "0x2f"),
        400,
        "Invalid Content-Length: 0x2f",
    ),
    Case::refused_and_closed(
        "a list of lengths",
        |good| length(good, "47, 47"),
        400,
        "Invalid Content-Length: 47, 47",
    ),
    Case::refused_and_closed("an empty length", |good| length(good, ""), 400, "Invalid Content-Length: "),
    Case::refused_and_closed(
        "a length of 2^64",
        |good| length(good, "18446744073709551616"),
        400,
        "Invalid Content-Length: 18446744073709551616",
    ),
    Case::refused_and_closed(
        "a length of many letters",
        |good| length(good, &"9".repeat(50)),
        400,
        "Invalid Content-Length: 99999999999999999999999999999999",
    ),
    Case::refused_and_closed(
        "two lengths",
        |good| good.header("Content-Length: 47").bytes(),
        400,
        "Invalid Content-Length: 47",
    ),
    Case::accepted("a length with zeros before it", |good| length(good, "0000000000000000000000047")),
    Case::accepted("a body of 1048576 bytes", |good| good.body(padded(1_048_576)).bytes()),
    Case::refused_and_closed(
        "a body of 1048577 bytes",
        |good| good.body(padded(1_048_577)).bytes(),
        413,
        TOO_LARGE,
    ),
    Case::refused_and_closed(
        "a body that only says it is too large",
        |good| length(good, "1048577"),
        413,
        TOO_LARGE,
    ),
    Case::refused_and_closed(
        "a length of 2^63",
        |good| length(good, "9223372036854775808"),
        413,
        "Request body too large: 9223372036854775808 > 1048576",
    ),
    Case::accepted("a chunked body of 1048576 bytes", |good| {
        good.chunks(padded(1_048_576).chunks(60_000)).bytes()
    })
    .then_closed_with_header(),
    Case::refused_and_closed(
        "a chunked body of 1048577 bytes",
        |good| good.chunks(padded(1_048_577).chunks(60_000)).bytes(),
        413,
        TOO_LARGE,
    ),
    Case::refused_and_closed(
        "a body shorter than it says, and the end",
        |good| good.body("{}").replace_header("Content-Length: 100").bytes(),
        400,
        "Incomplete body: expected 100, got 2",
    )
    .half_closed(),
    Case::refused_and_closed(
        "no body where one is said to be, and the end",
        |good| good.head(),
        400,
        "Incomplete body: expected 47, got 0",
    )
    .half_closed(),
    Case::refused_and_closed("a body that does not come", |good| good.head(), 408, "Body read timeout")
        .with_short_timeouts(),
    Case::refused_and_closed(
        "a body that does not end",
        |good| [good.head(), LIST_AGENTS.as_bytes()[..46].to_vec()].concat(),
        408,
        "Body read timeout",
    )
    .with_short_timeouts(),
    Case::refused_and_closed(
        "a chunked body that does not end",
        |good| good.framed("2f\r\n{").bytes(),
        408,
        "Body read timeout",
    )
    .with_short_timeouts(),
    Case::refused_and_closed(
        "a chunk larger than any body, of which nothing comes",
        |good| good.framed("ffffffffffffffff\r\n").bytes(),
        408,
        "Body read timeout",
    )
    .with_short_timeouts(),
    Case::refused_and_closed(
        "a chunked body that breaks off, and the end",
        |good| good.framed("2f\r\n{").bytes(),
        400,
        "Invalid chunked body",
    )
    .half_closed(),
    no_json("no length and no body", |good| good.body("").without_header("Content-Length").bytes(), EMPTY),
    no_json("an empty body", |good| good.body("").bytes(), EMPTY),
    no_json("an empty chunked body", |good| good.chunks([]).bytes(), EMPTY).then_closed_with_header(),
    no_json(
        "a body that is not UTF-8",
        |good| good.body(b"{\"a\":\"\xff\"}").bytes(),
        "Invalid body encoding: invalid UTF-8 at byte 6",
    ),
    no_json(
        "a body in UTF-16",
        |good| good.body(b"\xff\xfe{\0}\0").bytes(),
        "Invalid body encoding: invalid UTF-8 at byte 0",
    ),
];

const TOO_LARGE: &str = "Request body too large: 1048577 > 1048576";
const EMPTY: &str = "Invalid JSON: Expecting value: line 1 column 1 (char 0)";

const fn no_json(name: &'static str, bytes: fn(RequestBuilder) -> Vec<u8>, message: &'static str) -> Case {
    let says = ExpectedMessage::Exactly(message);
    Case::new(name, bytes, Expected::Error { status: 400, code: PARSE, message: says, id: "null" })
}

fn length(good: RequestBuilder, length: &str) -> Vec<u8> {
    good.replace_header(format!("Content-Length: {length}")).bytes()
}

/// A good body with blanks up to a length.
fn padded(bytes: usize) -> Vec<u8> {
    let mut body = LIST_AGENTS.as_bytes().to_vec();
    body.resize(bytes, b' ');
    body
}
