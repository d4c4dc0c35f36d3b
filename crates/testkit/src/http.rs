//! For tests of HTTP: a request builder, a well-behaved client, and assertions on responses.

mod kernel_sockets;
mod request_builder;
mod slow_peer;

use std::net::Shutdown;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

use crate::client::DaemonClient;
use crate::raw::{RawConnection, RawResponse};

pub use kernel_sockets::held_connections;
pub use request_builder::{LIST_AGENTS, RequestBuilder};
pub use slow_peer::SlowPeer;

/// Limit on every wait, generous enough for a loaded machine.
pub const WAIT_MAX: Duration = Duration::from_secs(30);

/// The refusal of an unknown path.
pub const NO_ROUTE: &str = "Not found. Use /, /rpc, or /agent/{agent_id}.";

/// Expected error message.
#[derive(Debug, Clone, Copy)]
pub enum ExpectedMessage {
    /// The complete message.
    Exactly(&'static str),
    /// For messages whose rest varies or is checked by another test.
    StartsWith(&'static str),
}

impl ExpectedMessage {
    fn matches(self, message: &str) -> bool {
        match self {
            Self::Exactly(text) => message == text,
            Self::StartsWith(text) => message.starts_with(text),
        }
    }
}

/// The only headers that a response may have.
const HEADERS_ALLOWED: [&str; 6] =
    ["content-type", "x-content-type-options", "content-length", "connection", "www-authenticate", "allow"];

/// Asserts the headers that all responses share.
pub fn assert_well_formed(name: &str, response: &RawResponse) {
    for (header, _) in &response.headers {
        assert!(HEADERS_ALLOWED.contains(&header.to_lowercase().as_str()), "{name}: header {header}");
    }
    if response.status == 204 {
        assert_eq!(response.raw.len(), head_bytes(response), "{name}: 204 with a body");
        return;
    }
    assert_eq!(response.header("content-type"), Some("application/json; charset=utf-8"), "{name}");
    assert_eq!(response.header("x-content-type-options"), Some("nosniff"), "{name}");
    assert_eq!(response.header("content-length"), Some(response.body.len().to_string().as_str()), "{name}");
    let challenge = (response.status == 401).then_some("Bearer");
    assert_eq!(response.header("www-authenticate"), challenge, "{name}");
    assert_eq!(response.header("allow"), (response.status == 405).then_some("POST"), "{name}");
}

fn head_bytes(response: &RawResponse) -> usize {
    response.raw.windows(4).position(|window| window == b"\r\n\r\n").map_or(0, |at| at + 4)
}

/// Asserts that a response is this error: status, code, message and id, byte for byte.
pub fn assert_error(
    name: &str,
    response: &RawResponse,
    status: u16,
    code: i64,
    expected_message: ExpectedMessage,
    id: &str,
) {
    assert_eq!(response.status, status, "{name}: {}", response.text());
    assert_well_formed(name, response);
    let body = response.json();
    let message = body["error"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(
        expected_message.matches(&message),
        "{name}: message is {message:?}, expected {expected_message:?}"
    );
    assert!(!message.is_empty(), "{name}: empty message");
    let error = json!({ "code": code, "message": message }).to_string();
    let expected = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#);
    assert_eq!(response.text(), expected, "{name}");
}

/// Asserts that a response is an HTTP refusal.
pub fn assert_refused(name: &str, response: &RawResponse, status: u16, message: &'static str) {
    let code = if status == 404 { -32602 } else { -32600 };
    assert_error(name, response, status, code, ExpectedMessage::Exactly(message), "null");
}

/// Asserts that a response is the result of the request with the id 1.
pub fn assert_result(name: &str, response: &RawResponse) {
    assert_eq!(response.status, 200, "{name}: {}", response.text());
    assert_well_formed(name, response);
    let body = response.json();
    assert_eq!(body.as_object().map(serde_json::Map::len), Some(3), "{name}: {body}");
    assert_eq!((&body["jsonrpc"], &body["id"]), (&json!("2.0"), &json!(1)), "{name}: {body}");
    assert!(body["result"].is_object(), "{name}: {body}");
}

/// Reads the last response of a connection and asserts that the connection closes.
pub fn read_last(name: &str, connection: &mut RawConnection) -> RawResponse {
    let response =
        connection.try_read_response().unwrap_or_else(|cause| panic!("{name}: no response: {cause}"));
    let rest = connection.read_to_end();
    assert!(rest.is_empty(), "{name}: after the last response: {:?}", String::from_utf8_lossy(&rest));
    response
}

/// Sends bytes, closes the write side, and reads the only response.
pub fn request_once(name: &str, daemon: &DaemonClient, bytes: &[u8]) -> RawResponse {
    let mut connection = daemon.connection();
    // The server may refuse and close before it has read everything.
    let _ = connection.try_send(bytes);
    let _ = connection.stream().shutdown(Shutdown::Write);
    read_last(name, &mut connection)
}

/// A client with a connection of its own that sends only valid requests.
#[derive(Debug)]
pub struct WellBehavedClient<'a> {
    daemon: &'a DaemonClient,
    connection: RawConnection,
}

impl<'a> WellBehavedClient<'a> {
    /// Opens the connection.
    pub fn new(daemon: &'a DaemonClient) -> Self {
        Self { daemon, connection: daemon.connection() }
    }

    /// Makes a call and asserts that it gets a result.
    pub fn call(&mut self) -> Value {
        self.connection.send(&RequestBuilder::valid(self.daemon).bytes());
        let response = self.connection.read_response();
        assert_result("call of the well-behaved client", &response);
        response.json()
    }

    /// The ids of all agents.
    pub fn agents(&mut self) -> Vec<String> {
        let agents = self.call()["result"]["agents"].take();
        let agents = agents.as_array().cloned().unwrap_or_default();
        agents.iter().filter_map(|agent| Some(agent["agent_id"].as_str()?.to_owned())).collect()
    }

    /// Calls until the condition holds, and asserts that each call gets a result.
    pub fn call_until(&mut self, condition: &str, mut holds: impl FnMut() -> bool) {
        let start = Instant::now();
        loop {
            self.call();
            if holds() {
                return;
            }
            assert!(start.elapsed() < WAIT_MAX, "{condition}: not within {WAIT_MAX:?}");
        }
    }
}

/// The ids of all agents.
pub fn agents(daemon: &DaemonClient) -> Vec<String> {
    WellBehavedClient::new(daemon).agents()
}

/// Raises the limit on open files of the test process for this many connections; panics if the hard limit is too low.
pub fn raise_descriptor_limit(connections: usize) {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).expect("the soft limit can be raised to the hard one");
    let is_enough = limit.maximum.is_none_or(|hard_limit| hard_limit > connections as u64 + 500);
    assert!(is_enough, "{connections} connections need more than {:?} open files", limit.maximum);
}
