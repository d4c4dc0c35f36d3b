//! `RawConnection` and `RawResponse` against the scripted model and hand-written servers.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpListener;
use std::thread;

use testkit::{RawConnection, ScriptedModel};

use crate::support::{chat_request, deltas, post, post_with, stream_events, without_stream};

/// When a hand-written server closes.
#[derive(PartialEq)]
enum CloseTiming {
    Immediately,
    AfterPeer,
}

/// A connection to a server that sends these bytes to its first client.
fn serve_once(bytes: &'static [u8], closes: CloseTiming) -> RawConnection {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.write_all(bytes).expect("a peer that reads");
        if closes == CloseTiming::AfterPeer {
            stream.read_to_end(&mut Vec::new()).ok();
        }
    });
    RawConnection::open(port)
}

#[test]
fn pipelined_responses_are_read_one_at_a_time() {
    let model = ScriptedModel::start();
    let mut connection = RawConnection::open(model.port());
    let both = [post(&chat_request("one")), post(&without_stream(chat_request("two")))].concat();
    connection.send(&both);
    assert_eq!(deltas(&stream_events(&connection.read_response())), ["echo: one"]);
    let second = connection.read_response();
    assert_eq!(second.json()["choices"][0]["message"]["content"], "echo: two");
    assert!(!second.closed);
}

#[test]
fn request_can_be_sent_byte_by_byte() {
    let model = ScriptedModel::start();
    let mut connection = RawConnection::open(model.port());
    for byte in post(&chat_request("split")) {
        connection.send(&[byte]);
    }
    assert_eq!(deltas(&stream_events(&connection.read_response())), ["echo: split"]);
}

#[test]
fn half_closed_connection_is_read_to_the_end() {
    let model = ScriptedModel::start();
    let mut connection = RawConnection::open(model.port());
    connection.shutdown_write();
    assert_eq!(connection.read_to_end(), b"");
}

#[test]
fn connection_close_header_is_awaited() {
    let model = ScriptedModel::start();
    let request = without_stream(chat_request("bye")).to_string();
    let mut connection = RawConnection::open(model.port());
    connection.send(&post_with("Connection: close\r\n", request.as_bytes()));
    let response = connection.read_response();
    assert!(response.closed);
    assert_eq!(response.header("CONNECTION"), Some("close"));
}

#[test]
fn body_without_length_ends_with_the_connection() {
    let mut connection =
        serve_once(b"HTTP/1.1 200 OK\r\nX-A:  b \r\n\r\nto the end", CloseTiming::Immediately);
    let response = connection.read_response();
    assert_eq!((response.text().as_str(), response.closed), ("to the end", true));
    assert_eq!(response.header("x-a"), Some("b"));
}

#[test]
fn chunks_are_joined_and_trailers_skipped() {
    let bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
        3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nX-T: 1\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
    let mut connection = serve_once(bytes, CloseTiming::AfterPeer);
    let response = connection.read_response();
    assert_eq!((response.text().as_str(), response.closed), ("abc0123456789", false));
    assert!(response.raw.ends_with(b"X-T: 1\r\n\r\n"));
    assert_eq!(connection.read_response().status, 204);
}

#[test]
fn interim_and_head_responses_have_no_body() {
    let bytes = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    let mut connection = serve_once(bytes, CloseTiming::AfterPeer);
    assert_eq!(connection.read_response().status, 100);
    let response = connection.read_head_response().expect("a complete head");
    assert_eq!((response.status, response.body.len()), (200, 0));
}

#[test]
fn truncated_and_malformed_responses_differ() {
    let truncated = [
        "",
        "HTTP/1.1 200 OK\r\nContent-Len",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
    ];
    for bytes in truncated {
        let cause =
            serve_once(bytes.as_bytes(), CloseTiming::Immediately).try_read_response().expect_err(bytes);
        assert_eq!(cause.kind(), ErrorKind::UnexpectedEof, "{bytes:?}");
    }
    let malformed = ["SSH-2.0-x\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"];
    for bytes in malformed {
        let cause =
            serve_once(bytes.as_bytes(), CloseTiming::Immediately).try_read_response().expect_err(bytes);
        assert_eq!(cause.kind(), ErrorKind::InvalidData, "{bytes:?}");
    }
}
