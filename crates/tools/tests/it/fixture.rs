//! An agent that calls tools, and peers that record their calls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use agent::journal::{ApprovalAnswer, ApprovalRequest, Serial};
use agent::outside::{
    BoxFuture, CachedResults, CallSite, ChangeRecorder, CreatedPeer, KeyValues, Namespace, NewAnswer,
    NewChanges, NewPeer, PeerResponse, PeerStatus, Peers, PendingApproval, PlanKeeper, ResultChunk,
    Timestamp, ToolContext, ToolOutputSink, ToolOutputStream, Toolbox, Workspace,
};
use agent::permission::{
    DirectorySet, FilePath, Grant, Grantor, Relation, RuleAction, RuleEntry, Verdict, judge,
};
use agent::{AgentId, Fault, FaultKind, PrincipalId, RequestId, TodoItem, ToolOutcome};
use sandbox::{Helper, ResourceLimits};
use serde_json::Value;
use store::MemoryStore;
use testkit::{CountingEntropy, TestClock};
use tools::{
    CommandOptions, CommandRunner, CustomTool, CustomToolSettings, LocalWorkspace, NetworkClient,
    NetworkOptions, ToolDependencies, ToolRegistry,
};

/// The agent `me` with a grant.
pub(crate) struct Fixture {
    pub(crate) registry: ToolRegistry,
    pub(crate) commands: Arc<CommandRunner>,
    pub(crate) network: Arc<NetworkClient>,
    pub(crate) peers: Arc<RecordingPeers>,
    pub(crate) output: Arc<RecordingSink>,
    pub(crate) plan: Arc<RecordingPlan>,
    pub(crate) changes: Arc<RecordingChanges>,
    values: Arc<MemoryStore>,
    pub(crate) clock: Arc<TestClock>,
    cwd: FilePath,
    pub(crate) grant: Grant,
    /// The serial of the agent.
    pub(crate) serial: Serial,
}

pub(crate) fn path(text: &str) -> FilePath {
    FilePath::resolve(text, &FilePath::root()).expect("a path")
}

pub(crate) fn done(text: impl Into<String>) -> ToolOutcome {
    ToolOutcome::Done(text.into())
}

pub(crate) fn failed(text: impl Into<String>) -> ToolOutcome {
    ToolOutcome::Failed(text.into())
}

/// The sandbox helper of the tests.
pub(crate) fn helper() -> Helper {
    Helper {
        program: env!("CARGO_BIN_EXE_tools-sandbox-helper").into(),
        arguments: vec![sandbox::HELPER_ARGUMENT.to_owned()],
    }
}

/// A runner of commands in the sandbox, with the helper of the tests.
pub(crate) fn command_runner() -> Arc<CommandRunner> {
    runner_with_path("/usr/local/bin:/usr/bin:/bin")
}

fn runner_with_path(search_path: &str) -> Arc<CommandRunner> {
    Arc::new(CommandRunner::new(CommandOptions {
        helper: helper(),
        unconfined_environment: Vec::new(),
        environment: vec![("PATH".to_owned(), search_path.to_owned())],
        readable_directories: Vec::new(),
        temporary_directory: std::env::temp_dir(),
        limits: ResourceLimits::default(),
    }))
}

impl Fixture {
    /// An agent with every grant, except that it reads and writes only in its working directory.
    pub(crate) fn confined_to(cwd: &str) -> Self {
        let directories = DirectorySet::from_roots([path(cwd)]);
        let identities = LocalWorkspace::new(None).identify_directory(&path(cwd)).into_iter().collect();
        let grant =
            Grant { read: directories.clone(), write: directories, identities, ..Grant::everything() };
        Self::with_grant(cwd, grant)
    }

    pub(crate) fn with_grant(cwd: &str, grant: Grant) -> Self {
        Self::with_network(cwd, grant, NetworkOptions::default())
    }

    /// An agent whose connections have these options, and which runs no commands.
    pub(crate) fn with_network(cwd: &str, grant: Grant, options: NetworkOptions) -> Self {
        let runner = Arc::new(CommandRunner::refusing("this test runs no commands"));
        Self::with_runner(cwd, grant, &runner, NetworkClient::new(options))
    }

    /// An agent that runs commands in the sandbox.
    pub(crate) fn with_commands(cwd: &str, grant: Grant) -> Self {
        Self::with_runner(cwd, grant, &command_runner(), NetworkClient::default())
    }

    /// An agent that runs commands with another search path.
    pub(crate) fn with_search_path(cwd: &str, grant: Grant, search_path: &str) -> Self {
        Self::with_runner(cwd, grant, &runner_with_path(search_path), NetworkClient::default())
    }

    /// An agent with a custom tool.
    pub(crate) fn with_custom_tool(cwd: &str, grant: Grant, settings: &CustomToolSettings) -> Self {
        let commands = command_runner();
        let fixture = Self::with_runner(cwd, grant, &commands, NetworkClient::default());
        let tool = CustomTool::new(settings).expect("a valid definition");
        fixture.registry.add(tool.build(commands, &BTreeMap::new())).expect("a free name");
        fixture
    }

    fn with_runner(cwd: &str, grant: Grant, commands: &Arc<CommandRunner>, network: NetworkClient) -> Self {
        let network = Arc::new(network);
        let clock = Arc::new(TestClock::at(Timestamp(1_700_000_000_123_456)));
        let dependencies = ToolDependencies {
            clock: Arc::clone(&clock) as _,
            entropy: Arc::new(CountingEntropy::default()),
            commands: Arc::clone(commands),
            network: Arc::clone(&network),
        };
        let (registry, cwd) = (ToolRegistry::new(dependencies), path(cwd));
        Self {
            registry,
            commands: Arc::clone(commands),
            network,
            peers: Arc::default(),
            output: Arc::default(),
            plan: Arc::default(),
            changes: Arc::default(),
            values: Arc::default(),
            clock,
            cwd,
            grant,
            serial: 1,
        }
    }

    /// The same agent, which runs commands in the sandbox.
    pub(crate) fn running_commands(self) -> Self {
        Self::with_commands(self.cwd.as_str(), self.grant)
    }

    pub(crate) async fn call(&self, tool: &str, arguments: &Value) -> ToolOutcome {
        self.call_text(tool, &arguments.to_string()).await
    }

    /// Calls a tool as the runtime does: prepare, judge, run.
    pub(crate) async fn call_text(&self, tool: &str, arguments: &str) -> ToolOutcome {
        let me = AgentId::parse("me").expect("a valid id");
        let site = CallSite {
            agent: &me,
            serial: self.serial,
            cwd: &self.cwd,
            relation_to: &relation_to,
            preset_inheritance: &preset_inheritance,
        };
        let tools = self.registry.snapshot();
        let tool = tools.find(tool).expect("a tool of that name");
        let prepared = match tool.prepare(arguments, &site) {
            Ok(prepared) => prepared,
            Err(text) => return ToolOutcome::Failed(text),
        };
        match judge(&prepared.effects(), &self.grant) {
            Verdict::Allowed(permit) => {
                let peers: Arc<dyn Peers> = Arc::clone(&self.peers) as _;
                let values = KeyValues::new(Arc::clone(&self.values) as _, Namespace::User);
                let context = ToolContext {
                    agent: self.serial,
                    permit,
                    peers,
                    results: Arc::new(OneResult),
                    output: Arc::clone(&self.output) as _,
                    values,
                    plan: Arc::clone(&self.plan) as _,
                    changes: Arc::clone(&self.changes) as _,
                };
                prepared.run(context).await
            }
            Verdict::Denied(denial) => ToolOutcome::Denied(denial.text),
        }
    }
}

/// Output as the calls have shown it.
#[derive(Default)]
pub(crate) struct RecordingSink {
    pub(crate) stdout: Mutex<Vec<u8>>,
    pub(crate) stderr: Mutex<Vec<u8>>,
}

impl ToolOutputSink for RecordingSink {
    fn push(&self, stream: ToolOutputStream, bytes: &[u8]) {
        let output = match stream {
            ToolOutputStream::Stdout => &self.stdout,
            ToolOutputStream::Stderr => &self.stderr,
        };
        output.lock().expect("no test panics with the lock").extend(bytes);
    }
}

/// Changes as the calls have recorded them.
#[derive(Default)]
pub(crate) struct RecordingChanges {
    pub(crate) calls: Mutex<Vec<NewChanges>>,
    /// Why the store fails; none if it does not.
    pub(crate) failure: Mutex<Option<String>>,
}

impl ChangeRecorder for RecordingChanges {
    fn record(&self, changes: NewChanges) -> Result<(), String> {
        if let Some(why) = &*self.failure.lock().expect("no test panics with the lock") {
            return Err(why.clone());
        }
        self.calls.lock().expect("no test panics with the lock").push(changes);
        Ok(())
    }
}

/// A plan that records its items.
#[derive(Default)]
pub(crate) struct RecordingPlan {
    pub(crate) items: Mutex<Vec<TodoItem>>,
}

impl PlanKeeper for RecordingPlan {
    fn replace(&self, items: Vec<TodoItem>) -> Result<(), String> {
        *self.items.lock().expect("no test panics with the lock") = items;
        Ok(())
    }
}

/// A cache with one truncated result: ten digits, handle `r1`.
struct OneResult;

impl CachedResults for OneResult {
    fn read(&self, handle: &str, offset: usize, bytes_max: usize) -> Result<ResultChunk, String> {
        let text = "0123456789";
        if handle != "r1" {
            return Err(format!("there is no result '{handle}' any more"));
        }
        let end = text.len().min(offset + bytes_max);
        Ok(ResultChunk { text: text[offset..end].to_owned(), offset, bytes_total: text.len() })
    }
}

fn relation_to(id: &AgentId) -> Relation {
    match id.as_str() {
        "me" => Relation::Itself,
        "boss" => Relation::Parent,
        id if id.starts_with("child") => Relation::Descendant,
        _ => Relation::Other,
    }
}

fn preset_inheritance(name: Option<&str>) -> Vec<Arc<str>> {
    match name {
        None | Some("sandboxed") => vec!["sandboxed".into()],
        Some("reader") => vec!["reader".into(), "sandboxed".into()],
        Some(_) => Vec::new(),
    }
}

/// Peers that record their calls. `child-gone` does not exist, `child-closed` denies.
#[derive(Default)]
pub(crate) struct RecordingPeers {
    pub(crate) calls: Mutex<Vec<String>>,
    pub(crate) created: Mutex<Vec<NewPeer>>,
}

impl RecordingPeers {
    fn record_call(&self, id: &AgentId, what: String) -> Result<(), Fault> {
        self.calls.lock().expect("no test panics with the lock").push(what);
        match id.as_str() {
            "child-gone" => Err(Fault::new(FaultKind::NotFound, "Agent not found: child-gone")),
            "child-closed" => Err(Fault::new(FaultKind::Denied, "child-closed is closed")),
            _ => Ok(()),
        }
    }

    fn status_of(id: &AgentId) -> PeerStatus {
        PeerStatus {
            id: id.clone(),
            parent: (id.as_str() != "me").then(|| AgentId::parse("me").expect("a valid id")),
            preset: "sandboxed".into(),
            message_count: 3,
            is_working: true,
            queued: 2,
            halted: None,
        }
    }
}

fn peer_response(wait: bool) -> PeerResponse {
    let request_id = RequestId::Text("r1".into());
    let content = if wait { "hello" } else { "" }.to_owned();
    PeerResponse { content, request_id, cancelled: false, halted: None, queued: !wait }
}

impl Peers for RecordingPeers {
    fn create(&self, new: NewPeer) -> BoxFuture<'_, Result<CreatedPeer, Fault>> {
        let id = new.id.clone().unwrap_or_else(|| AgentId::parse("made-up").expect("a valid id"));
        let recorded = self.record_call(&id, format!("create {id}"));
        self.created.lock().expect("no test panics with the lock").push(new.clone());
        Box::pin(async move {
            recorded?;
            let response = match new.initial_message.as_deref() {
                Some("fail") if new.wait => Some(Err(Fault::new(FaultKind::Model, "the model failed"))),
                Some(_) if new.wait => Some(Ok(peer_response(true))),
                _ => None,
            };
            let initial_request_id = new.initial_message.map(|_| RequestId::Number(7));
            Ok(CreatedPeer { id, initial_request_id, response })
        })
    }

    fn send(&self, to: AgentId, content: String, wait: bool) -> BoxFuture<'_, Result<PeerResponse, Fault>> {
        let recorded = self.record_call(&to, format!("send {to} {content} {wait}"));
        let is_halted = content == "halt";
        Box::pin(async move {
            recorded?;
            let halted = is_halted.then_some("iteration_limit");
            Ok(PeerResponse { halted, cancelled: is_halted, ..peer_response(wait) })
        })
    }

    fn status(&self, of: AgentId) -> BoxFuture<'_, Result<PeerStatus, Fault>> {
        let recorded = self.record_call(&of, format!("status {of}"));
        Box::pin(std::future::ready(recorded.map(|()| Self::status_of(&of))))
    }

    fn cancel(&self, at: AgentId, request_id: RequestId) -> BoxFuture<'_, Result<bool, Fault>> {
        let recorded = self.record_call(&at, format!("cancel {at} {request_id:?}"));
        Box::pin(async move { recorded.map(|()| request_id != RequestId::Text("gone".into())) })
    }

    fn destroy(&self, agent: AgentId) -> BoxFuture<'_, Result<bool, Fault>> {
        let recorded = self.record_call(&agent, format!("destroy {agent}"));
        Box::pin(async move { recorded.map(|()| agent.as_str() != "child-unknown") })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<PeerStatus>, Fault>> {
        let agents = ["me", "child"].map(|id| Self::status_of(&AgentId::parse(id).expect("a valid id")));
        Box::pin(std::future::ready(Ok(agents.into())))
    }

    fn approvals(&self, wait_secs: u64) -> BoxFuture<'_, Result<Vec<PendingApproval>, Fault>> {
        let recorded = self.record_call(&AgentId::main(), format!("approvals {wait_secs}"));
        let request = ApprovalRequest {
            id: "a1".to_owned(),
            turn: 1,
            index: 0,
            call_id: "c1".to_owned(),
            tool: "cmd.exec".to_owned(),
            arguments: r#"{"command":"make"}"#.to_owned(),
            effects: vec!["run make in /w outside the sandbox".to_owned()],
            reason: "it leaves the sandbox".to_owned(),
            asked_at: Timestamp(0),
            expires_at: Timestamp(600_000_000),
        };
        let agent = AgentId::parse("child").expect("a valid id");
        Box::pin(std::future::ready(
            recorded
                .map(|()| vec![PendingApproval { agent, ancestors: Vec::new(), request: request.into() }]),
        ))
    }

    fn answer_approval(&self, id: String, answer: NewAnswer) -> BoxFuture<'_, Result<ApprovalAnswer, Fault>> {
        let NewAnswer { is_allowed, scope, rule, note } = answer;
        let rule_text = rule.as_ref().map(ToString::to_string);
        let recorded = self.record_call(
            &AgentId::main(),
            format!("answer {id} {is_allowed} {scope:?} {rule_text:?} {note:?}"),
        );
        let rule = rule.map(|rule| RuleEntry::of_creator(RuleAction::Allow, rule));
        let (by, grantor) = (PrincipalId::Admin, Grantor::Admin);
        let answer = ApprovalAnswer { id, turn: 1, index: 0, is_allowed, by, grantor, rule, note };
        Box::pin(std::future::ready(recorded.map(|()| answer)))
    }
}
