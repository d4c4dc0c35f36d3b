//! What the tests of the door share: starting a daemon, calling it honestly, and what an answer must look like.

use std::net::Shutdown;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{RawConnection, RawResponse, TestDaemon, TestDaemonBuilder};

use crate::http::request_builder::RequestBuilder;

/// Longer than anything here may take on a loaded machine.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(30);

pub(crate) const NO_ROUTE: &str = "Not found. Use /, /rpc, or /agent/{agent_id}.";

pub(crate) fn daemon() -> TestDaemonBuilder {
    TestDaemon::builder(env!("CARGO_BIN_EXE_nexus3"))
}

/// What is expected of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ExpectedMessage {
    Exactly(&'static str),
    /// The rest is chance, or another test's affair.
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

/// The headers that answers of the door may have, and no others.
const HEADERS_ALLOWED: [&str; 6] =
    ["content-type", "x-content-type-options", "content-length", "connection", "www-authenticate", "allow"];

/// Holds an answer with a body to the form that all of them have.
pub(crate) fn assert_well_formed(name: &str, answer: &RawResponse) {
    for (header, _) in &answer.headers {
        assert!(HEADERS_ALLOWED.contains(&header.to_lowercase().as_str()), "{name}: header {header}");
    }
    if answer.status == 204 {
        assert_eq!(answer.raw.len(), head_bytes(answer), "{name}: a body where there is none");
        return;
    }
    assert_eq!(answer.header("content-type"), Some("application/json; charset=utf-8"), "{name}");
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{name}");
    assert_eq!(answer.header("content-length"), Some(answer.body.len().to_string().as_str()), "{name}");
    let challenge = (answer.status == 401).then_some("Bearer");
    assert_eq!(answer.header("www-authenticate"), challenge, "{name}");
    assert_eq!(answer.header("allow"), (answer.status == 405).then_some("POST"), "{name}");
}

fn head_bytes(answer: &RawResponse) -> usize {
    answer.raw.windows(4).position(|window| window == b"\r\n\r\n").map_or(0, |at| at + 4)
}

/// Holds an answer to an error: its status, code, message and id, byte for byte.
pub(crate) fn assert_error(
    name: &str,
    answer: &RawResponse,
    status: u16,
    code: i64,
    says: ExpectedMessage,
    id: &str,
) {
    assert_eq!(answer.status, status, "{name}: {}", answer.text());
    assert_well_formed(name, answer);
    let body = answer.json();
    let message = body["error"]["message"].as_str().unwrap_or_default().to_owned();
    assert!(says.matches(&message), "{name}: says {message:?}, not {says:?}");
    assert!(!message.is_empty(), "{name}: an empty message");
    let error = json!({ "code": code, "message": message }).to_string();
    let expected = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#);
    assert_eq!(answer.text(), expected, "{name}");
}

/// Holds an answer to a refusal of the request as such.
pub(crate) fn assert_refused(name: &str, answer: &RawResponse, status: u16, message: &'static str) {
    let code = if status == 404 { -32602 } else { -32600 };
    assert_error(name, answer, status, code, ExpectedMessage::Exactly(message), "null");
}

/// Holds an answer to a result of the request with the id 1.
pub(crate) fn assert_result(name: &str, answer: &RawResponse) {
    assert_eq!(answer.status, 200, "{name}: {}", answer.text());
    assert_well_formed(name, answer);
    let body = answer.json();
    let keys: Vec<&str> = body.as_object().map(|body| body.keys().map(String::as_str).collect()).unwrap();
    assert_eq!(keys.len(), 3, "{name}: {body}");
    assert_eq!((&body["jsonrpc"], &body["id"]), (&json!("2.0"), &json!(1)), "{name}: {body}");
    assert!(body["result"].is_object(), "{name}: {body}");
}

/// Reads the one answer that a connection gets before it ends.
pub(crate) fn read_last(name: &str, connection: &mut RawConnection) -> RawResponse {
    let answer = connection.try_read_response().unwrap_or_else(|cause| panic!("{name}: no answer: {cause}"));
    let rest = connection.read_to_end();
    assert!(rest.is_empty(), "{name}: after the last answer: {:?}", String::from_utf8_lossy(&rest));
    answer
}

/// Sends bytes, says that there are no more, and reads the one answer that comes back.
pub(crate) fn request_once(name: &str, daemon: &TestDaemon, bytes: &[u8]) -> RawResponse {
    let mut connection = daemon.connection();
    // A refusal may come, and the connection end, before everything was sent.
    let _ = connection.try_send(bytes);
    let _ = connection.stream().shutdown(Shutdown::Write);
    read_last(name, &mut connection)
}

/// An honest client on one connection of its own.
pub(crate) struct WellBehavedClient<'a> {
    daemon: &'a TestDaemon,
    connection: RawConnection,
}

impl<'a> WellBehavedClient<'a> {
    pub(crate) fn new(daemon: &'a TestDaemon) -> Self {
        Self { daemon, connection: daemon.connection() }
    }

    /// Makes one call and holds its answer to a result.
    pub(crate) fn call(&mut self) -> Value {
        self.connection.send(&RequestBuilder::valid(self.daemon).bytes());
        let answer = self.connection.read_response();
        assert_result("an honest call", &answer);
        answer.json()
    }

    pub(crate) fn agents(&mut self) -> Vec<String> {
        let agents = self.call()["result"]["agents"].take();
        let agents = agents.as_array().cloned().unwrap_or_default();
        agents.iter().filter_map(|agent| Some(agent["agent_id"].as_str()?.to_owned())).collect()
    }

    /// Calls until something has come about, and is answered each time.
    pub(crate) fn call_until(&mut self, what: &str, mut is_so: impl FnMut() -> bool) {
        let start = Instant::now();
        loop {
            self.call();
            if is_so() {
                return;
            }
            assert!(start.elapsed() < WAIT_MAX, "{what}: not after {WAIT_MAX:?}");
        }
    }
}

/// The names of all agents.
pub(crate) fn agents(daemon: &TestDaemon) -> Vec<String> {
    WellBehavedClient::new(daemon).agents()
}
