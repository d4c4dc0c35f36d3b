//! Table of all refusals and of requests just within the limits. The cases are in `refusals/`.

mod access;
mod body;
mod envelope;
mod head;

use std::time::Duration;

use testkit::RawConnection;
use testkit::http::{
    ExpectedMessage, RequestBuilder, assert_error, assert_result, assert_well_formed, read_last,
};

use crate::fixture::{TestDoor, door};

/// A request and its expected response.
struct Case {
    name: &'static str,
    /// Builds the bytes to send from a valid request.
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
    /// The response to a notification.
    NoContent,
}

/// State of the connection after the response.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectionAfter {
    Open,
    /// Closed, with `Connection: close` in the response.
    ClosedWithHeader,
    /// Closed without that header, as in HTTP/1.0.
    ClosedSilently,
}

/// Timeouts of the daemon that gets the request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Timeouts {
    Long,
    Short,
}

/// State of the client's write side after the request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteSide {
    Open,
    HalfClosed,
}

impl Case {
    const fn new(name: &'static str, bytes: fn(RequestBuilder) -> Vec<u8>, expected: Expected) -> Self {
        Self {
            name,
            bytes,
            expected,
            connection_after: ConnectionAfter::Open,
            timeouts: Timeouts::Long,
            write_side: WriteSide::Open,
        }
    }

    /// A call with id 1 that gets a result.
    const fn accepted(name: &'static str, bytes: fn(RequestBuilder) -> Vec<u8>) -> Self {
        Self::new(name, bytes, Expected::Result)
    }

    /// A request refused with a fixed message; the connection stays open.
    const fn refused(
        name: &'static str,
        bytes: fn(RequestBuilder) -> Vec<u8>,
        status: u16,
        message: &'static str,
    ) -> Self {
        let code = if status == 404 { -32602 } else { -32600 };
        let expected_message = ExpectedMessage::Exactly(message);
        Self::new(name, bytes, Expected::Error { status, code, message: expected_message, id: "null" })
    }

    /// A request refused with a fixed message; the connection closes.
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
fn every_request_gets_its_documented_response() {
    let long_timeouts = door()
        .limits(|limits| {
            limits.body_timeout = Duration::from_millis(600000);
            limits.head_timeout = Duration::from_millis(600000);
        })
        .open();
    let short_timeouts = door()
        .limits(|limits| {
            limits.first_byte_timeout = Duration::from_millis(1000);
            limits.head_timeout = Duration::from_millis(200);
            limits.body_timeout = Duration::from_millis(200);
        })
        .open();
    for door in [&long_timeouts, &short_timeouts] {
        door.call_result("/", "create_agent", serde_json::json!({ "agent_id": "main" }));
    }
    let tables: [&[Case]; 4] = [head::CASES, access::CASES, body::CASES, envelope::CASES];
    for case in tables.into_iter().flatten() {
        let door = match case.timeouts {
            Timeouts::Long => &long_timeouts,
            Timeouts::Short => &short_timeouts,
        };
        case.check(door);
    }
}

impl Case {
    fn check(&self, door: &TestDoor) {
        let name = self.name;
        let mut connection = door.connection();
        // The server may respond and close before it has read everything.
        let _ = connection.try_send(&(self.bytes)(RequestBuilder::valid(door)));
        if self.write_side == WriteSide::HalfClosed {
            connection.shutdown_write();
        }
        let response = match self.connection_after {
            ConnectionAfter::Open => connection.read_response(),
            ConnectionAfter::ClosedWithHeader | ConnectionAfter::ClosedSilently => {
                read_last(name, &mut connection)
            }
        };
        match self.expected {
            Expected::Result => assert_result(name, &response),
            Expected::Error { status, code, message, id } => {
                assert_error(name, &response, status, code, message, id);
            }
            Expected::NoContent => {
                assert_eq!(response.status, 204, "{name}");
                assert_well_formed(name, &response);
            }
        }
        assert_eq!(
            response.header("connection"),
            (self.connection_after == ConnectionAfter::ClosedWithHeader).then_some("close"),
            "{name}"
        );
        if self.connection_after == ConnectionAfter::Open {
            check_still_open(name, door, &mut connection);
        }
    }
}

/// Asserts that an open connection serves another request.
fn check_still_open(name: &str, door: &TestDoor, connection: &mut RawConnection) {
    connection.send(&RequestBuilder::valid(door).bytes());
    let second = connection.try_read_response();
    let second = second.unwrap_or_else(|cause| panic!("{name}: no second response: {cause}"));
    assert_result(name, &second);
}
