//! Responses without end, bombs, and requests that would break the framing.

use std::io::Write as _;
use std::time::Duration;

use agent::ToolOutcome;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use serde_json::{Value, json};
use testkit::{HttpPeer, PeerAction, http_response};
use tools::NetworkLimits;

use super::Client;

fn limits() -> NetworkLimits {
    NetworkLimits {
        total_timeout: Duration::from_millis(600),
        idle_timeout: Duration::from_millis(200),
        wire_bytes_max: 64 << 10,
        body_bytes_max: 128 << 10,
        ..NetworkLimits::default()
    }
}

async fn fetch(limits: NetworkLimits, actions: Vec<PeerAction>) -> ToolOutcome {
    let peer = HttpPeer::with_actions(actions);
    let client = Client::with_limits(&["one.test"], limits);
    client.get(&format!("http://one.test:{}/", peer.port())).await
}

#[track_caller]
fn assert_failed(outcome: &ToolOutcome, text: &str) {
    assert!(matches!(outcome, ToolOutcome::Failed(found) if found.contains(text)), "{text}: {outcome:?}");
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn threat_101_bodies_are_bounded_on_the_wire() {
    let large = vec![b'x'; 200 << 10];
    let declared = fetch(limits(), vec![PeerAction::Write(http_response("200 OK", "", &large))]).await;
    assert_failed(&declared, "the response is larger than 65536 bytes");
    // Without a length, and without an end.
    let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    let chunk = [b"8000\r\n".to_vec(), vec![b'x'; 0x8000], b"\r\n".to_vec()].concat();
    let mut actions = vec![PeerAction::Write(head)];
    actions.extend(std::iter::repeat_n(PeerAction::Write(chunk), 100));
    actions.push(PeerAction::Hold);
    assert_failed(&fetch(limits(), actions).await, "the response is larger than 65536 bytes");
}

#[tokio::test]
async fn threat_101_heads_are_bounded() {
    let mut many = "HTTP/1.1 200 OK\r\n".to_owned();
    many.extend((0..1_000).map(|number| format!("X-{number}: y\r\n")));
    let one = format!("HTTP/1.1 200 OK\r\nX: {}\r\n", "y".repeat(1 << 20));
    for head in [many, one] {
        let outcome = fetch(limits(), vec![PeerAction::Write(head.into_bytes()), PeerAction::Hold]).await;
        assert_failed(&outcome, "the request failed");
    }
    // Informational responses without end.
    let endless = vec![PeerAction::Write(b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n".repeat(20_000)); 2];
    assert!(matches!(fetch(limits(), endless).await, ToolOutcome::Failed(_)));
}

#[tokio::test]
async fn threat_101_slow_and_silent_bodies_end_in_time() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n".to_vec();
    let silent = vec![PeerAction::Write(head.clone()), PeerAction::Hold];
    assert_failed(&fetch(limits(), silent).await, "the response stalled for 0.2 seconds");
    let mut trickle = vec![PeerAction::Write(head)];
    for _ in 0..100 {
        trickle.extend([PeerAction::Write(b"x".to_vec()), PeerAction::Wait(Duration::from_millis(50))]);
    }
    assert_failed(&fetch(limits(), trickle).await, "no complete response within 0.6 seconds");
    assert_failed(&fetch(limits(), vec![PeerAction::Hold]).await, "no complete response within 0.6 seconds");
}

#[tokio::test]
async fn threat_101_decompressed_bodies_are_bounded() {
    let bomb = vec![0; 64 << 20];
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::best());
    zlib.write_all(&bomb).unwrap();
    let bombs = [
        ("gzip", gzip(&bomb)),
        ("x-gzip", gzip(&bomb[..200 << 10]).repeat(2)),
        ("deflate", zlib.finish().unwrap()),
    ];
    for (encoding, body) in bombs {
        assert!(body.len() * 100 < bomb.len());
        let response = http_response("200 OK", &format!("Content-Encoding: {encoding}\r\n"), &body);
        let limits = NetworkLimits { wire_bytes_max: 1 << 20, ..limits() };
        let outcome = fetch(limits, vec![PeerAction::Write(response)]).await;
        assert_failed(&outcome, "the decompressed response is larger than 131072 bytes");
    }
    for encoding in ["br", "zstd", "gzip, gzip", "compress"] {
        let response = http_response("200 OK", &format!("Content-Encoding: {encoding}\r\n"), "x");
        let outcome = fetch(limits(), vec![PeerAction::Write(response)]).await;
        assert_failed(&outcome, "which was not asked for");
    }
}

#[tokio::test]
async fn compressed_bodies_are_decoded() {
    let text = b"a text that is compressed";
    let mut raw = DeflateEncoder::new(Vec::new(), Compression::best());
    raw.write_all(text).unwrap();
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::best());
    zlib.write_all(text).unwrap();
    let bodies = [
        ("gzip", gzip(text)),
        ("GZIP", [gzip(&text[..5]), gzip(&text[5..])].concat()),
        ("deflate", raw.finish().unwrap()),
        ("deflate", zlib.finish().unwrap()),
        ("identity", text.to_vec()),
    ];
    for (encoding, body) in bodies {
        let response = http_response("200 OK", &format!("Content-Encoding: {encoding}\r\n"), &body);
        let ToolOutcome::Done(result) = fetch(limits(), vec![PeerAction::Write(response)]).await else {
            panic!("{encoding}");
        };
        let result: Value = serde_json::from_str(&result).unwrap();
        assert_eq!(
            (&result["body"], &result["size"]),
            (&json!("a text that is compressed"), &json!(text.len()))
        );
    }
    let broken = http_response("200 OK", "Content-Encoding: gzip\r\n", "not gzip");
    assert_failed(&fetch(limits(), vec![PeerAction::Write(broken)]).await, "cannot be decompressed");
}

#[tokio::test]
async fn threat_102_line_breaks_reach_no_request_line_or_header() {
    let peer = HttpPeer::with_actions(vec![PeerAction::Write(http_response("200 OK", "", "x"))]);
    let client = Client::new(&["one.test"]);
    let url = format!("http://one.test:{}/", peer.port());
    let with_url = |suffix: &str| json!({ "url": format!("{url}{suffix}") });
    let with_header = |name: &str, value: &str| json!({ "url": url, "headers": { name: value } });
    let refused = [
        with_url("a\r\nX: y"),
        with_url("a\nb"),
        with_url("a HTTP/1.1\r\nHost: evil"),
        with_url("\u{85}"),
        with_url("\u{2028}"),
        with_header("X", "a\r\nY: b"),
        with_header("X", "a\nb"),
        with_header("X", "a\0b"),
        with_header("X\r\nY", "a"),
        with_header("X Y", "a"),
        with_header("X:", "a"),
        with_header("", "a"),
        json!({ "url": url, "method": "GET\r\nX: y" }),
        json!({ "url": url, "method": "GET / HTTP/1.1" }),
        json!({ "url": url, "method": "CONNECT" }),
        json!({ "url": url, "method": "TRACE" }),
        with_header("Host", "evil.example"),
        with_header("Content-Length", "0"),
        with_header("Transfer-Encoding", "chunked"),
        with_header("connection", "keep-alive"),
        with_header("Upgrade", "h2c"),
        with_header("Proxy-Authorization", "Basic x"),
        with_header("TE", "trailers"),
        with_header("Accept-Encoding", "br"),
        with_header("X", &"y".repeat(20_000)),
    ];
    for arguments in refused {
        let outcome = client.request(arguments.clone()).await;
        let is_invalid =
            matches!(&outcome, ToolOutcome::Failed(text) if text.starts_with("Invalid input: field `"));
        assert!(is_invalid, "{arguments}: {outcome:?}");
    }
    assert_eq!(peer.log().connections, 0);
    // Escaped line breaks stay escaped.
    client.response(with_url("a%0d%0aX:%20y?b%0ac")).await;
    assert!(peer.last_request().starts_with("GET /a%0d%0aX:%20y?b%0ac HTTP/1.1\r\n"));
}
