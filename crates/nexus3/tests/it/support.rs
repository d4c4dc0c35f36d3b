//! Shared fixtures: a daemon with its scripted model, checks of value formats, and polling for conditions without an
//! event. Pending calls are in `pending_calls`, calls by agents in `callers`, child processes in `program`, model
//! requests in `model_requests`, denials in `audit`, agents' directories in `folder`.

pub(crate) mod audit;
pub(crate) mod callers;
pub(crate) mod folder;
pub(crate) mod model_requests;
pub(crate) mod pending_calls;
pub(crate) mod program;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use agent::ToolSpec;
use serde_json::{Value, json};
use testkit::{ScriptedModel, TestDaemon, TestDaemonBuilder};

use self::pending_calls::PendingCalls;

/// The binary under test.
pub(crate) const BIN: &str = env!("CARGO_BIN_EXE_nexus3");

/// A model with a window for very long texts; agents select it as `big`.
pub(crate) const LARGE_WINDOW_CONFIG: &str =
    "[models.big]\nmodel = \"openai/scripted\"\nwindow_tokens = 100000000\n";

/// The time limit of every wait.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(60);

/// A daemon and its scripted model.
pub(crate) struct Fixture {
    /// First field, so that it is dropped before the model.
    pub(crate) daemon: TestDaemon,
    pub(crate) model: ScriptedModel,
}

impl Fixture {
    pub(crate) fn start() -> Self {
        Self::with_config("")
    }

    /// Starts a daemon with this `config.toml`.
    pub(crate) fn with_config(config: &str) -> Self {
        let model = ScriptedModel::start();
        let daemon = daemon_builder(&model).config(config).start();
        Self { daemon, model }
    }

    pub(crate) fn create(&self, id: &str) {
        self.create_with(json!({ "agent_id": id }));
    }

    /// Creates an agent with these parameters and returns its capability token.
    pub(crate) fn create_with(&self, params: Value) -> String {
        let created = self.daemon.call_result("/", "create_agent", params);
        created["token"].as_str().expect("a created agent has a token").to_owned()
    }

    /// Sends a message and returns the result.
    pub(crate) fn send(&self, agent: &str, content: &str) -> Value {
        self.daemon.call_result(&agent_path(agent), "send", json!({ "content": content }))
    }

    /// Sends a message and returns the content of the response.
    pub(crate) fn send_text(&self, agent: &str, content: &str) -> String {
        let result = self.send(agent, content);
        result["content"].as_str().expect("a response has content").to_owned()
    }

    /// The result of `get_agent`.
    pub(crate) fn agent(&self, id: &str) -> Value {
        self.daemon.call_result(&agent_path(id), "get_agent", json!({}))
    }

    /// The result of `get_permissions`.
    pub(crate) fn permissions(&self, id: &str) -> Value {
        self.daemon.call_result(&agent_path(id), "get_permissions", json!({}))
    }

    pub(crate) fn set_permissions(&self, id: &str, params: Value) -> Value {
        self.daemon.call_result(&agent_path(id), "set_permissions", params)
    }

    /// One resource of an agent's budget: limit, used, reserved, left.
    pub(crate) fn resource_usage(&self, id: &str, resource: &str) -> [Value; 4] {
        let permissions = self.permissions(id);
        let holdings = permissions["budget"].as_array().expect("a list of resources");
        let found = holdings.iter().find(|holding| holding["resource"] == resource);
        let found = found.expect("the resource is listed");
        ["limit", "used", "reserved", "left"].map(|name| found[name].clone())
    }

    /// Sends a message and returns the error that the response must have.
    pub(crate) fn send_expecting_error(&self, agent: &str, content: &str) -> Value {
        self.daemon.error(&agent_path(agent), "send", json!({ "content": content }))
    }

    /// Starts a send and does not wait for its response.
    pub(crate) fn start_send(&self, agent: &str, content: &str, request_id: &str) -> PendingCalls {
        let params = json!({ "content": content, "request_id": request_id });
        PendingCalls::single(&self.daemon, &agent_path(agent), "send", params)
    }

    /// Starts a send behind a running turn and returns when it is queued.
    pub(crate) fn enqueue_send(&self, agent: &str, content: &str, request_id: &str) -> PendingCalls {
        self.start_until_accepted(agent, request_id, || self.start_send(agent, content, request_id))
    }

    /// Starts a send with this request id and returns when the daemon has accepted it: the journal records that before
    /// the turn begins.
    pub(crate) fn start_until_accepted<T>(
        &self,
        agent: &str,
        request_id: &str,
        start: impl FnOnce() -> T,
    ) -> T {
        let events = format!("{}/events?kind=turn_accepted", agent_path(agent));
        let mut events = self.daemon.events(&events, None);
        let started = start();
        while events.next_event(WAIT_MAX).json()["request_id"] != request_id {}
        started
    }

    pub(crate) fn cancel(&self, agent: &str, request_id: impl Into<Value>) -> Value {
        self.daemon.call_result(&agent_path(agent), "cancel", json!({ "request_id": request_id.into() }))
    }

    pub(crate) fn context(&self, agent: &str) -> Value {
        self.daemon.call_result(&agent_path(agent), "get_context", json!({}))
    }

    /// All messages of an agent, as role and content.
    pub(crate) fn messages(&self, agent: &str) -> Vec<(String, String)> {
        let page = self.daemon.call_result(&agent_path(agent), "get_messages", json!({ "limit": 2000 }));
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let messages = page["messages"].as_array().expect("a list of messages");
        messages.iter().map(|message| (text(&message["role"]), text(&message["content"]))).collect()
    }

    /// Waits until the daemon has read this text from the model. Needs `log.raw`: before the turn ends, the streamed
    /// text appears only in the raw log.
    pub(crate) fn wait_streamed(&self, agent: &str, text: &str) {
        let raw = log_file(&self.daemon, agent, "raw.jsonl");
        let chunk = format!("\"content\":\"{text}\"");
        wait_until(&format!("{text:?} in {}", raw.display()), || {
            self.context(agent);
            fs::read_to_string(&raw).is_ok_and(|all| all.contains(&chunk))
        });
    }
}

/// Prepares a daemon that uses this model.
pub(crate) fn daemon_builder(model: &ScriptedModel) -> TestDaemonBuilder {
    TestDaemon::builder(BIN).model(model)
}

pub(crate) fn agent_path(agent: &str) -> String {
    format!("/agent/{agent}")
}

pub(crate) fn log_file(daemon: &TestDaemon, agent: &str, name: &str) -> PathBuf {
    daemon.home().join("logs").join(agent).join(name)
}

/// The error of a method, whatever its HTTP status is.
pub(crate) trait ExpectError {
    fn error(&self, path: &str, method: &str, params: Value) -> Value;
}

impl ExpectError for TestDaemon {
    fn error(&self, path: &str, method: &str, params: Value) -> Value {
        let mut response = self.call(path, method, params);
        assert!(response.get("result").is_none(), "{method} on {path} should fail: {response}");
        response["error"].take()
    }
}

/// The ids in `list_agents`, in order.
pub(crate) fn agent_ids(daemon: &TestDaemon) -> Vec<String> {
    let list = daemon.call_result("/", "list_agents", json!({}));
    let agents = list["agents"].as_array().expect("a list of agents");
    agents.iter().map(|agent| agent["agent_id"].as_str().expect("an id").to_owned()).collect()
}

/// The names of an object's members, sorted.
pub(crate) fn member_names(value: &Value) -> Vec<&str> {
    let mut names: Vec<_> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

pub(crate) fn is_hex(value: &Value, digits: usize) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    value.as_str().is_some_and(|text| text.len() == digits && text.bytes().all(is_digit))
}

/// `2024-01-15T10:30:00.000000`
pub(crate) fn is_timestamp(value: &Value) -> bool {
    let shape = "dddd-dd-ddTdd:dd:dd.dddddd";
    let fits = |(byte, expected): (u8, u8)| {
        if expected == b'd' { byte.is_ascii_digit() } else { byte == expected }
    };
    value.as_str().is_some_and(|text| text.len() == shape.len() && text.bytes().zip(shape.bytes()).all(fits))
}

/// Polls until the condition holds. Only for conditions without an event. The condition must do I/O, such as a call or
/// a file read, so that the loop does not spin.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < WAIT_MAX, "waited {WAIT_MAX:?} for {what}");
        thread::yield_now();
    }
}

/// `nxc_` and 32 random bytes in base64 for URLs.
pub(crate) fn is_capability_token(value: &Value) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let secret = value.as_str().and_then(|text| text.strip_prefix("nxc_"));
    secret.is_some_and(|secret| secret.len() == 43 && secret.bytes().all(is_letter))
}

/// Checks the result of `create_agent` without an initial message.
pub(crate) fn assert_created(created: &Value, id: &str) {
    assert!(is_capability_token(&created["token"]), "{created}");
    assert_eq!(*created, json!({ "agent_id": id, "url": agent_path(id), "token": created["token"] }));
}

/// All files below a directory, with their content.
pub(crate) fn files_below(directory: &Path) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).expect("the directory can be read") {
        let path = entry.expect("an entry can be read").path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            let bytes = fs::read(&path).expect("the file can be read");
            files.push((path, String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    files
}

/// The tools that run commands: hidden from agents that may run none.
pub(crate) const COMMAND_TOOLS: [&str; 7] = [
    "cmd.exec",
    "process.list",
    "process.read",
    "process.start",
    "process.stop",
    "process.write",
    "shell.exec",
];

/// The tools that connect to hosts: hidden from agents without hosts.
pub(crate) const HOST_TOOLS: [&str; 2] = ["http.request", "web.fetch"];

/// The built-in tools that are offered by default, except these, in the order in which models see them.
pub(crate) fn offered_tools_except(excluded: &[&str]) -> Vec<Arc<ToolSpec>> {
    let mut specs = tools::builtin_specs();
    let is_opt_in = |spec: &ToolSpec| spec.name.starts_with("approvals_");
    specs.retain(|spec| spec.is_offered_by_default && !is_opt_in(spec) && !excluded.contains(&&*spec.name));
    specs
}
