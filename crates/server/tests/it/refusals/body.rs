//! Cases: Content-Length and bodies, on both sides of the limit.

use testkit::http::{LIST_AGENTS, RequestBuilder};

use super::{Case, Expected, ExpectedMessage};

const PARSE: i64 = -32700;

pub(super) const CASES: &[Case] = &[
    Case::refused_and_closed(
        "Content-Length that is no number",
        |request| length(request, "abc"),
        400,
        "Invalid Content-Length: abc",
    ),
    Case::refused_and_closed(
        "Content-Length with a sign",
        |request| length(request, "+47"),
        400,
        "Invalid Content-Length: +47",
    ),
    Case::refused_and_closed(
        "negative Content-Length",
        |request| length(request, "-1"),
        400,
        "Invalid Content-Length: -1",
    ),
    Case::refused_and_closed(
        "hexadecimal Content-Length",
        |request| length(request, "0x2f"),
        400,
        "Invalid Content-Length: 0x2f",
    ),
    Case::refused_and_closed(
        "list of lengths",
        |request| length(request, "47, 47"),
        400,
        "Invalid Content-Length: 47, 47",
    ),
    Case::refused_and_closed(
        "empty Content-Length",
        |request| length(request, ""),
        400,
        "Invalid Content-Length: ",
    ),
    Case::refused_and_closed(
        "Content-Length of 2^64",
        |request| length(request, "18446744073709551616"),
        400,
        "Invalid Content-Length: 18446744073709551616",
    ),
    Case::refused_and_closed(
        "Content-Length of 50 digits",
        |request| length(request, &"9".repeat(50)),
        400,
        "Invalid Content-Length: 99999999999999999999999999999999",
    ),
    Case::refused_and_closed(
        "two Content-Length headers",
        |request| request.header("Content-Length: 47").bytes(),
        400,
        "Invalid Content-Length: 47",
    ),
    Case::accepted("Content-Length with leading zeros", |request| {
        length(request, "0000000000000000000000047")
    }),
    Case::accepted("body of 1048576 bytes", |request| request.body(padded(1_048_576)).bytes()),
    Case::refused_and_closed(
        "body of 1048577 bytes",
        |request| request.body(padded(1_048_577)).bytes(),
        413,
        TOO_LARGE,
    ),
    Case::refused_and_closed(
        "declared length too large, body small",
        |request| length(request, "1048577"),
        413,
        TOO_LARGE,
    ),
    Case::refused_and_closed(
        "Content-Length of 2^63",
        |request| length(request, "9223372036854775808"),
        413,
        "Request body too large: 9223372036854775808 > 1048576",
    ),
    Case::accepted("chunked body of 1048576 bytes", |request| {
        request.chunks(padded(1_048_576).chunks(60_000)).bytes()
    })
    .then_closed_with_header(),
    Case::refused_and_closed(
        "chunked body of 1048577 bytes",
        |request| request.chunks(padded(1_048_577).chunks(60_000)).bytes(),
        413,
        TOO_LARGE,
    ),
    Case::refused_and_closed(
        "body shorter than declared, half-closed",
        |request| request.body("{}").replace_header("Content-Length: 100").bytes(),
        400,
        "Incomplete body: expected 100, got 2",
    )
    .half_closed(),
    Case::refused_and_closed(
        "declared body missing, half-closed",
        |request| request.head(),
        400,
        "Incomplete body: expected 47, got 0",
    )
    .half_closed(),
    Case::refused_and_closed("body never sent", |request| request.head(), 408, "Body read timeout")
        .with_short_timeouts(),
    Case::refused_and_closed(
        "body without its last byte",
        |request| [request.head(), LIST_AGENTS.as_bytes()[..46].to_vec()].concat(),
        408,
        "Body read timeout",
    )
    .with_short_timeouts(),
    Case::refused_and_closed(
        "incomplete chunked body",
        |request| request.framed("2f\r\n{").bytes(),
        408,
        "Body read timeout",
    )
    .with_short_timeouts(),
    Case::refused_and_closed(
        "huge chunk size without data",
        |request| request.framed("ffffffffffffffff\r\n").bytes(),
        408,
        "Body read timeout",
    )
    .with_short_timeouts(),
    Case::refused_and_closed(
        "incomplete chunked body, half-closed",
        |request| request.framed("2f\r\n{").bytes(),
        400,
        "Invalid chunked body",
    )
    .half_closed(),
    parse_error(
        "no Content-Length and no body",
        |request| request.body("").without_header("Content-Length").bytes(),
        EMPTY,
    ),
    parse_error("empty body", |request| request.body("").bytes(), EMPTY),
    parse_error("empty chunked body", |request| request.chunks([]).bytes(), EMPTY).then_closed_with_header(),
    parse_error(
        "body that is not UTF-8",
        |request| request.body(b"{\"a\":\"\xff\"}").bytes(),
        "Invalid body encoding: invalid UTF-8 at byte 6",
    ),
    parse_error(
        "body in UTF-16",
        |request| request.body(b"\xff\xfe{\0}\0").bytes(),
        "Invalid body encoding: invalid UTF-8 at byte 0",
    ),
];

const TOO_LARGE: &str = "Request body too large: 1048577 > 1048576";
const EMPTY: &str = "Invalid JSON: Expecting value: line 1 column 1 (char 0)";

const fn parse_error(
    name: &'static str,
    bytes: fn(RequestBuilder) -> Vec<u8>,
    message: &'static str,
) -> Case {
    let message = ExpectedMessage::Exactly(message);
    Case::new(name, bytes, Expected::Error { status: 400, code: PARSE, message, id: "null" })
}

fn length(request: RequestBuilder, length: &str) -> Vec<u8> {
    request.replace_header(format!("Content-Length: {length}")).bytes()
}

/// A valid body, padded with spaces to this length.
fn padded(bytes: usize) -> Vec<u8> {
    let mut body = LIST_AGENTS.as_bytes().to_vec();
    body.resize(bytes, b' ');
    body
}
