//! Calls that stay pending while a test does something else: each has its own connection and thread.

use std::net::TcpStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use testkit::{RawConnection, RawResponse, TestDaemon, rpc_request};

/// The time limit of a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(50);

/// Small, because these threads do little and there may be a thousand of them.
const STACK_BYTES: usize = 256 * 1024;

/// Pending calls. Responses are returned in the order of arrival.
pub(crate) struct PendingCalls {
    sender: Sender<ReceivedResponse>,
    receiver: Receiver<ReceivedResponse>,
    started: usize,
}

/// A response, and the index of its call in start order.
pub(crate) struct ReceivedResponse {
    pub(crate) index: usize,
    pub(crate) response: RawResponse,
}

impl PendingCalls {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = channel();
        Self { sender, receiver, started: 0 }
    }

    /// Starts a single call.
    pub(crate) fn single(daemon: &TestDaemon, path: &str, method: &str, params: Value) -> Self {
        let mut calls = Self::new();
        calls.start(daemon, path, method, params);
        calls
    }

    /// Starts another call and returns its socket after the request is written. The request's id is the call's index.
    pub(crate) fn start(
        &mut self,
        daemon: &TestDaemon,
        path: &str,
        method: &str,
        params: Value,
    ) -> TcpStream {
        let index = self.started;
        self.started += 1;
        let mut connection = daemon.connection();
        connection.send(&request_bytes(daemon, path, index, method, params));
        let socket = connection.stream().try_clone().expect("a socket can be shared");
        let sender = self.sender.clone();
        let builder = thread::Builder::new().stack_size(STACK_BYTES);
        let reader = builder.spawn(move || wait_for_response(connection, index, &sender));
        // Detached: the thread ends with the response, or with the daemon.
        drop(reader.expect("a thread can be started"));
        socket
    }

    /// Waits for the next response to any of the calls.
    pub(crate) fn next_arrival(&self) -> ReceivedResponse {
        self.receiver.recv_timeout(RESPONSE_TIMEOUT).expect("a pending call gets its response in time")
    }

    /// Waits for the next response and returns its JSON-RPC object.
    pub(crate) fn next_response(&self) -> Value {
        let arrived = self.next_arrival();
        assert_eq!(arrived.response.status, 200, "{}", arrived.response.text());
        let response = arrived.response.json();
        assert_eq!(response["id"], arrived.index, "{response}");
        response
    }

    /// Waits for the next response and returns its result.
    pub(crate) fn next_result(&self) -> Value {
        let mut response = self.next_response();
        assert!(response.get("error").is_none(), "{response}");
        response["result"].take()
    }

    /// Whether no unread response has arrived.
    pub(crate) fn has_no_response(&self) -> bool {
        self.receiver.try_recv().is_err()
    }
}

/// The bytes of an HTTP request.
pub(crate) fn request_bytes(
    daemon: &TestDaemon,
    path: &str,
    id: usize,
    method: &str,
    params: Value,
) -> Vec<u8> {
    daemon.post_bytes(path, &[], rpc_request(id, method, params).as_bytes())
}

fn wait_for_response(mut connection: RawConnection, index: usize, sender: &Sender<ReceivedResponse>) {
    connection.stream().set_read_timeout(Some(RESPONSE_TIMEOUT)).expect("a connected socket takes options");
    // A daemon that the test killed sends no response; a test that waits for it fails in `next_arrival`.
    if let Ok(response) = connection.try_read_response() {
        let _ = sender.send(ReceivedResponse { index, response });
    }
}
