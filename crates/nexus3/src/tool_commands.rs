//! `nexus3 tools` and `nexus3 run`: lists the tools, and runs one with the permissions of a preset, without an agent.

use std::path::Path;
use std::sync::Arc;

use agent::journal::{ApprovalAnswer, Serial};
use agent::outside::{
    BoxFuture, CachedResults, CallSite, CreatedPeer, DiscardedOutput, KeyValues, Namespace, NewAnswer,
    NewPeer, PeerResponse, PeerStatus, Peers, PendingApproval, PlanKeeper, PreparedCall, ResultChunk, Store,
    Tool, ToolContext, Toolbox, Unrecorded, Workspace,
};
use agent::permission::{
    Effect, FilePath, Grant, GrantRequest, HostPattern, Permit, Preset, Relation, Verdict, judge,
};
use agent::{AgentId, Fault, FaultKind, KnownSecrets, RequestId, TodoItem, ToolOutcome, ToolSpec};
use serde_json::{Map, Value, json};
use tools::{LocalWorkspace, NetworkClient, ToolDependencies, ToolRegistry};

use crate::assemble::{blocked_paths, open_store, parse_file_path, tool_registry};
use crate::cli::{RunArgs, ToolsArgs};
use crate::commands::command_runner;
use crate::config::Config;
use crate::home::{self, Environment};
use crate::process::{self, SystemEntropy};
use crate::secrets;
use crate::{Failure, console_runtime, print_stdout};

/// Prints the built-in and custom tools.
pub(crate) fn list(args: &ToolsArgs, config: &Config) -> Result<u8, Failure> {
    let mut specs = tools::builtin_specs();
    let custom = config.custom_tools().map_err(|fault| Failure::Usage(fault.to_string()))?;
    let custom: Vec<Arc<ToolSpec>> = custom.iter().map(|tool| Arc::clone(tool.spec())).collect();
    let is_custom = |spec: &Arc<ToolSpec>| custom.iter().any(|other| other.name == spec.name);
    specs.extend(custom.iter().cloned());
    if args.json {
        let json: Vec<Value> = specs.iter().map(|spec| tool_json(spec, is_custom(spec))).collect();
        let text = serde_json::to_string_pretty(&json).map_err(|fault| Failure::Run(fault.to_string()))?;
        return print_stdout(&format!("{text}\n"));
    }
    let width = specs.iter().map(|spec| spec.name.len()).max().unwrap_or(0);
    let line = |spec: &Arc<ToolSpec>| {
        let summary = spec.description.split_inclusive(". ").next().unwrap_or_default().trim();
        let mark = if is_custom(spec) { "(custom) " } else { "" };
        format!("{:<width$}  {mark}{summary}\n", spec.name)
    };
    print_stdout(&specs.iter().map(line).collect::<String>())
}

fn tool_json(spec: &ToolSpec, is_custom: bool) -> Value {
    let schema: Value = serde_json::from_str(&spec.input_schema).unwrap_or(Value::Null);
    let mut tool = json!({ "name": &*spec.name, "description": &*spec.description, "inputSchema": schema });
    if is_custom {
        tool["custom"] = true.into();
    }
    tool
}

/// Runs one tool and prints its result.
pub(crate) fn run(
    args: &RunArgs,
    home: &Path,
    config: &Config,
    environment: &Environment,
) -> Result<u8, Failure> {
    let session = LocalSession::open(&args.preset, home, config, environment)?;
    let tool = session.find(&args.tool)?;
    refuse_background(tool.spec())?;
    let arguments = call_arguments(args, tool.spec())?;
    let open_store = || open_user_store(home, config, environment);
    let outcome = console_runtime()?.block_on(session.call(&tool, &arguments, open_store))?;
    let outcome = outcome.map_text(|text| session.known_secrets.redact(&text).into_owned());
    let is_error = !matches!(outcome, ToolOutcome::Done(_));
    if args.format == "json" {
        let content = json!({ "content": [{ "type": "text", "text": outcome.text() }], "isError": is_error });
        let text = serde_json::to_string_pretty(&content).map_err(|fault| Failure::Run(fault.to_string()))?;
        print_stdout(&format!("{text}\n"))?;
    } else if is_error {
        return Err(Failure::Run(outcome.text().to_owned()));
    } else {
        print_stdout(&format!("{}\n", outcome.text()))?;
    }
    Ok(u8::from(is_error))
}

/// Refuses tools of background processes: they would end with this command.
fn refuse_background(spec: &ToolSpec) -> Result<(), Failure> {
    if !spec.name.starts_with("process.") {
        return Ok(());
    }
    let text = "background processes belong to agents of a daemon and would end with this command; use cmd.exec or \
                shell.exec";
    Err(Failure::Usage(format!("cannot run {}: {text}", spec.name)))
}

/// The arguments as a JSON object.
fn call_arguments(args: &RunArgs, spec: &ToolSpec) -> Result<String, Failure> {
    if let Some(json) = &args.json_arguments {
        return Ok(json.clone());
    }
    let schema: Value = serde_json::from_str(&spec.input_schema).unwrap_or(Value::Null);
    let mut object = Map::new();
    for argument in &args.arguments {
        let (name, value) = argument.split_once('=').ok_or_else(|| {
            Failure::Usage(format!("cannot read the argument {argument:?}: write NAME=VALUE, or use -a JSON"))
        })?;
        let text = || Value::String(value.to_owned());
        let is_text = is_text(&schema["properties"][name]["type"]);
        let value = if is_text { text() } else { serde_json::from_str(value).unwrap_or_else(|_| text()) };
        object.insert(name.to_owned(), value);
    }
    Ok(Value::Object(object).to_string())
}

/// Whether a schema's type allows text only, apart from null.
fn is_text(schema_type: &Value) -> bool {
    match schema_type {
        Value::String(name) => name == "string",
        Value::Array(names) => {
            names.contains(&"string".into()) && names.iter().all(|name| name == "string" || name == "null")
        }
        _ => false,
    }
}

/// Tools and permissions of a person at the command line.
struct LocalSession {
    registry: ToolRegistry,
    preset: Preset,
    cwd: FilePath,
    agent: AgentId,
    known_secrets: KnownSecrets,
}

impl LocalSession {
    fn open(preset: &str, home: &Path, config: &Config, environment: &Environment) -> Result<Self, Failure> {
        let user_home = home::user_home(environment).and_then(|path| parse_file_path(&path).ok());
        let workspace = LocalWorkspace::new(user_home);
        let dependencies = ToolDependencies {
            clock: process::open_clock(None),
            entropy: Arc::new(SystemEntropy),
            commands: Arc::new(command_runner(config, environment)),
            network: Arc::new(NetworkClient::default()),
        };
        let known_secrets = KnownSecrets::default();
        let secrets = console_runtime()?.block_on(secrets::read(config, environment, &known_secrets))?;
        let registry = tool_registry(config, dependencies, &secrets)?;
        let usage = |fault: String| Failure::Usage(fault);
        let presets = config
            .presets(&blocked_paths(home)?, &workspace, &registry.snapshot())
            .map_err(|fault| usage(fault.to_string()))?;
        let cwd = workspace.resolve_directory(".", &current_directory()?).map_err(usage)?;
        let preset = presets.find(preset).map_err(|fault| usage(fault.to_string()))?.clone();
        Ok(Self { registry, preset, cwd, agent: AgentId::main(), known_secrets })
    }

    fn find(&self, name: &str) -> Result<Arc<dyn Tool>, Failure> {
        let unknown = || Failure::Usage(format!("unknown tool: {name}; nexus3 tools lists them"));
        self.registry.snapshot().find(name).cloned().ok_or_else(unknown)
    }

    /// Calls a tool. Opens the store only for a call that reads or changes stored values.
    async fn call(
        &self,
        tool: &Arc<dyn Tool>,
        arguments: &str,
        open_store: impl FnOnce() -> Result<Arc<dyn Store>, Failure>,
    ) -> Result<ToolOutcome, Failure> {
        let relation_to = |_: &AgentId| Relation::Other;
        let preset_inheritance = |_: Option<&str>| Vec::new();
        let site = CallSite {
            agent: &self.agent,
            serial: LOCAL_SERIAL,
            cwd: &self.cwd,
            relation_to: &relation_to,
            preset_inheritance: &preset_inheritance,
        };
        let call = match tool.prepare(arguments, &site) {
            Ok(call) => call,
            Err(why) => return Ok(ToolOutcome::Failed(why)),
        };
        let permit = match self.judge(tool, &*call) {
            Ok(permit) => permit,
            Err(denied) => return Ok(denied),
        };
        let is_value = |effect: &Effect| matches!(effect, Effect::ReadValues | Effect::WriteValues);
        let store = if call.effects().iter().any(is_value) { open_store()? } else { store::memory() };
        let values = KeyValues::new(store.clone(), Namespace::User);
        let context = ToolContext {
            agent: LOCAL_SERIAL,
            permit,
            peers: Arc::new(NoAgents),
            results: Arc::new(NoResults),
            output: Arc::new(DiscardedOutput),
            values,
            plan: Arc::new(NoPlan),
            changes: Arc::new(Unrecorded),
        };
        let outcome = call.run(context).await;
        store.close().await;
        Ok(outcome)
    }

    /// The grant of the preset. The person has named the host of a URL, and so allowed it; it may redirect to public
    /// hosts. A preset with a list of hosts, or without any, still limits them.
    fn grant(&self, effects: &[Effect]) -> Result<Grant, ToolOutcome> {
        let named = |effect: &Effect| match effect {
            Effect::Connect(to) => Some(HostPattern::exactly(to)),
            _ => None,
        };
        let mut hosts: Vec<_> = effects.iter().filter_map(named).collect();
        if !hosts.is_empty() {
            hosts.push(HostPattern::any());
        }
        let request = GrantRequest::default_in(self.cwd.clone());
        let request = GrantRequest { hosts: (!hosts.is_empty()).then_some(hosts), ..request };
        let resolved = self.preset.resolve(&request).map(|resolved| resolved.grant);
        resolved.map_err(|fault| ToolOutcome::Denied(format!("Permission denied: {fault}")))
    }

    fn judge(&self, tool: &Arc<dyn Tool>, call: &dyn PreparedCall) -> Result<Permit, ToolOutcome> {
        let mut effects = vec![Effect::Use(Arc::clone(&tool.spec().name))];
        effects.extend(call.effects());
        match judge(&effects, &self.grant(&effects)?) {
            Verdict::Allowed(permit) => Ok(permit),
            Verdict::Denied(denial) => {
                Err(ToolOutcome::Denied(format!("Permission denied: {}", denial.text)))
            }
        }
    }
}

/// The key of what tools hold for the person at the command line; agents have positive serials.
const LOCAL_SERIAL: Serial = 0;

/// Opens the store of the home. A second process must not write to it beside the daemon.
fn open_user_store(
    home: &Path,
    config: &Config,
    environment: &Environment,
) -> Result<Arc<dyn Store>, Failure> {
    home::prepare(home)?;
    open_store(home, config, environment).map_err(|failure| match failure {
        Failure::StoreLocked(locked) => {
            Failure::StoreLocked(format!("cannot open the stored values: {locked}"))
        }
        other => other,
    })
}

fn current_directory() -> Result<FilePath, Failure> {
    let cwd = std::env::current_dir()
        .map_err(|fault| Failure::Run(format!("cannot read the working directory: {fault}")))?;
    parse_file_path(&cwd)
}

/// Agents are in a daemon.
struct NoAgents;

impl NoAgents {
    fn fail<'a, T: Send + 'a>() -> BoxFuture<'a, Result<T, Fault>> {
        let text = "this tool works on agents; call the daemon instead: nexus3 rpc";
        Box::pin(std::future::ready(Err(Fault::new(FaultKind::Invalid, text))))
    }
}

impl Peers for NoAgents {
    fn create(&self, _new: NewPeer) -> BoxFuture<'_, Result<CreatedPeer, Fault>> {
        Self::fail()
    }

    fn send(
        &self,
        _target: AgentId,
        _content: String,
        _wait: bool,
    ) -> BoxFuture<'_, Result<PeerResponse, Fault>> {
        Self::fail()
    }

    fn status(&self, _target: AgentId) -> BoxFuture<'_, Result<PeerStatus, Fault>> {
        Self::fail()
    }

    fn cancel(&self, _target: AgentId, _request_id: RequestId) -> BoxFuture<'_, Result<bool, Fault>> {
        Self::fail()
    }

    fn destroy(&self, _target: AgentId) -> BoxFuture<'_, Result<bool, Fault>> {
        Self::fail()
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<PeerStatus>, Fault>> {
        Self::fail()
    }

    fn approvals(&self, _wait_secs: u64) -> BoxFuture<'_, Result<Vec<PendingApproval>, Fault>> {
        Self::fail()
    }

    fn answer_approval(
        &self,
        _id: String,
        _answer: NewAnswer,
    ) -> BoxFuture<'_, Result<ApprovalAnswer, Fault>> {
        Self::fail()
    }
}

/// A plan is part of an agent's state.
struct NoPlan;

impl PlanKeeper for NoPlan {
    fn replace(&self, _items: Vec<TodoItem>) -> Result<(), String> {
        Err("a plan belongs to an agent; call the daemon instead: nexus3 rpc".to_owned())
    }
}

/// Results are printed whole.
struct NoResults;

impl CachedResults for NoResults {
    fn read(&self, _handle: &str, _offset: usize, _bytes_max: usize) -> Result<ResultChunk, String> {
        Err("no result was truncated".to_owned())
    }
}
