//! Rows: heads that are not as HTTP wants them, and the limits on their size from both sides.

use super::Case;
use crate::http::request_builder::RequestBuilder;
use crate::http::support::NO_ROUTE;

pub(super) const CASES: &[Case] = &[
    // Times and ends.
    Case::refused_and_closed("a peer that ends without sending", |_| Vec::new(), 400, "Empty request")
        .half_closed(),
    Case::refused_and_closed("a peer that says nothing", |_| Vec::new(), 408, "Request timeout")
        .with_short_timeouts(),
    Case::refused_and_closed("half a request line", |_| b"POST /".to_vec(), 408, "Header read timeout")
        .with_short_timeouts(),
    Case::refused_and_closed(
        "half a header line",
        |good| good.head()[..40].to_vec(),
        408,
        "Header read timeout",
    )
    .with_short_timeouts(),
    Case::refused_and_closed(
        "a head without its last byte",
        |good| good.head().split_last().map_or_else(Vec::new, |(_, head)| head.to_vec()),
        408,
        "Header read timeout",
    )
    .with_short_timeouts(),
    Case::refused_and_closed(
        "a head that ends in its middle",
        |good| good.head()[..40].to_vec(),
        400,
        "Incomplete request head",
    )
    .half_closed(),
    // The request line.
    Case::refused_and_closed("a blank request line", |good| line(&good, b""), 400, "Invalid request line: "),
    Case::refused_and_closed("one part", |good| line(&good, b"POST"), 400, "Invalid request line: POST"),
    Case::refused_and_closed("two parts", |good| line(&good, b"POST /"), 400, "Invalid request line: POST /"),
    Case::refused_and_closed(
        "four parts",
        |good| line(&good, b"POST / HTTP/1.1 x"),
        400,
        "Invalid request line: POST / HTTP/1.1 x",
    ),
    Case::refused_and_closed(
        "two blanks",
        |good| line(&good, b"POST  / HTTP/1.1"),
        400,
        "Invalid request line: POST  / HTTP/1.1",
    ),
    Case::refused_and_closed(
        "a blank at the end",
        |good| line(&good, b"POST / HTTP/1.1 "),
        400,
        "Invalid request line: POST / HTTP/1.1 ",
    ),
    Case::refused_and_closed(
        "a tab for a blank",
        |good| line(&good, b"POST\t/ HTTP/1.1"),
        400,
        r"Invalid request line: POST\t/ HTTP/1.1",
    ),
    Case::refused_and_closed(
        "a blank at the start",
        |good| line(&good, b" POST / HTTP/1.1"),
        400,
        "Invalid request line:  ",
    ),
    Case::refused_and_closed(
        "a version that is none",
        |good| good.version("FOO").bytes(),
        400,
        "Invalid request line: POST / FOO",
    ),
    Case::refused_and_closed(
        "HTTP/1.2",
        |good| good.version("HTTP/1.2").bytes(),
        400,
        "Invalid request line: POST / HTTP/1.2",
    ),
    Case::refused_and_closed(
        "HTTP/2.0",
        |good| good.version("HTTP/2.0").bytes(),
        400,
        "Invalid request line: POST / HTTP/2.0",
    ),
    Case::refused_and_closed(
        "http/1.1",
        |good| good.version("http/1.1").bytes(),
        400,
        "Invalid request line: POST / http/1.1",
    ),
    Case::refused_and_closed(
        "a method that is no token",
        |good| good.method("P(ST").bytes(),
        400,
        "Invalid request line: P(ST / HTTP/1.1",
    ),
    Case::refused_and_closed(
        "a fragment in the target",
        |good| good.target("/#a").bytes(),
        400,
        "Invalid request line: POST /#a HTTP/1.1",
    ),
    Case::refused_and_closed(
        "a target without a slash",
        |good| good.target("rpc").bytes(),
        400,
        "Invalid request line: POST rpc HTTP/1.1",
    ),
    Case::refused_and_closed(
        "another scheme",
        |good| good.target("https://a/").bytes(),
        400,
        "Invalid request line: POST https://a/ HTTP/1.1",
    ),
    Case::refused_and_closed(
        "an authority for a target",
        |good| good.target("a:80").bytes(),
        400,
        "Invalid request line: POST a:80 HTTP/1.1",
    ),
    Case::refused_and_closed(
        "a quote in the target",
        |good| good.target("/\"").bytes(),
        400,
        r#"Invalid request line: POST /\" HTTP/1.1"#,
    ),
    Case::refused_and_closed(
        "a letter beyond ASCII in the target",
        |good| good.target("/\u{e9}").bytes(),
        400,
        r"Invalid request line: POST /\u{e9} HTTP/1.1",
    ),
    Case::refused_and_closed(
        "a request line that is not UTF-8",
        |good| line(&good, b"POST /\xff HTTP/1.1"),
        400,
        "Invalid request encoding: invalid UTF-8 at byte 6",
    ),
    Case::refused(
        "a request line of 8192 bytes",
        |good| good.target(target_for(8192)).bytes(),
        404,
        NO_ROUTE,
    ),
    Case::refused_and_closed(
        "a request line of 8193 bytes",
        |good| good.target(target_for(8193)).bytes(),
        400,
        "Request line too long: 8193 > 8192",
    ),
    Case::refused_and_closed(
        "a request line of 100,000 bytes",
        |good| good.target(target_for(100_000)).bytes(),
        400,
        "Request line too long: 8193 > 8192",
    ),
    Case::refused_and_closed(
        "8193 bytes without a line end",
        |_| vec![b'A'; 8193],
        400,
        "Request line too long: 8193 > 8192",
    ),
    // How much of headers.
    Case::accepted("128 headers", |good| with_headers(good, 128).bytes()),
    Case::refused_and_closed(
        "129 headers",
        |good| with_headers(good, 129).bytes(),
        431,
        "Too many headers: exceeds limit of 128",
    ),
    Case::refused_and_closed(
        "200 headers of one name",
        |good| with_headers(good, 200).bytes(),
        431,
        "Too many headers: exceeds limit of 128",
    ),
    Case::accepted("a header name of 1024 bytes", |good| {
        good.header(format!("{}: b", "n".repeat(1024))).bytes()
    }),
    Case::refused_and_closed(
        "a header name of 1025 bytes",
        |good| good.header(format!("{}: b", "n".repeat(1025))).bytes(),
        431,
        "Header name too long: 1025 > 1024",
    ),
    Case::accepted("a header value of 8192 bytes", |good| {
        good.header(format!("A:  {} ", "v".repeat(8192))).bytes()
    }),
    Case::refused_and_closed(
        "a header value of 8193 bytes",
        |good| good.header(format!("A: {}", "v".repeat(8193))).bytes(),
        431,
        "Header value too long: 8193 > 8192",
    ),
    Case::accepted("headers of 32768 bytes", |good| with_header_bytes(good, 32_768).bytes()),
    Case::refused_and_closed(
        "headers of 32769 bytes",
        |good| with_header_bytes(good, 32_769).bytes(),
        431,
        "Total headers size exceeds limit: 32769 > 32768",
    ),
    Case::refused_and_closed(
        "a header line without an end",
        |good| endless_header(&good),
        431,
        "Total headers size exceeds limit: 32769 > 32768",
    ),
    // What headers may be.
    Case::refused_and_closed(
        "a header that is not UTF-8",
        |good| good.header(b"A: \xff").bytes(),
        400,
        "Invalid header encoding: invalid UTF-8 at byte 3",
    ),
    Case::refused_and_closed(
        "a header name that is not UTF-8",
        |good| good.header(b"\xe9: a").bytes(),
        400,
        "Invalid header encoding: invalid UTF-8 at byte 0",
    ),
    Case::refused_and_closed(
        "a header line without a colon",
        |good| good.header("nonsense").bytes(),
        400,
        "Invalid header line: no colon",
    ),
    Case::refused_and_closed("a header without a name", |good| good.header(": a").bytes(), 400, NO_TOKEN),
    Case::refused_and_closed(
        "a header name beyond ASCII",
        |good| good.header("\u{e9}: a").bytes(),
        400,
        NO_TOKEN,
    ),
    Case::refused_and_closed("a blank before the colon", |good| good.header("A : a").bytes(), 400, NO_TOKEN),
    Case::refused_and_closed(
        "a control character in a value",
        |good| good.header("A: a\u{1}").bytes(),
        400,
        CONTROL,
    ),
    Case::accepted("a tab in a value", |good| good.header("A: a\tb").bytes()),
    Case::accepted("a value without a blank before it", |good| good.header("A:a").bytes()),
    Case::accepted("a value that is empty", |good| good.header("A:").bytes()),
    Case::refused_and_closed(
        "no host",
        |good| good.without_header("Host").bytes(),
        400,
        "Missing Host header",
    ),
    Case::refused_and_closed(
        "two hosts",
        |good| good.header("Host: 127.0.0.1:1").bytes(),
        400,
        "Duplicate Host header",
    ),
    Case::refused_and_closed(
        "an expectation nobody knows",
        |good| good.header("Expect: a-miracle").bytes(),
        417,
        "Invalid Expect: only 100-continue is supported",
    ),
    Case::refused_and_closed(
        "a target of another host than the header's",
        |good| good.target("http://evil/").bytes(),
        400,
        "Request target and Host header disagree",
    ),
];

const NO_TOKEN: &str = "Invalid header line: the name is not a token";
const CONTROL: &str = "Invalid header line: control character in the value";

/// The good request with another request line.
fn line(good: &RequestBuilder, line: &[u8]) -> Vec<u8> {
    let bytes = good.bytes();
    let end = bytes.iter().position(|byte| *byte == b'\r').unwrap_or_default();
    [line, &bytes[end..]].concat()
}

/// A target that makes the request line this long, with its end.
fn target_for(line_bytes: usize) -> String {
    format!("/{}", "a".repeat(line_bytes - "POST / HTTP/1.1\r\n".len()))
}

fn with_headers(good: RequestBuilder, count: usize) -> RequestBuilder {
    (good.header_count()..count).fold(good, |ask, _| ask.header("A: a"))
}

fn with_header_bytes(mut good: RequestBuilder, bytes: usize) -> RequestBuilder {
    const LINE: usize = 4096;
    while bytes - good.header_bytes() > 2 * LINE {
        good = good.header(format!("A: {}", "v".repeat(LINE - "A: \r\n".len())));
    }
    let left = bytes - good.header_bytes();
    good.header(format!("A: {}", "v".repeat(left - "A: \r\n".len())))
}

fn endless_header(good: &RequestBuilder) -> Vec<u8> {
    let head = good.head();
    [&head[..head.len() - 2], b"A: ", &[b'v'; 40_000]].concat()
}
