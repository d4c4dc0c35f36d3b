//! One table of everything the door refuses and of what lies just within its limits; the rows are in `refusals/`.

mod access;
mod body;
mod envelope;
mod head;

use testkit::{RawConnection, TestDaemon};

use crate::http::request_builder::RequestBuilder;
use crate::http::support::{
    ExpectedMessage, assert_error, assert_result, assert_well_formed, daemon, read_last,
};

/// One case.
struct Case {
    name: &'static str,
    /// What is sent, made from a request that would be answered 200.
    bytes: fn(RequestBuilder) -> Vec<u8>,
    expected: Expected,
    connection_after: ConnectionAfter,
    timeouts: Timeouts,
    write_side: WriteSide,
}

enum Expected {
    Result,
    Error {
        status: u16,
        code: i64,
        message: ExpectedMessage,
        id: &'static str,
    },
    /// The answer to a notification.
    NoContent,
}

/// What becomes of the connection after the answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectionAfter {
    KeptOpen,
    /// It is closed, and the answer says so.
    ClosedWithHeader,
    /// It is closed as HTTP/1.0 does, without a word.
    ClosedSilently,
}

/// Which daemon is asked: one with the limits as they are, or one that waits for nobody.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Timeouts {
    Long,
    Short,
}

/// What the peer does when all is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteSide {
    Open,
    HalfClosed,
}

impl Case {
    const fn new(name: &'static str, bytes: fn(RequestBuilder) -> Vec<u8>, wants: Expected) -> Self {
        let (then, patience, sending) = (ConnectionAfter::KeptOpen, Timeouts::Long, WriteSide::Open);
        Self { name, bytes, expected: wants, connection_after: then, timeouts: patience, write_side: sending }
    }

    /// A call that is answered with a result, its id 1.
    const fn accepted(name: &'static str, bytes: fn(RequestBuilder) -> Vec<u8>) -> Self {
        Self::new(name, bytes, Expected::Result)
    }

    /// A request that is refused, by a message without any chance in it; the connection stays.
    const fn refused(
        name: &'static str,
        bytes: fn(RequestBuilder) -> Vec<u8>,
        status: u16,
        message: &'static str,
    ) -> Self {
        let code = if status == 404 { -32602 } else { -32600 };
        let says = ExpectedMessage::Exactly(message);
        Self::new(name, bytes, Expected::Error { status, code, message: says, id: "null" })
    }

    /// A head that may not pass; the connection ends with it.
    const fn refused_and_closed(
        name: &'static str,
        bytes: fn(RequestBuilder) -> Vec<u8>,
        status: u16,
        message: &'static str,
    ) -> Self {
        Self::refused(name, bytes, status, message).then_closed_with_header()
    }

    const fn then_closed_with_header(mut self) -> Self {
        self.connection_after = ConnectionAfter::ClosedWithHeader;
        self
    }

    const fn then_closed_silently(mut self) -> Self {
        self.connection_after = ConnectionAfter::ClosedSilently;
        self
    }

    const fn with_short_timeouts(mut self) -> Self {
        self.timeouts = Timeouts::Short;
        self
    }

    const fn half_closed(mut self) -> Self {
        self.write_side = WriteSide::HalfClosed;
        self
    }
}

#[test]
fn every_request_gets_the_answer_the_documents_promise() {
    let usual = daemon().config("[limits]\nbody_ms = 600000\nhead_ms = 600000\n").start();
    let impatient = daemon().config("[limits]\nfirst_byte_ms = 1000\nhead_ms = 200\nbody_ms = 200\n").start();
    for daemon in [&usual, &impatient] {
        daemon.call_result("/", "create_agent", serde_json::json!({ "agent_id": "main" }));
    }
    let tables: [&[Case]; 4] = [head::CASES, access::CASES, body::CASES, envelope::CASES];
    for row in tables.into_iter().flatten() {
        let daemon = match row.timeouts {
            Timeouts::Long => &usual,
            Timeouts::Short => &impatient,
        };
        row.check(daemon);
    }
}

impl Case {
    fn check(&self, daemon: &TestDaemon) {
        let name = self.name;
        let mut connection = daemon.connection();
        // The answer may come, and the connection end, before everything was sent.
        let _ = connection.try_send(&(self.bytes)(RequestBuilder::valid(daemon)));
        if self.write_side == WriteSide::HalfClosed {
            connection.shutdown_write();
        }
        let answer = match self.connection_after {
            ConnectionAfter::KeptOpen => connection.read_response(),
            ConnectionAfter::ClosedWithHeader | ConnectionAfter::ClosedSilently => {
                read_last(name, &mut connection)
            }
        };
        match self.expected {
            Expected::Result => assert_result(name, &answer),
            Expected::Error { status, code, message: says, id } => {
                assert_error(name, &answer, status, code, says, id)
            }
            Expected::NoContent => {
                assert_eq!(answer.status, 204, "{name}");
                assert_well_formed(name, &answer);
            }
        }
        assert_eq!(
            answer.header("connection"),
            (self.connection_after == ConnectionAfter::ClosedWithHeader).then_some("close"),
            "{name}"
        );
        if self.connection_after == ConnectionAfter::KeptOpen {
            check_kept_open(name, daemon, &mut connection);
        }
    }
}

/// A connection that stays answers its next request.
fn check_kept_open(name: &str, daemon: &TestDaemon, connection: &mut RawConnection) {
    connection.send(&RequestBuilder::valid(daemon).bytes());
    let again = connection.try_read_response();
    let again = again.unwrap_or_else(|cause| panic!("{name}: no second answer: {cause}"));
    assert_result(name, &again);
}
