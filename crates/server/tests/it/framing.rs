//! Request smuggling: requests with ambiguous framing. Each is followed by a second request, which must never run: a
//! proxy in front of the daemon may have taken it for a body.

use testkit::http::{LIST_AGENTS, RequestBuilder, agents, assert_refused, assert_result, request_once};

use crate::fixture::{TestDoor, door};

const NO_CODING: &str = "Invalid Transfer-Encoding: only chunked is supported";
const BOTH: &str = "Content-Length and Transfer-Encoding in one request";
const NO_TOKEN: &str = "Invalid header line: the name is not a token";
const CONTROL: &str = "Invalid header line: control character in the value";

/// Header lines that replace the valid Content-Length, with the message of the refusal.
const LENGTHS: [(&[&str], &str); 40] = [
    (&["Content-Length: 5", "Transfer-Encoding: chunked"], BOTH),
    (&["Transfer-Encoding: chunked", "Content-Length: 5"], BOTH),
    (&["Transfer-Encoding: chunked", "Content-Length: 0"], BOTH),
    (&["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"], NO_CODING),
    (&["Transfer-Encoding: chunked", "Transfer-Encoding: identity"], NO_CODING),
    (&["Transfer-Encoding: identity", "Transfer-Encoding: chunked"], NO_CODING),
    (&["Transfer-Encoding: chunked, chunked"], NO_CODING),
    (&["Transfer-Encoding: gzip, chunked"], NO_CODING),
    (&["Transfer-Encoding: chunked, identity"], NO_CODING),
    (&["Transfer-Encoding: identity"], NO_CODING),
    (&["Transfer-Encoding: identity", "Content-Length: 5"], NO_CODING),
    (&["Transfer-Encoding: gzip"], NO_CODING),
    (&["Transfer-Encoding: xchunked"], NO_CODING),
    (&["Transfer-Encoding: chunkedx"], NO_CODING),
    (&["Transfer-Encoding: \"chunked\""], NO_CODING),
    (&["Transfer-Encoding: chunked;a=b"], NO_CODING),
    (&["Transfer-Encoding: ,chunked"], NO_CODING),
    (&["Transfer-Encoding:"], NO_CODING),
    (&["Transfer-Encoding: \u{b}chunked"], CONTROL),
    (&["Transfer-Encoding: chunked\0"], CONTROL),
    (&["Transfer-Encoding: chun\rked"], CONTROL),
    (&["Transfer-Encoding : chunked"], NO_TOKEN),
    (&["Transfer-Encoding\t: chunked"], NO_TOKEN),
    (&[" Transfer-Encoding: chunked"], NO_TOKEN),
    (&["Transfer-Encoding:", " chunked"], NO_CODING),
    (&["A: b", "\tTransfer-Encoding: chunked"], NO_TOKEN),
    (&["Content-Length: 5", "Content-Length: 5"], "Invalid Content-Length: 5"),
    (&["Content-Length: 5", "Content-Length: 6"], "Invalid Content-Length: 6"),
    (&["Content-Length: 0", "content-length: 47"], "Invalid Content-Length: 47"),
    (&["Content-Length: 37,37"], "Invalid Content-Length: 37,37"),
    (&["Content-Length: 37, 37"], "Invalid Content-Length: 37, 37"),
    (&["Content-Length: +37"], "Invalid Content-Length: +37"),
    (&["Content-Length: -0"], "Invalid Content-Length: -0"),
    (&["Content-Length: 0x10"], "Invalid Content-Length: 0x10"),
    (&["Content-Length: 1e1"], "Invalid Content-Length: 1e1"),
    (&["Content-Length: 5.0"], "Invalid Content-Length: 5.0"),
    (&["Content-Length: 3 7"], "Invalid Content-Length: 3 7"),
    (&["Content-Length: \u{665}"], r"Invalid Content-Length: \u{665}"),
    (&["Content-Length : 5"], NO_TOKEN),
    (&["Content-Length: 5\0"], CONTROL),
];

/// Bodies with invalid chunk framing; BODY stands for a valid body of 47 bytes.
const CHUNKS: [&str; 29] = [
    "zz\r\nBODY\r\n0\r\n\r\n",
    "\r\nBODY\r\n0\r\n\r\n",
    "-2f\r\nBODY\r\n0\r\n\r\n",
    "+2f\r\nBODY\r\n0\r\n\r\n",
    "0x2f\r\nBODY\r\n0\r\n\r\n",
    " 2f\r\nBODY\r\n0\r\n\r\n",
    "2 f\r\nBODY\r\n0\r\n\r\n",
    "2f,2f\r\nBODY\r\n0\r\n\r\n",
    "2f\nBODY\r\n0\r\n\r\n",
    "2f\rBODY\r\n0\r\n\r\n",
    "2f\r\rBODY\r\n0\r\n\r\n",
    "2f\0\r\nBODY\r\n0\r\n\r\n",
    "2f\u{e9}\r\nBODY\r\n0\r\n\r\n",
    "10000000000000000\r\nBODY\r\n0\r\n\r\n",
    "fffffffffffffffff\r\nBODY\r\n0\r\n\r\n",
    "1000000000000002f\r\nBODY\r\n0\r\n\r\n",
    "2e\r\nBODY\r\n0\r\n\r\n",
    "2f\r\nBODYXX0\r\n\r\n",
    "2f\r\nBODY\n0\r\n\r\n",
    "2f\r\nBODY0\r\n\r\n",
    "2f\r\nBODY\rX0\r\n\r\n",
    "2f\r\nBODY\r\n\r\n0\r\n\r\n",
    "2f;a\nb\r\nBODY\r\n0\r\n\r\n",
    "2f;a\rb\r\nBODY\r\n0\r\n\r\n",
    "2f\r\nBODY\r\n0\n\r\n",
    "2f\r\nBODY\r\n0\r\nX\r\n",
    "2f\r\nBODY\r\n0\r\nbad trailer\r\n\r\n",
    "2f\r\nBODY\r\n0\r\nA : b\r\n\r\n",
    "2f\r\nBODY\r\n0\r\n A: b\r\n\r\n",
];

/// Bodies with unusual but valid chunk framing.
const ODD_CHUNKS: [&str; 8] = [
    "2F\r\nBODY\r\n0\r\n\r\n",
    "0000000000002f\r\nBODY\r\n0\r\n\r\n",
    "2f\r\nBODY\r\n000\r\n\r\n",
    "2f;a=b\r\nBODY\r\n0\r\n\r\n",
    "2f;a=\"b;c\";d\r\nBODY\r\n0;e\r\n\r\n",
    "2f\r\nBODY\r\n0\r\nA: b\r\n\r\n",
    "2f\r\nBODY\r\n0\r\nContent-Length: 5\r\nHost: evil.example\r\n\r\n",
    "2f\r\nBODY\r\n0\r\nTransfer-Encoding: chunked\r\nAuthorization: Bearer x\r\n\r\n",
];

/// A request followed by a hidden second one: directly, and after the last chunk of a chunked body.
fn smuggled_requests(door: &TestDoor, first: &[u8]) -> [Vec<u8>; 2] {
    let hidden = RequestBuilder::create_agent(door, "hidden").bytes();
    [[first, &hidden].concat(), [first, b"0\r\n\r\n", &hidden].concat()]
}

#[test]
fn ambiguous_length_is_refused_and_nothing_after_it_runs() {
    let door = door().open();
    for (lines, message) in LENGTHS {
        let valid = RequestBuilder::valid(&door).without_header("Content-Length");
        let head = lines.iter().fold(valid, RequestBuilder::header).head();
        for bytes in smuggled_requests(&door, &head) {
            let response = request_once(&format!("{lines:?}"), &door, &bytes);
            assert_refused(&format!("{lines:?}"), &response, 400, message);
        }
    }
    let http_1_0 = RequestBuilder::valid(&door).version("HTTP/1.0").header("Connection: keep-alive");
    let http_1_0 = http_1_0.chunks([LIST_AGENTS.as_bytes()]).bytes();
    for bytes in smuggled_requests(&door, &http_1_0) {
        let response = request_once("HTTP/1.0", &door, &bytes);
        assert_refused("HTTP/1.0", &response, 400, "Transfer-Encoding in an HTTP/1.0 request");
    }
    assert!(agents(&door).is_empty());
}

#[test]
fn invalid_chunks_are_refused_and_nothing_after_them_runs() {
    let door = door().open();
    for body in CHUNKS {
        let first = RequestBuilder::valid(&door).framed(body.replace("BODY", LIST_AGENTS)).bytes();
        for bytes in smuggled_requests(&door, &first) {
            let name = body.escape_debug().to_string();
            let response = request_once(&name, &door, &bytes);
            assert_refused(&name, &response, 400, "Invalid chunked body");
        }
    }
    assert!(agents(&door).is_empty());
}

#[test]
fn unusual_chunks_are_accepted_and_close_the_connection() {
    let door = door().open();
    for body in ODD_CHUNKS {
        let first = RequestBuilder::valid(&door).framed(body.replace("BODY", LIST_AGENTS)).bytes();
        for bytes in smuggled_requests(&door, &first) {
            let name = body.escape_debug().to_string();
            let response = request_once(&name, &door, &bytes);
            assert_result(&name, &response);
            assert_eq!(response.header("connection"), Some("close"), "{name}");
        }
    }
    assert!(agents(&door).is_empty());
}

#[test]
fn trailer_with_bare_line_feeds_hides_no_request() {
    let door = door().open();
    // Hyper accepts bare line feeds here. That is harmless: the server closes the connection after a chunked body.
    for end in ["0\r\n\n", "0\r\nA: b\n\n", "0\r\nA: b\r\n\n"] {
        let first = RequestBuilder::valid(&door).framed(format!("2f\r\n{LIST_AGENTS}\r\n{end}")).bytes();
        for bytes in smuggled_requests(&door, &first) {
            let response = request_once(end, &door, &bytes);
            assert!([200, 400].contains(&response.status), "{}", response.status);
        }
    }
    assert!(agents(&door).is_empty());
}

#[test]
fn request_inside_a_body_never_runs() {
    let door = door().open();
    let hidden = RequestBuilder::create_agent(&door, "hidden").bytes();
    // The declared length makes these bytes a body, although they look like a request.
    let wrapped = RequestBuilder::valid(&door).body(&hidden).bytes();
    assert_eq!(door.send_raw(&wrapped).status, 400);
    for method in ["GET", "HEAD", "OPTIONS", "DELETE"] {
        let request = RequestBuilder::valid(&door).method(method).body(&hidden);
        assert_eq!(door.send_raw(&request.bytes()).status, 405, "{method}");
        let chunked = RequestBuilder::valid(&door).method(method).chunks([&hidden[..]]);
        assert_eq!(door.send_raw(&chunked.bytes()).status, 405, "{method}, chunked");
    }
    assert!(agents(&door).is_empty());
}
