//! One table of everything the door refuses and of what lies just within its limits; the rows are in `refusals/`.

mod access;
mod body;
mod envelope;
mod head;

use testkit::{RawConnection, TestDaemon};

use crate::http::ask::Ask;
use crate::http::support::{Says, assert_error, assert_result, assert_well_formed, daemon, read_last};

/// One case.
struct Row {
    name: &'static str,
    /// What is sent, made from a request that would be answered 200.
    bytes: fn(Ask) -> Vec<u8>,
    wants: Wants,
    then: Then,
    patience: Patience,
    sending: Sending,
}

enum Wants {
    Result,
    Error {
        status: u16,
        code: i64,
        says: Says,
        id: &'static str,
    },
    /// The answer to a notification.
    Nothing,
}

/// What becomes of the connection after the answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Stays,
    /// It is closed, and the answer says so.
    Closes,
    /// It is closed as HTTP/1.0 does, without a word.
    Ends,
}

/// Which daemon is asked: one with the limits as they are, or one that waits for nobody.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    Usual,
    None,
}

/// What the peer does when all is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sending {
    Open,
    HalfClosed,
}

impl Row {
    const fn new(name: &'static str, bytes: fn(Ask) -> Vec<u8>, wants: Wants) -> Self {
        let (then, patience, sending) = (Then::Stays, Patience::Usual, Sending::Open);
        Self { name, bytes, wants, then, patience, sending }
    }

    /// A call that is answered with a result, its id 1.
    const fn passes(name: &'static str, bytes: fn(Ask) -> Vec<u8>) -> Self {
        Self::new(name, bytes, Wants::Result)
    }

    /// A request that is refused, by a message without any chance in it; the connection stays.
    const fn refused(
        name: &'static str,
        bytes: fn(Ask) -> Vec<u8>,
        status: u16,
        message: &'static str,
    ) -> Self {
        let code = if status == 404 { -32602 } else { -32600 };
        let says = Says::Exactly(message);
        Self::new(name, bytes, Wants::Error { status, code, says, id: "null" })
    }

    /// A head that may not pass; the connection ends with it.
    const fn closed(
        name: &'static str,
        bytes: fn(Ask) -> Vec<u8>,
        status: u16,
        message: &'static str,
    ) -> Self {
        Self::refused(name, bytes, status, message).closing()
    }

    const fn closing(mut self) -> Self {
        self.then = Then::Closes;
        self
    }

    const fn ending(mut self) -> Self {
        self.then = Then::Ends;
        self
    }

    const fn late(mut self) -> Self {
        self.patience = Patience::None;
        self
    }

    const fn half_closed(mut self) -> Self {
        self.sending = Sending::HalfClosed;
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
    let tables: [&[Row]; 4] = [head::ROWS, access::ROWS, body::ROWS, envelope::ROWS];
    for row in tables.into_iter().flatten() {
        let daemon = match row.patience {
            Patience::Usual => &usual,
            Patience::None => &impatient,
        };
        row.check(daemon);
    }
}

impl Row {
    fn check(&self, daemon: &TestDaemon) {
        let name = self.name;
        let mut connection = daemon.connection();
        // The answer may come, and the connection end, before everything was sent.
        let _ = connection.try_send(&(self.bytes)(Ask::good(daemon)));
        if self.sending == Sending::HalfClosed {
            connection.shutdown_write();
        }
        let answer = match self.then {
            Then::Stays => connection.read_response(),
            Then::Closes | Then::Ends => read_last(name, &mut connection),
        };
        match self.wants {
            Wants::Result => assert_result(name, &answer),
            Wants::Error { status, code, says, id } => assert_error(name, &answer, status, code, says, id),
            Wants::Nothing => {
                assert_eq!(answer.status, 204, "{name}");
                assert_well_formed(name, &answer);
            }
        }
        assert_eq!(answer.header("connection"), (self.then == Then::Closes).then_some("close"), "{name}");
        if self.then == Then::Stays {
            check_stays(name, daemon, &mut connection);
        }
    }
}

/// A connection that stays answers its next request.
fn check_stays(name: &str, daemon: &TestDaemon, connection: &mut RawConnection) {
    connection.send(&Ask::good(daemon).bytes());
    let again = connection.try_read_response();
    let again = again.unwrap_or_else(|cause| panic!("{name}: no second answer: {cause}"));
    assert_result(name, &again);
}
