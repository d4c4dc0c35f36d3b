//! Calls that are left open while a test does something else: each on a connection and a thread of its own.

use std::net::TcpStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{RawConnection, RawResponse, TestDaemon};

/// Longer than any wait of a test, so that the test and not a call says what did not happen.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(50);

/// A thread of these does little, and there may be a thousand.
const STACK_BYTES: usize = 256 * 1024;

/// Calls under way. Answers come in the order they arrive.
pub(crate) struct PendingCalls {
    sender: Sender<ReceivedResponse>,
    receiver: Receiver<ReceivedResponse>,
    started: usize,
}

/// An answer, and the place of its call among those that were started.
pub(crate) struct ReceivedResponse {
    pub(crate) index: usize,
    pub(crate) response: RawResponse,
}

impl PendingCalls {
    pub(crate) fn new() -> Self {
        let (arriving, arrived) = channel();
        Self { sender: arriving, receiver: arrived, started: 0 }
    }

    /// One call.
    pub(crate) fn single(daemon: &TestDaemon, path: &str, method: &str, params: Value) -> Self {
        let mut calls = Self::new();
        calls.start(daemon, path, method, params);
        calls
    }

    /// Starts another one; returns its socket when its bytes are sent. Its id is its place.
    pub(crate) fn start(
        &mut self,
        daemon: &TestDaemon,
        path: &str,
        method: &str,
        params: Value,
    ) -> TcpStream {
        let place = self.started;
        self.started += 1;
        let mut connection = daemon.connection();
        connection.send(&request_bytes(daemon, path, place, method, params));
        let socket = connection.stream().try_clone().expect("a socket can be shared");
        let arriving = self.sender.clone();
        let waiting = thread::Builder::new().stack_size(STACK_BYTES);
        let waiting = waiting.spawn(move || wait_for_response(connection, place, &arriving));
        // Detached: it ends with its answer, or with the daemon.
        drop(waiting.expect("a thread can be started"));
        socket
    }

    /// Waits for the next answer, whichever call it belongs to.
    pub(crate) fn next_arrival(&self) -> ReceivedResponse {
        self.receiver.recv_timeout(RESPONSE_TIMEOUT).expect("an open call is answered in time")
    }

    /// The next answer's response object.
    pub(crate) fn next_response(&self) -> Value {
        let arrived = self.next_arrival();
        assert_eq!(arrived.response.status, 200, "{}", arrived.response.text());
        let response = arrived.response.json();
        assert_eq!(response["id"], arrived.index, "{response}");
        response
    }

    /// The next answer's result.
    pub(crate) fn next_result(&self) -> Value {
        let mut response = self.next_response();
        assert!(response.get("error").is_none(), "{response}");
        response["result"].take()
    }

    /// Whether nothing has been answered that was not taken yet.
    pub(crate) fn has_no_response(&self) -> bool {
        self.receiver.try_recv().is_err()
    }
}

/// A request as bytes.
pub(crate) fn request_bytes(
    daemon: &TestDaemon,
    path: &str,
    id: usize,
    method: &str,
    params: Value,
) -> Vec<u8> {
    let mut request = json!({ "jsonrpc": "2.0", "id": id, "method": method });
    request["params"] = params;
    daemon.post_bytes(path, &[], request.to_string().as_bytes())
}

fn wait_for_response(mut connection: RawConnection, place: usize, arriving: &Sender<ReceivedResponse>) {
    connection.stream().set_read_timeout(Some(RESPONSE_TIMEOUT)).expect("a connected socket takes options");
    // A daemon that was killed on purpose answers nobody; whoever waits for this answer says so.
    if let Ok(answer) = connection.try_read_response() {
        let _ = arriving.send(ReceivedResponse { index: place, response: answer });
    }
}
