//! Requests that arrive in pieces: cut at every byte, in heads, in bodies, in the frames of chunks.

use testkit::RawConnection;

use crate::http::request_builder::{LIST_AGENTS, RequestBuilder};
use crate::http::support::{WellBehavedClient, assert_result, daemon};

/// Sends in two pieces; the door has seen the first before the second comes.
fn send_split(connection: &mut RawConnection, honest: &mut WellBehavedClient<'_>, bytes: &[u8], cut: usize) {
    connection.send(&bytes[..cut]);
    honest.call();
    connection.send(&bytes[cut..]);
}

#[test]
fn a_request_cut_at_any_byte_is_the_same_request() {
    let daemon = daemon().start();
    let mut honest = WellBehavedClient::new(&daemon);
    let mut connection = daemon.connection();
    let whole = RequestBuilder::valid(&daemon).bytes();
    for cut in 1..whole.len() {
        send_split(&mut connection, &mut honest, &whole, cut);
        assert_result(&format!("cut at {cut}"), &connection.read_response());
    }
}

#[test]
fn a_chunked_request_cut_at_any_byte_is_the_same_request() {
    let daemon = daemon().start();
    let mut honest = WellBehavedClient::new(&daemon);
    let ask = RequestBuilder::valid(&daemon).chunks(LIST_AGENTS.as_bytes().chunks(10));
    let whole = ask.bytes();
    for cut in 1..whole.len() {
        let mut connection = daemon.connection();
        send_split(&mut connection, &mut honest, &whole, cut);
        assert_result(&format!("cut at {cut}"), &connection.read_response());
    }
}

#[test]
fn two_requests_cut_at_any_byte_are_two_requests() {
    let daemon = daemon().start();
    let mut honest = WellBehavedClient::new(&daemon);
    let mut connection = daemon.connection();
    let both = RequestBuilder::valid(&daemon).bytes().repeat(2);
    for cut in 1..both.len() {
        send_split(&mut connection, &mut honest, &both, cut);
        assert_result(&format!("the first, cut at {cut}"), &connection.read_response());
        assert_result(&format!("the second, cut at {cut}"), &connection.read_response());
    }
}

#[test]
fn a_chunked_body_is_one_body_however_it_is_cut_up() {
    let daemon = daemon().start();
    let mut large = LIST_AGENTS.as_bytes().to_vec();
    large.resize(200_000, b' ');
    for size in [1, 2, 7, 4096, 8192, 65_536, 200_000] {
        let ask = RequestBuilder::valid(&daemon).chunks(large.chunks(size));
        let answer = daemon.send_raw(&ask.bytes());
        assert_result(&format!("chunks of {size}"), &answer);
        assert!(answer.closed, "a chunked body is the last of its connection");
    }
}

#[test]
fn a_large_body_may_come_in_small_pieces() {
    let daemon = daemon().start();
    let mut large = LIST_AGENTS.as_bytes().to_vec();
    large.resize(1_048_576, b' ');
    let bytes = RequestBuilder::valid(&daemon).body(large).bytes();
    let mut connection = daemon.connection();
    for piece in bytes.chunks(1000) {
        connection.send(piece);
    }
    assert_result("pieces", &connection.read_response());
}
