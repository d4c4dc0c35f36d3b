//! The daemon under test: the real binary as a process with its own home, and methods to call it.
//! `daemon/start.rs` starts it; `daemon/stopped.rs` restarts it.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::events::TestEventStream;
use crate::process::captured_output::OutputWait;
use crate::process::{PROCESS_TIMEOUT, Process};
use crate::raw::{self, RawConnection, RawResponse};

mod start;
mod stopped;

pub use start::{FailedStart, StartingDaemon, TestDaemonBuilder};
pub use stopped::StoppedDaemon;

/// A running daemon. Dropping it kills the process and removes its temporary directory.
#[derive(Debug)]
pub struct TestDaemon {
    process: Process,
    port: u16,
    home: PathBuf,
    token: Option<String>,
    last_id: AtomicU64,
    builder: TestDaemonBuilder,
    /// Last, so that it is removed after the process has ended.
    directory: TempDir,
}

impl TestDaemon {
    /// Prepares `BINARY serve` on a free port; tests pass `env!("CARGO_BIN_EXE_nexus3")`.
    pub fn builder(binary: impl Into<PathBuf>) -> TestDaemonBuilder {
        TestDaemonBuilder::new(binary.into())
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The daemon's home directory.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The bearer token that the daemon wrote at startup; none with `--no-auth`.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// `http://127.0.0.1:PORT`.
    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Stdout so far.
    pub fn stdout(&self) -> String {
        self.process.stdout.text()
    }

    /// Stderr so far.
    pub fn stderr(&self) -> String {
        self.process.stderr.text()
    }

    /// Waits until stderr contains `text`; panics after 60 s, or when stderr is closed.
    pub fn wait_stderr(&self, text: &str) {
        match self.process.stderr.wait(PROCESS_TIMEOUT, |all| all.contains(text).then_some(())) {
            OutputWait::Found(()) => {}
            OutputWait::Closed => panic!("stderr ended without {text:?}{}", self.process),
            OutputWait::TimedOut => {
                panic!("stderr has no {text:?} after {PROCESS_TIMEOUT:?}{}", self.process)
            }
        }
    }

    /// A new TCP connection with TCP_NODELAY, whose reads and writes time out after 60 s.
    pub fn connect(&self) -> TcpStream {
        raw::connect(self.port)
    }

    /// Subscribes to the events at a path; panics if the daemon rejects it. `after` is sent as `Last-Event-ID`.
    pub fn events(&self, path: &str, after: Option<u64>) -> TestEventStream {
        let stream = TestEventStream::open(self.port, path, self.token(), after);
        stream.unwrap_or_else(|cause| panic!("no events at {path}: {cause}{}", self.process))
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
        response.unwrap_or_else(|cause| {
            panic!("no complete response: {cause}; sending: {sent:?}{}", self.process)
        })
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
        let mut request = json!({ "jsonrpc": "2.0", "id": id, "method": method });
        request["params"] = params;
        let headers = [("Content-Type", "application/json")];
        let http_response = self.post(path, &headers, request.to_string().as_bytes());
        assert_eq!(http_response.status, 200, "{method} on {path}: {}{}", http_response.text(), self.process);
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

    /// Sends a signal by its name, such as `SIGTERM`; panics if the daemon has exited.
    pub fn signal(&self, name: &str) {
        let sent = self.process.signal(parse_signal(name));
        assert!(sent, "no daemon to send {name} to{}", self.process);
    }

    /// Waits for the exit; panics after 60 s.
    pub fn wait_exit(&self) -> ExitStatus {
        let status = self.process.wait_exit();
        status.unwrap_or_else(|| panic!("the daemon did not exit within {PROCESS_TIMEOUT:?}{}", self.process))
    }

    /// Resident anonymous memory, without file-backed pages, which the kernel loads and evicts at will.
    pub fn anonymous_memory_kb(&self) -> u64 {
        let path = format!("/proc/{}/status", self.pid());
        let status = fs::read_to_string(path).expect("a running process has a status");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kb = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok());
        kb.expect("a running process has resident memory")
    }

    /// The number of open file descriptors.
    pub fn open_fds(&self) -> usize {
        let path = format!("/proc/{}/fd", self.pid());
        fs::read_dir(path).expect("a running process lists its descriptors").count()
    }
}

fn parse_signal(name: &str) -> Signal {
    match name {
        "SIGTERM" => Signal::TERM,
        "SIGINT" => Signal::INT,
        "SIGKILL" => Signal::KILL,
        "SIGSTOP" => Signal::STOP,
        "SIGCONT" => Signal::CONT,
        "SIGHUP" => Signal::HUP,
        "SIGQUIT" => Signal::QUIT,
        "SIGPIPE" => Signal::PIPE,
        "SIGUSR1" => Signal::USR1,
        "SIGUSR2" => Signal::USR2,
        _ => panic!("unknown signal {name}"),
    }
}
