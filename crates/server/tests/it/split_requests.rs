//! Requests that arrive in pieces, split at every byte: in heads, bodies and chunk framing.

use testkit::RawConnection;
use testkit::http::{LIST_AGENTS, RequestBuilder, WellBehavedClient, assert_result};

use crate::fixture::door;

/// Sends a request in two pieces; the server has read the first before the second is sent.
fn send_split(connection: &mut RawConnection, client: &mut WellBehavedClient<'_>, bytes: &[u8], cut: usize) {
    connection.send(&bytes[..cut]);
    client.call();
    connection.send(&bytes[cut..]);
}

#[test]
fn request_split_at_any_byte_gets_its_result() {
    let door = door().open();
    let mut client = WellBehavedClient::new(&door);
    let mut connection = door.connection();
    let complete = RequestBuilder::valid(&door).bytes();
    for cut in 1..complete.len() {
        send_split(&mut connection, &mut client, &complete, cut);
        assert_result(&format!("split at {cut}"), &connection.read_response());
    }
}

#[test]
fn chunked_request_split_at_any_byte_gets_its_result() {
    let door = door().open();
    let mut client = WellBehavedClient::new(&door);
    let request = RequestBuilder::valid(&door).chunks(LIST_AGENTS.as_bytes().chunks(10));
    let complete = request.bytes();
    for cut in 1..complete.len() {
        let mut connection = door.connection();
        send_split(&mut connection, &mut client, &complete, cut);
        assert_result(&format!("split at {cut}"), &connection.read_response());
    }
}

#[test]
fn two_requests_split_at_any_byte_get_two_results() {
    let door = door().open();
    let mut client = WellBehavedClient::new(&door);
    let mut connection = door.connection();
    let both = RequestBuilder::valid(&door).bytes().repeat(2);
    for cut in 1..both.len() {
        send_split(&mut connection, &mut client, &both, cut);
        assert_result(&format!("first request, split at {cut}"), &connection.read_response());
        assert_result(&format!("second request, split at {cut}"), &connection.read_response());
    }
}

#[test]
fn chunk_size_does_not_matter() {
    let door = door().open();
    let mut large = LIST_AGENTS.as_bytes().to_vec();
    large.resize(200_000, b' ');
    for size in [1, 2, 7, 4096, 8192, 65_536, 200_000] {
        let request = RequestBuilder::valid(&door).chunks(large.chunks(size));
        let response = door.send_raw(&request.bytes());
        assert_result(&format!("chunks of {size}"), &response);
        assert!(response.closed, "the server closes the connection after a chunked body");
    }
}

#[test]
fn large_body_may_arrive_in_small_pieces() {
    let door = door().open();
    let mut large = LIST_AGENTS.as_bytes().to_vec();
    large.resize(1_048_576, b' ');
    let bytes = RequestBuilder::valid(&door).body(large).bytes();
    let mut connection = door.connection();
    for piece in bytes.chunks(1000) {
        connection.send(piece);
    }
    assert_result("small pieces", &connection.read_response());
}
