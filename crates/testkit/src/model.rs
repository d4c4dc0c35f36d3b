//! The scripted model: a loopback HTTP server that does what the last user message says, over OpenAI's Chat
//! Completions, OpenAI's Responses and Anthropic's Messages.
//! This file holds the test's handle; `script` parses the commands, `shared_state` has the counters and waits.

mod encoder;
mod ledger;
mod request;
mod response;
mod response_body;
mod schema;
pub(crate) mod script;
mod server;
mod shared_state;

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::oneshot;

pub use ledger::{CallCounts, Ledger, RoundKey};
use server::Server;
pub use shared_state::RecordedRequest;
use shared_state::SharedState;

use crate::tls;

/// Deadline for everything a test waits for the model to receive.
const WAIT_MAX: Duration = crate::process::PROCESS_TIMEOUT;

/// Options of a scripted model.
#[derive(Debug, Clone)]
pub struct ModelOptions {
    /// The port on 127.0.0.1; 0 selects a free one.
    pub port: u16,
    /// The API key that clients must send, as `Authorization: Bearer`, Anthropic's `x-api-key` or Azure's `api-key`;
    /// none disables authentication.
    pub key: Option<String>,
    /// Whether the model obeys prompt injections: it calls each tool that a line with `!tool NAME {JSON}` names, in the
    /// system prompt, in any message or in a tool result.
    pub follow_injections: bool,
    /// Whether requests are recorded. Benchmarks turn it off: millions of them would fill the memory.
    pub record_requests: bool,
    /// Whether calls are counted per round. Benchmarks turn it off.
    pub record_ledger: bool,
    /// Whether it serves TLS, with a certificate signed by `TLS_CA_PEM`.
    pub tls: bool,
}

impl Default for ModelOptions {
    fn default() -> Self {
        Self {
            port: 0,
            key: None,
            follow_injections: false,
            record_requests: true,
            record_ledger: true,
            tls: false,
        }
    }
}

/// A scripted model over real HTTP. Dropping it stops the server and its thread.
#[derive(Debug)]
pub struct ScriptedModel {
    base_url: String,
    port: u16,
    key: Option<String>,
    shared: Arc<SharedState>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ScriptedModel {
    /// Starts a model on a free port, without authentication.
    pub fn start() -> Self {
        Self::open(ModelOptions::default()).expect("the scripted model takes a free port")
    }

    /// Starts a model on a free port that responds 401 to requests without this key.
    pub fn with_key(key: &str) -> Self {
        Self::open(ModelOptions { key: Some(key.to_owned()), ..ModelOptions::default() })
            .expect("the scripted model takes a free port")
    }

    /// Starts a model on a free port that obeys prompt injections.
    pub fn injectable() -> Self {
        Self::open(ModelOptions { follow_injections: true, ..ModelOptions::default() })
            .expect("the scripted model takes a free port")
    }

    /// Starts a model on a free port that serves TLS, with a certificate signed by `TLS_CA_PEM`.
    pub fn with_tls() -> Self {
        Self::open(ModelOptions { tls: true, ..ModelOptions::default() })
            .expect("the scripted model takes a free port")
    }

    /// Starts a model with these options; fails if the port is in use.
    pub fn open(options: ModelOptions) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, options.port)))?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(SharedState::new(options.record_requests, options.record_ledger));
        let tls = options.tls.then(tls::acceptor);
        let server = Server::new(options.key.clone(), options.follow_injections, tls, Arc::clone(&shared));
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name(format!("scripted-model-{port}"))
            .spawn(move || runtime.block_on(server.run(listener, stopped)))?;
        Ok(Self {
            base_url: format!("{}://127.0.0.1:{port}/v1", if options.tls { "https" } else { "http" }),
            port,
            key: options.key,
            shared,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// The base URL for OpenAI clients: `http://127.0.0.1:PORT/v1`, or https with TLS.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// The base URL for Anthropic clients, without TLS: `http://127.0.0.1:PORT`.
    pub fn anthropic_base_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The API key that clients must send.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Sets the response to a last user message that equals `prompt`; takes precedence over script commands.
    pub fn set_response(&self, prompt: &str, response: &str) {
        self.shared.set_response(prompt, response);
    }

    /// Every request so far, whatever its response; oldest first.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.requests()
    }

    /// Request and response counts of every round so far.
    pub fn ledger(&self) -> Ledger {
        self.shared.ledger()
    }

    /// Request and response counts of one round so far.
    pub fn call_counts(&self, user: &str, round: usize) -> CallCounts {
        self.shared.call_counts(user, round)
    }

    /// Waits until the model has received `n` requests of a round, counted since the start.
    pub fn wait_called(&self, user: &str, round: usize, n: usize) {
        self.shared.wait_called(WAIT_MAX, &RoundKey { user: user.to_owned(), round }, n);
    }

    /// The number of connections accepted so far.
    pub fn connections(&self) -> usize {
        self.shared.counts().connections
    }

    /// The number of requests so far whose client disconnected before the response ended.
    pub fn aborted(&self) -> usize {
        self.shared.counts().aborted
    }

    /// Waits until `n` requests have arrived, counted since the start.
    pub fn wait_requests(&self, n: usize) {
        self.shared.wait(WAIT_MAX, "requests", n, |counts| counts.requests);
    }

    /// Waits until at least `n` requests hang at the same time (stall, hold or silent).
    pub fn wait_stalled(&self, n: usize) {
        self.shared.wait(WAIT_MAX, "stalled requests", n, |counts| counts.stalled);
    }

    /// Waits until the clients of `n` requests have disconnected before the response ended, counted since the start.
    pub fn wait_aborted(&self, n: usize) {
        self.shared.wait(WAIT_MAX, "aborted requests", n, |counts| counts.aborted);
    }

    /// Releases every `!hold NAME`, current and future.
    pub fn release(&self, name: &str) {
        self.shared.release(name);
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the server thread was printed already; another one here would abort the test run.
            let _ = thread.join();
        }
    }
}
