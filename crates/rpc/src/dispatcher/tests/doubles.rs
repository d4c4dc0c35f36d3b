//! Test doubles: an echoing model, tools without effects, a workspace with fixed paths.

use std::sync::Arc;

use agent::outside::{
    BoxFuture, CallSite, ModelEvent, ModelRequest, ModelSpec, ModelStream, Models, PreparedCall, Provider,
    Tool, ToolContext, ToolSet, Workspace,
};
use agent::permission::{Effect, FilePath};
use agent::{Concurrency, Fault, FaultKind, ToolCall, ToolClass, ToolOutcome, ToolSpec, Usage};
use futures_util::{StreamExt, stream};
use tokio::sync::Semaphore;

/// A model that echoes the last message, or obeys the commands in [`EchoModel::call`].
pub(super) struct EchoModel {
    /// Each permit releases one `wait`.
    pub(super) released: Arc<Semaphore>,
}

impl Provider for EchoModel {
    fn call(&self, request: ModelRequest) -> ModelStream {
        let last = request.messages.last().map(|message| message.text.clone()).unwrap_or_default();
        let released = Arc::clone(&self.released);
        let wait = async move { released.acquire().await.map(|permit| permit.forget()).is_err() };
        match last.split_once(' ').unwrap_or((&last, "")) {
            ("wait", "") => {
                let second = stream::once(wait).map(|_| Ok(ModelEvent::Text("lo".to_owned())));
                stream::iter([Ok(ModelEvent::Text("hel".to_owned()))]).chain(second).chain(done()).boxed()
            }
            ("fail", "") => {
                let fault = Fault::new(FaultKind::Model, "the model failed").caused_by("for the log alone");
                stream::iter([Err(fault)]).boxed()
            }
            ("print", bytes) => {
                let text = long_text(bytes.parse().unwrap_or_default());
                stream::iter([Ok(ModelEvent::Text(text))]).chain(done()).boxed()
            }
            ("tool", "") => tool_call_stream("clock", "{}"),
            ("read", path) => tool_call_stream("fs.read_file", path),
            _ => {
                let usage = Usage { input: 5, output: 2, cached: 4, ..Usage::default() };
                let events = [ModelEvent::Text(format!("you said {last}")), ModelEvent::Usage(usage)];
                stream::iter(events.map(Ok)).chain(done()).boxed()
            }
        }
    }

    fn model(&self) -> Option<&str> {
        Some("echo/one")
    }

    fn spec(&self) -> &ModelSpec {
        const SPEC: ModelSpec = ModelSpec::with_window(10_000);
        &SPEC
    }
}

fn done() -> stream::Iter<std::array::IntoIter<Result<ModelEvent, Fault>, 1>> {
    stream::iter([Ok(ModelEvent::Done)])
}

fn tool_call_stream(name: &str, arguments: &str) -> ModelStream {
    let call = ToolCall { id: "c1".into(), name: name.into(), arguments: arguments.into() };
    stream::iter([Ok(ModelEvent::ToolCall(call))]).chain(done()).boxed()
}

/// A registry with one model.
pub(super) struct SingleModel(pub(super) Arc<EchoModel>);

impl Models for SingleModel {
    fn default_model(&self) -> Arc<dyn Provider> {
        Arc::<EchoModel>::clone(&self.0)
    }

    fn find(&self, name: &str) -> Result<Arc<dyn Provider>, Fault> {
        let text = || format!("model must be one of echo/one, got: '{name}'");
        if name == "echo/one" {
            Ok(self.default_model())
        } else {
            Err(Fault::new(FaultKind::Invalid, text()))
        }
    }
}

/// The tools that presets refer to, with their aliases.
const TOOLS: [(&str, &[&str]); 8] = [
    ("fs.read_file", &["read_file"]),
    ("fs.write_file", &["write_file"]),
    ("agent_create", &[]),
    ("agent_send", &[]),
    ("agent_status", &[]),
    ("agent_cancel", &[]),
    ("agent_destroy", &[]),
    ("agent_list", &[]),
];

pub(super) fn test_toolbox() -> Arc<ToolSet> {
    Arc::new(ToolSet::new(TOOLS.map(|(name, aliases)| Arc::new(TestTool::new(name, aliases)) as _).into()))
}

/// A tool that declares the effects of a file tool but has none.
struct TestTool(Arc<ToolSpec>);

impl TestTool {
    fn new(name: &str, aliases: &[&str]) -> Self {
        Self(Arc::new(ToolSpec {
            name: name.into(),
            model_name: name.replace('.', "_").into(),
            aliases: aliases.iter().copied().map(Arc::from).collect(),
            description: "".into(),
            input_schema: "{}".into(),
            is_offered_by_default: true,
            program: None,
            concurrency: Concurrency::Parallel,
            class: ToolClass::Pure,
            time_ms_max: 1000,
            tokens: 3,
            brief: None,
        }))
    }
}

impl Tool for TestTool {
    fn spec(&self) -> &Arc<ToolSpec> {
        &self.0
    }

    fn prepare(&self, arguments: &str, site: &CallSite<'_>) -> Result<Box<dyn PreparedCall>, String> {
        let path = || FilePath::resolve(arguments, site.cwd).map_err(|fault| fault.to_string());
        let effects = match &*self.0.name {
            "fs.read_file" => vec![Effect::Read(path()?)],
            "fs.write_file" => vec![Effect::Write(path()?)],
            _ => Vec::new(),
        };
        Ok(Box::new(TestToolCall { effects, arguments: arguments.to_owned() }))
    }
}

struct TestToolCall {
    effects: Vec<Effect>,
    arguments: String,
}

impl PreparedCall for TestToolCall {
    fn effects(&self) -> Vec<Effect> {
        self.effects.clone()
    }

    fn run(self: Box<Self>, _: ToolContext) -> BoxFuture<'static, ToolOutcome> {
        Box::pin(async move { ToolOutcome::Done(format!("text of {}", self.arguments)) })
    }
}

/// A workspace with a few folders and one file.
pub(super) struct TestWorkspace;

pub(super) const CWD: &str = "/home/user/agents";

const FOLDERS: [&str; 6] =
    ["/", "/srv/other", CWD, "/home/user/agents/sub", "/home/user/agents/sub/deep", "/home/user/agents/out"];

const FILE: &str = "/home/user/agents/notes.txt";

impl Workspace for TestWorkspace {
    fn resolve_directory(&self, path: &str, base: &FilePath) -> Result<FilePath, String> {
        let found = FilePath::resolve(path, base).map_err(|fault| format!("cwd invalid: {fault}"))?;
        match found.as_str() {
            FILE => Err(format!("cwd is not a directory: {path}")),
            text if FOLDERS.contains(&text) => Ok(found),
            _ => Err(format!("cwd does not exist: {path}")),
        }
    }

    fn resolve_path(&self, path: &str, base: &FilePath) -> Result<FilePath, String> {
        FilePath::resolve(path, base).map_err(|fault| fault.to_string())
    }
}

/// Returns the capability token generated from the `count`th 32 bytes.
pub(super) fn capability_token(count: u8) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let [high, low] = [count >> 4, (count & 15) << 2].map(|digit| char::from(DIGITS[usize::from(digit)]));
    format!("nxc_{}{high}{low}", "A".repeat(41))
}

/// A text of about this many bytes. Its characters lie across any border between two pieces of the text.
pub(super) fn long_text(bytes: usize) -> String {
    format!("a{}", "\u{1f980}\u{e9}\u{20ac}".repeat(bytes / 9))
}
