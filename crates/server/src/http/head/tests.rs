//! Tests of the head parser: every refusal, every limit from both sides, all splits of the input, and random bytes.

use testkit::TestRng;

use super::*;

fn parse(bytes: impl AsRef<[u8]>) -> HeadVerdict {
    HeadParser::default().parse(bytes.as_ref(), &HttpLimits::default())
}

/// Joins lines to a head.
fn head(lines: &[&str]) -> String {
    lines.iter().map(|line| format!("{line}\r\n")).collect::<String>() + "\r\n"
}

/// A valid head with additional lines.
fn head_with(lines: &[&str]) -> String {
    head(&[&["POST / HTTP/1.1", "Host: a"], lines].concat())
}

fn complete(head: &str, framing: Framing) -> HeadVerdict {
    HeadVerdict::Complete { head_bytes: head.len(), framing }
}

#[track_caller]
fn assert_refused(bytes: impl AsRef<[u8]>, status: u16, message: &str) {
    let bytes = bytes.as_ref();
    let name = bytes[..bytes.len().min(80)].escape_ascii();
    match parse(bytes) {
        HeadVerdict::Refused(refusal) => {
            assert_eq!((refusal.status.as_u16(), &*refusal.message), (status, message), "{name}");
            assert!(refusal.closes_connection, "{name}: the connection must close");
        }
        verdict => panic!("{name}: {verdict:?}"),
    }
}

#[test]
fn a_valid_head_determines_the_framing_of_the_body() {
    let cases: [(&[&str], Framing); 9] = [
        (&[], Framing::Length(0)),
        (&["Content-Length: 0"], Framing::Length(0)),
        (&["Content-Length: 47"], Framing::Length(47)),
        (&["content-length:\t0047 "], Framing::Length(47)),
        (&["Content-Length: 1048576"], Framing::Length(1_048_576)),
        (&["Transfer-Encoding: chunked"], Framing::Chunked),
        (&["TRANSFER-ENCODING: Chunked "], Framing::Chunked),
        (&["Expect: 100-Continue", "Content-Length: 1"], Framing::Length(1)),
        (&["X-Content-Length: a", "A:", "B: \u{e9}\t\u{1f600}"], Framing::Length(0)),
    ];
    for (lines, framing) in cases {
        let head = head_with(lines);
        assert_eq!(parse(&head), complete(&head, framing), "{lines:?}");
        // Bytes after the head are not parsed.
        let with_body = [head.as_bytes(), b"\0\xff\n\n"].concat();
        assert_eq!(parse(with_body), complete(&head, framing), "{lines:?} and a body");
    }
    let old = head(&["GET /a?b HTTP/1.0"]);
    assert_eq!(parse(&old), complete(&old, Framing::Length(0)), "HTTP/1.0 needs no host");
}

#[test]
fn targets_have_one_of_three_forms() {
    for valid in
        ["/", "/rpc", "/agent/a.b_c-1", "/?a=b&c=%20", "*", "http://a/", "http://a:1/b?c", "//a", "/a:b@c"]
    {
        let head = head(&[&format!("POST {valid} HTTP/1.1"), "Host: a"]);
        assert_eq!(parse(&head), complete(&head, Framing::Length(0)), "{valid}");
    }
    for invalid in [
        "a",
        "a:80",
        "https://a/",
        "ftp://a/",
        "http://",
        "http:///",
        "**",
        "/#a",
        "/a|b",
        "/{a}",
        "/a^b",
        "?a",
    ] {
        let head = head(&[&format!("POST {invalid} HTTP/1.1"), "Host: a"]);
        assert_refused(head, 400, &format!("Invalid request line: POST {invalid} HTTP/1.1"));
    }
}

#[test]
fn a_request_line_is_method_target_and_version() {
    let cases: [(&[u8], &str); 21] = [
        (b"", ""),
        (b"POST", "POST"),
        (b"POST /", "POST /"),
        (b"POST / ", "POST / "),
        (b"POST / HTTP/1.1 ", "POST / HTTP/1.1 "),
        (b"POST / HTTP/1.1 x", "POST / HTTP/1.1 x"),
        (b"POST  / HTTP/1.1", "POST  / HTTP/1.1"),
        (b"POST\t/\tHTTP/1.1", "POST\\t/\\tHTTP/1.1"),
        (b"P:ST / HTTP/1.1", "P:ST / HTTP/1.1"),
        (b"POST / http/1.1", "POST / http/1.1"),
        (b"POST / HTTP/1.2", "POST / HTTP/1.2"),
        (b"POST / HTTP/2", "POST / HTTP/2"),
        (b"POST / HTTP/1.1\r", "POST / HTTP/1.1\\r"),
        (b"POST /\0 HTTP/1.1", "POST /\\u{0} HTTP/1.1"),
        (b"POST /\x7f HTTP/1.1", "POST /\\u{7f} HTTP/1.1"),
        (b"POST /\xc3\xa9 HTTP/1.1", "POST /\\u{e9} HTTP/1.1"),
        // Input that cannot be HTTP is rejected at its first byte.
        (b" POST / HTTP/1.1", " "),
        (b"\0POST / HTTP/1.1", "\\u{0}"),
        (b"\x16\x03\x01", "\\u{16}"),
        (b"{\"jsonrpc\"", "{"),
        (b"(", "("),
    ];
    for (line, shown) in cases {
        let message = format!("Invalid request line: {shown}");
        assert_refused([line, b"\r\nHost: a\r\n\r\n"].concat(), 400, &message);
    }
    assert_refused(b"POST /\xff HTTP/1.1\r\n", 400, "Invalid request encoding: invalid UTF-8 at byte 6");
    assert_refused(b"\xffPOST", 400, "Invalid request encoding: invalid UTF-8 at byte 0");
    let long = format!("POST {} HTTP/1.1\r\n", "a".repeat(1000));
    assert_refused(long, 400, &format!("Invalid request line: POST {}", "a".repeat(95)));
}

#[test]
fn lines_must_end_with_cr_lf() {
    let message = "Invalid line ending: lines end with CR LF";
    for bytes in
        ["\n", "POST / HTTP/1.1\n", "POST / HTTP/1.1\r\nHost: a\n", "POST / HTTP/1.1\r\nHost: a\r\n\n"]
    {
        assert_refused(bytes, 400, message);
    }
}

#[test]
fn header_lines_must_be_a_name_and_a_value() {
    let token = "Invalid header line: the name is not a token";
    let control = "Invalid header line: control character in the value";
    let cases = [
        ("nonsense", "Invalid header line: no colon"),
        (" folded", "Invalid header line: no colon"),
        (" A: b", token),
        ("\tA: b", token),
        ("A : b", token),
        (": b", token),
        ("A\0: b", token),
        ("A\r: b", token),
        ("A B: c", token),
        ("\"A\": b", token),
        ("\u{e9}: b", token),
        ("A: b\0", control),
        ("A: b\rc", control),
        ("A: \u{1b}[0m", control),
        ("A: \u{7f}", control),
        ("A: b\u{b}", control),
    ];
    for (line, message) in cases {
        assert_refused(head_with(&[line]), 400, message);
    }
    for (line, at) in [(&b"A: \xff"[..], 3), (b"\xff: a", 0), (b"A: \xc3", 3), (b"A: \xed\xa0\x80", 3)] {
        let head = [b"POST / HTTP/1.1\r\n", line, b"\r\n"].concat();
        assert_refused(head, 400, &format!("Invalid header encoding: invalid UTF-8 at byte {at}"));
    }
}

#[test]
fn exactly_one_host_header_is_required() {
    assert_refused(head(&["POST / HTTP/1.1"]), 400, "Missing Host header");
    assert_refused(head_with(&["Host: a"]), 400, "Duplicate Host header");
    assert_refused(head_with(&["host:"]), 400, "Duplicate Host header");
    assert_refused(head(&["POST / HTTP/1.0", "Host: a", "Host: a"]), 400, "Duplicate Host header");
}

#[test]
fn ambiguous_or_invalid_framing_is_rejected() {
    for invalid in [
        "",
        "a",
        "+1",
        "-1",
        "1 1",
        "1,1",
        "1, 1",
        "0x1",
        "1.0",
        "1e1",
        "1_0",
        "\u{661}",
        "18446744073709551616",
    ] {
        let shown: String = invalid.chars().flat_map(char::escape_default).collect();
        assert_refused(
            head_with(&[&format!("Content-Length: {invalid}")]),
            400,
            &format!("Invalid Content-Length: {shown}"),
        );
    }
    assert_refused(head_with(&["Content-Length: 1", "Content-Length: 1"]), 400, "Invalid Content-Length: 1");
    let long = head_with(&[&format!("Content-Length: {}", "z".repeat(100))]);
    assert_refused(long, 400, &format!("Invalid Content-Length: {}", "z".repeat(32)));
    let coding = "Invalid Transfer-Encoding: only chunked is supported";
    for invalid in
        ["", "identity", "gzip", "gzip, chunked", "chunked, chunked", "chunked;a", "xchunked", "chunked,"]
    {
        assert_refused(head_with(&[&format!("Transfer-Encoding: {invalid}")]), 400, coding);
    }
    assert_refused(head_with(&["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"]), 400, coding);
    let both = "Content-Length and Transfer-Encoding in one request";
    assert_refused(head_with(&["Transfer-Encoding: chunked", "Content-Length: 0"]), 400, both);
    assert_refused(head_with(&["Content-Length: 0", "Transfer-Encoding: chunked"]), 400, both);
    let old = head(&["POST / HTTP/1.0", "Transfer-Encoding: chunked"]);
    assert_refused(old, 400, "Transfer-Encoding in an HTTP/1.0 request");
    assert_refused(head_with(&["Expect: x"]), 417, "Invalid Expect: only 100-continue is supported");
}

#[test]
fn every_limit_is_exact() {
    let (n, v) = (|count| "n".repeat(count), |count| "v".repeat(count));
    let line = |bytes: usize| format!("POST /{} HTTP/1.1", n(bytes - "POST / HTTP/1.1\r\n".len()));
    let longest_line = head(&[&line(8192), "Host: a"]);
    assert_eq!(parse(&longest_line), complete(&longest_line, Framing::Length(0)));
    assert_refused(head(&[&line(8193), "Host: a"]), 400, "Request line too long: 8193 > 8192");
    assert_refused(head(&[&line(20_000), "Host: a"]), 400, "Request line too long: 8193 > 8192");
    assert_eq!(parse(n(8192)), HeadVerdict::Incomplete);
    assert_refused(n(8193), 400, "Request line too long: 8193 > 8192");

    let passes = [
        head_with(&[&format!("{}: a", n(1024))]),
        head_with(&[&format!("A: {}", v(8192))]),
        head_with(&[&format!("A:  {}\t", v(8192))]),
        head_with(&["A: b"; 127]),
        head_of_size(32_768),
    ];
    for head in passes {
        assert_eq!(parse(&head), complete(&head, Framing::Length(0)));
    }
    assert_refused(head_with(&[&format!("{}: a", n(1025))]), 431, "Header name too long: 1025 > 1024");
    assert_refused(head_with(&[&format!("A: {}", v(8193))]), 431, "Header value too long: 8193 > 8192");
    assert_refused(head_with(&["A: b"; 128]), 431, "Too many headers: exceeds limit of 128");
    assert_refused(head_of_size(32_769), 431, "Total headers size exceeds limit: 32769 > 32768");
    assert_refused(head_of_size(60_000), 431, "Total headers size exceeds limit: 32769 > 32768");
    assert_refused(head_with(&["Content-Length: 1048577"]), 413, "Request body too large: 1048577 > 1048576");
    let max = "Request body too large: 18446744073709551615 > 1048576";
    assert_refused(head_with(&["Content-Length: 18446744073709551615"]), 413, max);
}

/// A valid head whose header lines have this many bytes.
fn head_of_size(bytes: usize) -> String {
    let full = format!("A: {}", "v".repeat(4091));
    let host = "Host: a\r\n".len();
    let count = (bytes - host) / 4096 - 1;
    let last = format!("A: {}", "v".repeat(bytes - host - count * 4096 - "A: \r\n".len()));
    let mut lines = vec![full.as_str(); count];
    lines.push(&last);
    head_with(&lines)
}

#[test]
fn the_parser_uses_the_configured_limits() {
    let limits = HttpLimits { headers_max: 1, request_line_bytes_max: 17, ..HttpLimits::default() };
    let valid = head(&["POST / HTTP/1.1", "Host: a"]);
    assert_eq!(HeadParser::default().parse(valid.as_bytes(), &limits), complete(&valid, Framing::Length(0)));
    for invalid in [head_with(&["A: b"]), head(&["POST /a HTTP/1.1", "Host: a"])] {
        assert!(
            matches!(HeadParser::default().parse(invalid.as_bytes(), &limits), HeadVerdict::Refused(_)),
            "{invalid}"
        );
    }
}

/// Parses a head in pieces; returns the verdict and the number of bytes needed for it.
fn parse_in_pieces(bytes: &[u8], mut next_cut: impl FnMut(usize) -> usize) -> (HeadVerdict, usize) {
    let (mut parser, limits) = (HeadParser::default(), HttpLimits::default());
    let mut end = 0;
    while end < bytes.len() {
        end = next_cut(end).min(bytes.len());
        match parser.parse(&bytes[..end], &limits) {
            HeadVerdict::Incomplete => {}
            verdict => return (verdict, end),
        }
    }
    (HeadVerdict::Incomplete, end)
}

#[test]
fn a_head_is_incomplete_up_to_its_last_byte() {
    let heads = [
        head_with(&[]),
        head_with(&["Content-Length: 47", "A: b"]),
        head_with(&["Transfer-Encoding: chunked"]),
    ];
    for head in heads {
        for end in 0..head.len() {
            assert_eq!(parse(&head[..end]), HeadVerdict::Incomplete, "{}", &head[..end]);
        }
        let (verdict, end) = parse_in_pieces(head.as_bytes(), |end| end + 1);
        assert_eq!(end, head.len());
        assert_eq!(verdict, parse(&head));
    }
}

#[test]
fn splitting_a_head_does_not_change_its_verdict() {
    let heads = [
        head_with(&["Content-Length: 47"]),
        head_with(&["A : b"]),
        head_with(&["A: b\n"]),
        head_with(&["A: b"; 200]),
        head_of_size(32_768),
        head_of_size(32_769),
        format!("POST /{} HTTP/1.1\n", "a".repeat(9000)),
        format!("POST / HTTP/1.1\r\nA: {}\n", "v".repeat(40_000)),
        format!("POST / HTTP/1.1\r\n{}\r\n", "\r\r".repeat(20_000)),
        "\x16\x03\x01 / HTTP/1.1\r\n\r\n".to_owned(),
    ];
    for head in heads {
        let bytes = head.as_bytes();
        let unsplit = parse(bytes);
        assert_ne!(unsplit, HeadVerdict::Incomplete);
        for size in [1, 2, 3, 1000, 8192] {
            let (verdict, _) = parse_in_pieces(bytes, |end| end + size);
            assert_eq!(verdict, unsplit, "pieces of {size}");
        }
        for cut in (1..bytes.len()).rev().take(50) {
            let (verdict, _) = parse_in_pieces(bytes, |end| if end == 0 { cut } else { bytes.len() });
            assert_eq!(verdict, unsplit, "cut at {cut}");
        }
    }
}

#[test]
fn a_parser_can_be_reused_for_the_next_head() {
    let (mut parser, limits) = (HeadParser::default(), HttpLimits::default());
    let (valid, invalid) = (head_with(&["Content-Length: 1"]), head_with(&["A : b"]));
    for _ in 0..3 {
        assert_eq!(parser.parse(&valid.as_bytes()[..20], &limits), HeadVerdict::Incomplete);
        assert_eq!(parser.parse(valid.as_bytes(), &limits), complete(&valid, Framing::Length(1)));
        assert!(matches!(parser.parse(invalid.as_bytes(), &limits), HeadVerdict::Refused(_)));
    }
}

/// Valid and invalid fragments of heads.
const PIECES: [&[u8]; 30] = [
    b"POST / HTTP/1.1\r\n",
    b"GET * HTTP/1.0\r\n",
    b"Host: a\r\n",
    b"Content-Length: 1\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Expect: 100-continue\r\n",
    b"A: b\r\n",
    b"POST ",
    b"/",
    b" HTTP/1.1",
    b"Host",
    b"Content-Length",
    b": ",
    b"\r\n",
    b"\r\n\r\n",
    b"\r",
    b"\n",
    b" ",
    b"\t",
    b"\0",
    b"\x7f",
    b"\xff",
    b"\xc3\xa9",
    b"http://a",
    b"0",
    b"99999999999",
    b",",
    b"%",
    b"?",
    b"#",
];

#[test]
fn random_bytes_never_panic_or_change_with_splitting() {
    let mut rng = TestRng::new(0x5eed_1234_5678_9abc);
    let mut counts = [0; 3];
    for round in 0..20_000 {
        let mut bytes = if round % 2 == 0 { b"POST / HTTP/1.1\r\nHost: a\r\n".to_vec() } else { Vec::new() };
        for _ in 0..rng.below(24) {
            match rng.below(8) {
                0 => bytes.push(rng.below(256).try_into().unwrap()),
                _ => bytes.extend_from_slice(rng.pick::<&[u8]>(&PIECES)),
            }
        }
        let unsplit = parse(&bytes);
        let (split, _) = parse_in_pieces(&bytes, |end| end + 1 + rng.below(9));
        assert_eq!(split, unsplit, "round {round}: {}", bytes.escape_ascii());
        let kind = match unsplit {
            HeadVerdict::Incomplete => 0,
            HeadVerdict::Complete { head_bytes, .. } => {
                assert!(bytes[..head_bytes].ends_with(b"\r\n\r\n"), "round {round}");
                1
            }
            HeadVerdict::Refused(_) => 2,
        };
        counts[kind] += 1;
    }
    assert!(counts.iter().all(|count| *count > 500), "each verdict must occur often: {counts:?}");
}
