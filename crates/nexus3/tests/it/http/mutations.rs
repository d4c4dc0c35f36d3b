//! A good request with one byte changed, added or taken away, everywhere: whatever comes of it, it is an answer of ours.

use std::net::Shutdown;

use testkit::{RawConnection, TestDaemon};

use crate::http::request_builder::RequestBuilder;
use crate::http::support::{WellBehavedClient, agents, assert_well_formed, daemon};

/// The bytes that mean something in a head, and some that never should be there.
const BYTES: [u8; 20] = *b"\0\t\n\r ,:;/?*\"(-+09Aa\xff";

#[test]
fn no_single_byte_makes_the_door_speak_in_other_words() {
    let daemon = daemon().start();
    let good = RequestBuilder::valid(&daemon).bytes();
    for at in 0..good.len() {
        for byte in BYTES {
            check(&daemon, &[&good[..at], &[byte], &good[at + 1..]].concat());
            check(&daemon, &[&good[..at], &[byte], &good[at..]].concat());
        }
        check(&daemon, &[&good[..at], &good[at + 1..]].concat());
        check(&daemon, &[&good[..at], &good[at..=at], &good[at..]].concat());
    }
    WellBehavedClient::new(&daemon).call();
}

#[test]
fn no_pair_of_requests_runs_into_each_other() {
    let daemon = daemon().start();
    let first = RequestBuilder::valid(&daemon).bytes();
    // The second can only be run when the first was read with the length that it says.
    let second = RequestBuilder::create_agent(&daemon, "second").bytes();
    let head = RequestBuilder::valid(&daemon).head().len();
    for at in 0..head {
        let spoiled = [&first[..at], b"\0", &first[at + 1..], &second].concat();
        let answers = check(&daemon, &spoiled);
        assert_eq!(answers, 1, "at {at}");
    }
    assert!(agents(&daemon).is_empty());
}

/// Every answer is well formed, and the connection ends; returns how many answers there were.
fn check(daemon: &TestDaemon, bytes: &[u8]) -> usize {
    let name = bytes.escape_ascii().to_string();
    let mut connection = daemon.connection();
    let _ = connection.try_send(bytes);
    let _ = connection.stream().shutdown(Shutdown::Write);
    let mut answers = 0;
    while let Some(answer) = read_any(&mut connection) {
        answers += 1;
        match answer.status {
            100 => continue,
            200 | 204 | 400 | 401 | 403 | 404 | 405 | 413 | 415 | 417 | 431 => {}
            status => panic!("{name}: {status}"),
        }
        assert_well_formed(&name, &answer);
    }
    assert!(answers > 0, "{name}: no answer");
    answers
}

fn read_any(connection: &mut RawConnection) -> Option<testkit::RawResponse> {
    match connection.try_read_response() {
        Ok(answer) => Some(answer),
        Err(cause) if cause.kind() == std::io::ErrorKind::UnexpectedEof => None,
        Err(cause) => panic!("no whole answer: {cause}"),
    }
}
