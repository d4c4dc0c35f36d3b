//! The scripted model: a server on loopback whose messages tell it what to do, in the words of OpenAI's chat completions,
//! OpenAI's Responses or Anthropic's Messages.
//! This file is the handle that a test holds; the words are in `script`, the waits in `observed`.

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

/// How long a test waits for what it expects the model to see.
const WAIT_MAX: Duration = crate::process::PROCESS_TIMEOUT;

/// How a scripted model is opened, where the defaults do not fit.
#[derive(Debug, Clone)]
pub struct ModelOptions {
    /// The port on 127.0.0.1; 0 takes a free one.
    pub port: u16,
    /// The key that callers have to send, as `Authorization: Bearer` or as Anthropic's `x-api-key`; none means that
    /// everybody is welcome.
    pub key: Option<String>,
    /// Whether the model does whatever it reads, wherever it stands: it calls every tool that a line with
    /// `!tool NAME {JSON}` in the system prompt, a message or a result asks for.
    pub follow_injections: bool,
    /// Whether requests stay readable. A benchmark turns it off: millions of them would fill the memory.
    pub record_requests: bool,
    /// Whether questions are counted. A benchmark turns this off too.
    pub record_ledger: bool,
    /// Whether it speaks TLS, with a certificate of `TLS_AUTHORITY`.
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

/// A model over real HTTP that answers as its messages say. Dropping it stops the server and its thread.
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
    /// Starts a model on a free port that asks for no key.
    pub fn start() -> Self {
        Self::open(ModelOptions::default()).expect("the scripted model takes a free port")
    }

    /// Starts a model on a free port that answers 401 to everybody without this bearer key.
    pub fn with_key(key: &str) -> Self {
        Self::open(ModelOptions { key: Some(key.to_owned()), ..ModelOptions::default() })
            .expect("the scripted model takes a free port")
    }

    /// Starts a model on a free port that does whatever it reads.
    pub fn injectable() -> Self {
        Self::open(ModelOptions { follow_injections: true, ..ModelOptions::default() })
            .expect("the scripted model takes a free port")
    }

    /// Starts a model on a free port that speaks TLS, with a certificate of `TLS_AUTHORITY`.
    pub fn with_tls() -> Self {
        Self::open(ModelOptions { tls: true, ..ModelOptions::default() })
            .expect("the scripted model takes a free port")
    }

    /// Starts a model as told; fails when the port is taken.
    pub fn open(options: ModelOptions) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, options.port)))?;
        let port = listener.local_addr()?.port();
        let observed = Arc::new(SharedState::new(options.record_requests, options.record_ledger));
        let tls = options.tls.then(tls::acceptor);
        let server = Server::new(options.key.clone(), options.follow_injections, tls, Arc::clone(&observed));
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name(format!("scripted-model-{port}"))
            .spawn(move || runtime.block_on(server.run(listener, stopped)))?;
        Ok(Self {
            base_url: format!("{}://127.0.0.1:{port}/v1", if options.tls { "https" } else { "http" }),
            port,
            key: options.key,
            shared: observed,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// What a client takes as the API's base: `http://127.0.0.1:PORT/v1`, or https over TLS.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// What a client of Anthropic's takes as the API's base: `http://127.0.0.1:PORT`.
    pub fn anthropic_base_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The bearer key that callers have to send.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// From now on a last user message that is exactly `prompt` gets `reply`, before any script word is looked for.
    pub fn set_response(&self, prompt: &str, reply: &str) {
        self.shared.set_response(prompt, reply);
    }

    /// Every request so far, whatever it was answered; oldest first.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.requests()
    }

    /// Every question so far, and how often it was asked and answered.
    pub fn ledger(&self) -> Ledger {
        self.shared.ledger()
    }

    /// How often one question was asked and answered so far.
    pub fn call_counts(&self, user: &str, round: usize) -> CallCounts {
        self.shared.call_counts(user, round)
    }

    /// Waits until a question was asked so often, counted since the start.
    pub fn wait_called(&self, user: &str, round: usize, n: usize) {
        self.shared.wait_called(WAIT_MAX, &RoundKey { user: user.to_owned(), round }, n);
    }

    /// How many connections were accepted so far.
    pub fn connections(&self) -> usize {
        self.shared.counts().connections
    }

    /// How many requests' clients went away before their answer ended, so far.
    pub fn aborted(&self) -> usize {
        self.shared.counts().aborted
    }

    /// Waits until `n` requests have arrived, counted since the start.
    pub fn wait_requests(&self, n: usize) {
        self.shared.wait(WAIT_MAX, "requests", n, |counts| counts.requests);
    }

    /// Waits until at least `n` requests are stalled, held or silent at the same time.
    pub fn wait_stalled(&self, n: usize) {
        self.shared.wait(WAIT_MAX, "stalled requests", n, |counts| counts.stalled);
    }

    /// Waits until the clients of `n` requests went away before their answer ended, counted since the start.
    pub fn wait_aborted(&self, n: usize) {
        self.shared.wait(WAIT_MAX, "aborted requests", n, |counts| counts.aborted);
    }

    /// Lets every `!hold NAME` go on: those that wait now and those that come later.
    pub fn release(&self, name: &str) {
        self.shared.release(name);
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the server was printed when it happened; a second one here would abort the test run.
            let _ = thread.join();
        }
    }
}
