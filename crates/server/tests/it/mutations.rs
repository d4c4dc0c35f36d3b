//! A valid request with one byte changed, inserted or removed, at every position: the response is always well formed.

use std::net::Shutdown;

use testkit::RawConnection;
use testkit::http::{RequestBuilder, WellBehavedClient, agents, assert_well_formed};

use crate::fixture::{TestDoor, door};

/// Bytes with a meaning in a request head, and some that are never valid there.
const BYTES: [u8; 20] = *b"\0\t\n\r ,:;/?*\"(-+09Aa\xff";

#[test]
fn every_one_byte_mutation_gets_a_well_formed_response() {
    let door = door().open();
    let valid = RequestBuilder::valid(&door).bytes();
    for at in 0..valid.len() {
        for byte in BYTES {
            check(&door, &[&valid[..at], &[byte], &valid[at + 1..]].concat());
            check(&door, &[&valid[..at], &[byte], &valid[at..]].concat());
        }
        check(&door, &[&valid[..at], &valid[at + 1..]].concat());
        check(&door, &[&valid[..at], &valid[at..=at], &valid[at..]].concat());
    }
    WellBehavedClient::new(&door).call();
}

#[test]
fn request_after_a_malformed_head_never_runs() {
    let door = door().open();
    let first = RequestBuilder::valid(&door).bytes();
    // The second request could run only if the server read the first with its declared length.
    let second = RequestBuilder::create_agent(&door, "second").bytes();
    let head = RequestBuilder::valid(&door).head().len();
    for at in 0..head {
        let malformed = [&first[..at], b"\0", &first[at + 1..], &second].concat();
        let responses = check(&door, &malformed);
        assert_eq!(responses, 1, "at {at}");
    }
    assert!(agents(&door).is_empty());
}

/// Asserts that every response is well formed and that the connection closes; returns the number of responses.
fn check(door: &TestDoor, bytes: &[u8]) -> usize {
    let name = bytes.escape_ascii().to_string();
    let mut connection = door.connection();
    let _ = connection.try_send(bytes);
    let _ = connection.stream().shutdown(Shutdown::Write);
    let mut responses = 0;
    while let Some(response) = read_any(&mut connection) {
        responses += 1;
        match response.status {
            100 => continue,
            200 | 204 | 400 | 401 | 403 | 404 | 405 | 413 | 415 | 417 | 431 => {}
            status => panic!("{name}: {status}"),
        }
        assert_well_formed(&name, &response);
    }
    assert!(responses > 0, "{name}: no response");
    responses
}

fn read_any(connection: &mut RawConnection) -> Option<testkit::RawResponse> {
    match connection.try_read_response() {
        Ok(response) => Some(response),
        Err(cause) if cause.kind() == std::io::ErrorKind::UnexpectedEof => None,
        Err(cause) => panic!("incomplete response: {cause}"),
    }
}
