//! A client of a daemon: JSON-RPC calls, raw requests and event streams, to a process or to a door in the test process.

use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::events::TestEventStream;
use crate::raw::{self, RawConnection, RawResponse};

/// The port and token of a daemon, and methods to call it.
#[derive(Debug)]
pub struct DaemonClient {
    port: u16,
    token: Option<String>,
    last_id: AtomicU64,
}

impl DaemonClient {
    /// A client for a port of 127.0.0.1; without a token for `--no-auth`.
    pub fn new(port: u16, token: Option<String>) -> Self {
        Self { port, token, last_id: AtomicU64::new(0) }
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The bearer token that clients must send; none with `--no-auth`.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// `http://127.0.0.1:PORT`.
    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// A new TCP connection with TCP_NODELAY, whose reads and writes time out after 60 s.
    pub fn connect(&self) -> TcpStream {
        raw::connect(self.port)
    }

    /// Subscribes to the events at a path; panics if the daemon rejects it. `after` is sent as `Last-Event-ID`.
    pub fn events(&self, path: &str, after: Option<u64>) -> TestEventStream {
        let stream = TestEventStream::open(self.port, path, self.token(), after);
        stream.unwrap_or_else(|cause| panic!("no events at {path}: {cause}"))
    }

    /// A new connection for several requests.
    pub fn connection(&self) -> RawConnection {
        RawConnection::open(self.port)
    }

    /// Sends bytes on a new connection and reads one response.
    pub fn send_raw(&self, bytes: &[u8]) -> RawResponse {
        let mut connection = self.connection();
        // A daemon that rejects a request may close before it has read all of it; only the response counts.
        let sent = connection.try_send(bytes);
        let response = if bytes.starts_with(b"HEAD ") {
            connection.read_head_response()
        } else {
            connection.try_read_response()
        };
        response.unwrap_or_else(|cause| panic!("no complete response: {cause}; sending: {sent:?}"))
    }

    /// Posts a body on a new connection. Host, Content-Length and the token are added unless `headers` has them.
    pub fn post(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> RawResponse {
        self.send_raw(&self.post_bytes(path, headers, body))
    }

    /// The bytes that `post` sends, for tests that split or pipeline them.
    pub fn post_bytes(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
        let defaults = [
            ("Host", Some(format!("127.0.0.1:{}", self.port))),
            ("Content-Length", Some(body.len().to_string())),
            ("Authorization", self.token.as_ref().map(|token| format!("Bearer {token}"))),
        ];
        let mut head = format!("POST {path} HTTP/1.1\r\n");
        for (name, value) in defaults {
            let given = headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
            if let Some(value) = value.filter(|_| !given) {
                head += &format!("{name}: {value}\r\n");
            }
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        [head.as_bytes(), b"\r\n", body].concat()
    }

    /// Calls a JSON-RPC method and returns the whole response object; panics if the status is not 200.
    pub fn call(&self, path: &str, method: &str, params: Value) -> Value {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let headers = [("Content-Type", "application/json")];
        let http_response = self.post(path, &headers, rpc_request(id, method, params).as_bytes());
        assert_eq!(http_response.status, 200, "{method} on {path}: {}", http_response.text());
        let response = http_response.json();
        assert_eq!(response["id"], id, "{method} on {path} has another response id: {response}");
        response
    }

    /// Calls a JSON-RPC method and returns its result; panics on an error response.
    pub fn call_result(&self, path: &str, method: &str, params: Value) -> Value {
        let mut response = self.call(path, method, params);
        let error = response.get("error").filter(|error| !error.is_null());
        assert!(error.is_none(), "{method} on {path} failed: {}", error.unwrap_or(&Value::Null));
        response["result"].take()
    }
}

/// The body of a JSON-RPC request.
pub fn rpc_request(id: impl Into<Value>, method: &str, params: Value) -> String {
    let mut request = json!({ "jsonrpc": "2.0", "id": id.into(), "method": method });
    request["params"] = params;
    request.to_string()
}
