//! Cases: malformed request heads, and heads on both sides of the size limits.

use testkit::http::{NO_ROUTE, RequestBuilder};

use super::Case;

pub(super) const CASES: &[Case] = &[
    // Timeouts and incomplete heads.
    Case::refused_and_closed("nothing sent, half-closed", |_| Vec::new(), 400, "Empty request").half_closed(),
    Case::refused_and_closed("nothing sent", |_| Vec::new(), 408, "Request timeout").with_short_timeouts(),
    Case::refused_and_closed("incomplete request line", |_| b"POST /".to_vec(), 408, "Header read timeout")
        .with_short_timeouts(),
    Case::refused_and_closed(
        "incomplete header line",
        |request| request.head()[..40].to_vec(),
        408,
        "Header read timeout",
    )
    .with_short_timeouts(),
    Case::refused_and_closed(
        "head without its last byte",
        |request| request.head().split_last().map_or_else(Vec::new, |(_, head)| head.to_vec()),
        408,
        "Header read timeout",
    )
    .with_short_timeouts(),
    Case::refused_and_closed(
        "incomplete head, half-closed",
        |request| request.head()[..40].to_vec(),
        400,
        "Incomplete request head",
    )
    .half_closed(),
    // The request line.
    Case::refused_and_closed(
        "empty request line",
        |request| with_request_line(&request, b""),
        400,
        "Invalid request line: ",
    ),
    Case::refused_and_closed(
        "one part",
        |request| with_request_line(&request, b"POST"),
        400,
        "Invalid request line: POST",
    ),
    Case::refused_and_closed(
        "two parts",
        |request| with_request_line(&request, b"POST /"),
        400,
        "Invalid request line: POST /",
    ),
    Case::refused_and_closed(
        "four parts",
        |request| with_request_line(&request, b"POST / HTTP/1.1 x"),
        400,
        "Invalid request line: POST / HTTP/1.1 x",
    ),
    Case::refused_and_closed(
        "two spaces",
        |request| with_request_line(&request, b"POST  / HTTP/1.1"),
        400,
        "Invalid request line: POST  / HTTP/1.1",
    ),
    Case::refused_and_closed(
        "trailing space",
        |request| with_request_line(&request, b"POST / HTTP/1.1 "),
        400,
        "Invalid request line: POST / HTTP/1.1 ",
    ),
    Case::refused_and_closed(
        "tab instead of a space",
        |request| with_request_line(&request, b"POST\t/ HTTP/1.1"),
        400,
        r"Invalid request line: POST\t/ HTTP/1.1",
    ),
    Case::refused_and_closed(
        "leading space",
        |request| with_request_line(&request, b" POST / HTTP/1.1"),
        400,
        "Invalid request line:  ",
    ),
    Case::refused_and_closed(
        "invalid version",
        |request| request.version("FOO").bytes(),
        400,
        "Invalid request line: POST / FOO",
    ),
    Case::refused_and_closed(
        "HTTP/1.2",
        |request| request.version("HTTP/1.2").bytes(),
        400,
        "Invalid request line: POST / HTTP/1.2",
    ),
    Case::refused_and_closed(
        "HTTP/2.0",
        |request| request.version("HTTP/2.0").bytes(),
        400,
        "Invalid request line: POST / HTTP/2.0",
    ),
    Case::refused_and_closed(
        "http/1.1",
        |request| request.version("http/1.1").bytes(),
        400,
        "Invalid request line: POST / http/1.1",
    ),
    Case::refused_and_closed(
        "method that is no token",
        |request| request.method("P(ST").bytes(),
        400,
        "Invalid request line: P(ST / HTTP/1.1",
    ),
    Case::refused_and_closed(
        "a fragment in the target",
        |request| request.target("/#a").bytes(),
        400,
        "Invalid request line: POST /#a HTTP/1.1",
    ),
    Case::refused_and_closed(
        "a target without a slash",
        |request| request.target("rpc").bytes(),
        400,
        "Invalid request line: POST rpc HTTP/1.1",
    ),
    Case::refused_and_closed(
        "https scheme",
        |request| request.target("https://a/").bytes(),
        400,
        "Invalid request line: POST https://a/ HTTP/1.1",
    ),
    Case::refused_and_closed(
        "authority as the target",
        |request| request.target("a:80").bytes(),
        400,
        "Invalid request line: POST a:80 HTTP/1.1",
    ),
    Case::refused_and_closed(
        "a quote in the target",
        |request| request.target("/\"").bytes(),
        400,
        r#"Invalid request line: POST /\" HTTP/1.1"#,
    ),
    Case::refused_and_closed(
        "non-ASCII letter in the target",
        |request| request.target("/\u{e9}").bytes(),
        400,
        r"Invalid request line: POST /\u{e9} HTTP/1.1",
    ),
    Case::refused_and_closed(
        "a request line that is not UTF-8",
        |request| with_request_line(&request, b"POST /\xff HTTP/1.1"),
        400,
        "Invalid request encoding: invalid UTF-8 at byte 6",
    ),
    Case::refused(
        "a request line of 8192 bytes",
        |request| request.target(target_for(8192)).bytes(),
        404,
        NO_ROUTE,
    ),
    Case::refused_and_closed(
        "a request line of 8193 bytes",
        |request| request.target(target_for(8193)).bytes(),
        400,
        "Request line too long: 8193 > 8192",
    ),
    Case::refused_and_closed(
        "a request line of 100,000 bytes",
        |request| request.target(target_for(100_000)).bytes(),
        400,
        "Request line too long: 8193 > 8192",
    ),
    Case::refused_and_closed(
        "8193 bytes without a line end",
        |_| vec![b'A'; 8193],
        400,
        "Request line too long: 8193 > 8192",
    ),
    // Limits on headers.
    Case::accepted("128 headers", |request| with_headers(request, 128).bytes()),
    Case::refused_and_closed(
        "129 headers",
        |request| with_headers(request, 129).bytes(),
        431,
        "Too many headers: exceeds limit of 128",
    ),
    Case::refused_and_closed(
        "200 headers of one name",
        |request| with_headers(request, 200).bytes(),
        431,
        "Too many headers: exceeds limit of 128",
    ),
    Case::accepted("a header name of 1024 bytes", |request| {
        request.header(format!("{}: b", "n".repeat(1024))).bytes()
    }),
    Case::refused_and_closed(
        "a header name of 1025 bytes",
        |request| request.header(format!("{}: b", "n".repeat(1025))).bytes(),
        431,
        "Header name too long: 1025 > 1024",
    ),
    Case::accepted("a header value of 8192 bytes", |request| {
        request.header(format!("A:  {} ", "v".repeat(8192))).bytes()
    }),
    Case::refused_and_closed(
        "a header value of 8193 bytes",
        |request| request.header(format!("A: {}", "v".repeat(8193))).bytes(),
        431,
        "Header value too long: 8193 > 8192",
    ),
    Case::accepted("headers of 32768 bytes", |request| with_header_bytes(request, 32_768).bytes()),
    Case::refused_and_closed(
        "headers of 32769 bytes",
        |request| with_header_bytes(request, 32_769).bytes(),
        431,
        "Total headers size exceeds limit: 32769 > 32768",
    ),
    Case::refused_and_closed(
        "endless header line",
        |request| endless_header(&request),
        431,
        "Total headers size exceeds limit: 32769 > 32768",
    ),
    // Syntax of headers.
    Case::refused_and_closed(
        "a header that is not UTF-8",
        |request| request.header(b"A: \xff").bytes(),
        400,
        "Invalid header encoding: invalid UTF-8 at byte 3",
    ),
    Case::refused_and_closed(
        "a header name that is not UTF-8",
        |request| request.header(b"\xe9: a").bytes(),
        400,
        "Invalid header encoding: invalid UTF-8 at byte 0",
    ),
    Case::refused_and_closed(
        "a header line without a colon",
        |request| request.header("nonsense").bytes(),
        400,
        "Invalid header line: no colon",
    ),
    Case::refused_and_closed(
        "a header without a name",
        |request| request.header(": a").bytes(),
        400,
        NO_TOKEN,
    ),
    Case::refused_and_closed(
        "non-ASCII header name",
        |request| request.header("\u{e9}: a").bytes(),
        400,
        NO_TOKEN,
    ),
    Case::refused_and_closed(
        "space before the colon",
        |request| request.header("A : a").bytes(),
        400,
        NO_TOKEN,
    ),
    Case::refused_and_closed(
        "a control character in a value",
        |request| request.header("A: a\u{1}").bytes(),
        400,
        CONTROL,
    ),
    Case::accepted("a tab in a value", |request| request.header("A: a\tb").bytes()),
    Case::accepted("value without a leading space", |request| request.header("A:a").bytes()),
    Case::accepted("empty value", |request| request.header("A:").bytes()),
    Case::refused_and_closed(
        "no Host",
        |request| request.without_header("Host").bytes(),
        400,
        "Missing Host header",
    ),
    Case::refused_and_closed(
        "two Host headers",
        |request| request.header("Host: 127.0.0.1:1").bytes(),
        400,
        "Duplicate Host header",
    ),
    Case::refused_and_closed(
        "unknown expectation",
        |request| request.header("Expect: a-miracle").bytes(),
        417,
        "Invalid Expect: only 100-continue is supported",
    ),
    Case::refused_and_closed(
        "target and Host disagree",
        |request| request.target("http://evil/").bytes(),
        400,
        "Request target and Host header disagree",
    ),
];

const NO_TOKEN: &str = "Invalid header line: the name is not a token";
const CONTROL: &str = "Invalid header line: control character in the value";

/// Replaces the request line of a request.
fn with_request_line(request: &RequestBuilder, line: &[u8]) -> Vec<u8> {
    let bytes = request.bytes();
    let end = bytes.iter().position(|byte| *byte == b'\r').unwrap_or_default();
    [line, &bytes[end..]].concat()
}

/// A target that makes the request line this long, including CR LF.
fn target_for(line_bytes: usize) -> String {
    format!("/{}", "a".repeat(line_bytes - "POST / HTTP/1.1\r\n".len()))
}

fn with_headers(request: RequestBuilder, count: usize) -> RequestBuilder {
    (request.header_count()..count).fold(request, |request, _| request.header("A: a"))
}

fn with_header_bytes(mut request: RequestBuilder, bytes: usize) -> RequestBuilder {
    const LINE: usize = 4096;
    while bytes - request.header_bytes() > 2 * LINE {
        request = request.header(format!("A: {}", "v".repeat(LINE - "A: \r\n".len())));
    }
    let missing = bytes - request.header_bytes();
    request.header(format!("A: {}", "v".repeat(missing - "A: \r\n".len())))
}

fn endless_header(request: &RequestBuilder) -> Vec<u8> {
    let head = request.head();
    [&head[..head.len() - 2], b"A: ", &[b'v'; 40_000]].concat()
}
