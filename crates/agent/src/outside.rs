//! The outside as an agent sees it. Other rooms implement these traits; tests use doubles.

mod peers;
mod store;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use futures_core::Stream;

pub use peers::{NewPeer, PeerAnswer, PeerCreated, PeerStatus, Peers};
pub use store::{Append, Bounds, Entry, IndexRow, Span, Store, StoreFault, StoredAgent, StoredTurn, Watcher};

use crate::permission::{Effect, FilePath, Kinship, Permit};
use crate::{AgentId, Fault, Message, TokenCount, ToolCall, ToolOutcome, ToolSpec, Usage};

/// Something that takes its time. Dropping it ends it.
pub type Doing<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a model is asked.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// The system prompt.
    pub system: Option<Arc<str>>,
    /// The conversation, oldest first.
    pub messages: Arc<Vec<Arc<Message>>>,
    /// The tools it may call.
    pub tools: Vec<Arc<ToolSpec>>,
}

/// What a model sends back, piece by piece. A stream that ends before `Done` was cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelEvent {
    /// More text of the answer.
    Text(String),
    /// More of what the model thinks before it answers. Shown to whoever watches, and not kept.
    Reasoning(String),
    /// A whole tool call; half a call is never handed on.
    ToolCall(ToolCall),
    /// What the request used.
    Usage(Usage),
    /// The answer is complete.
    Done,
}

/// A model's answer on its way. Dropping it ends the request at once.
pub type ModelStream = Pin<Box<dyn Stream<Item = Result<ModelEvent, Fault>> + Send>>;

/// A model.
pub trait Provider: Send + Sync {
    /// Asks; nothing happens until the stream is polled.
    fn ask(&self, request: ModelRequest) -> ModelStream;

    /// The model's name, as the user chose it.
    fn model(&self) -> Option<&str>;

    /// How many tokens the model can take.
    fn window_tokens(&self) -> TokenCount;
}

/// The models there are.
pub trait Models: Send + Sync {
    /// The model of an agent that names none.
    fn usual(&self) -> Arc<dyn Provider>;

    /// A model by its name.
    ///
    /// # Errors
    /// When there is none of that name; the text says what a name looks like.
    fn find(&self, name: &str) -> Result<Arc<dyn Provider>, Fault>;
}

/// What a tool knows of the agent that calls it before it is allowed to do anything.
pub struct Scene<'a> {
    /// The agent.
    pub agent: &'a AgentId,
    /// Its working directory: relative paths begin here.
    pub cwd: &'a FilePath,
    /// What another agent is to it.
    pub kinship: &'a (dyn Fn(&AgentId) -> Kinship + Send + Sync),
    /// The names of a preset and of those it extends; nothing when there is none of that name.
    pub preset_lineage: &'a (dyn Fn(Option<&str>) -> Vec<Arc<str>> + Send + Sync),
}

/// Leave to run, and what a tool may need for it.
pub struct Leave {
    /// What was allowed.
    pub permit: Permit,
    /// The other agents, for the agent that calls.
    pub peers: Arc<dyn Peers>,
}

/// A tool.
pub trait Tool: Send + Sync {
    /// Its description.
    fn spec(&self) -> &Arc<ToolSpec>;

    /// Reads the arguments of a call and says what it would touch. Touches nothing.
    ///
    /// # Errors
    /// When the arguments are no arguments of this tool: a text for the model that says what is wrong.
    fn prepare(&self, arguments: &str, scene: &Scene<'_>) -> Result<Box<dyn Prepared>, String>;
}

/// A call whose arguments are good.
pub trait Prepared: Send {
    /// What it would touch, beside using the tool. Files in the order in which their folders are wanted.
    fn effects(&self) -> Vec<Effect>;

    /// Does it. Dropping the future ends it.
    fn run(self: Box<Self>, leave: Leave) -> Doing<'static, ToolOutcome>;
}

/// The tools there are.
pub trait Toolbox: Send + Sync {
    /// All of them, in the order models are shown them.
    fn all(&self) -> &[Arc<dyn Tool>];

    /// Finds a tool by any of its names.
    fn find(&self, name: &str) -> Option<&Arc<dyn Tool>>;
}

/// The disk, as far as agents are told where to work.
pub trait Workspace: Send + Sync {
    /// Finds a folder that is there; the answer is its path without links. Relative paths begin at `base`.
    ///
    /// # Errors
    /// When it is not there or is no folder; the text names it as it was given.
    fn folder(&self, path: &str, base: &FilePath) -> Result<FilePath, String>;

    /// Finds a place that need not be there yet: its path without links, as far as it is there.
    ///
    /// # Errors
    /// When no file can have such a path.
    fn place(&self, path: &str, base: &FilePath) -> Result<FilePath, String>;
}

/// A point in time: microseconds since 1970, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub i64);

/// Tells the time.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Moment;
}

/// Gives random bytes that nobody can guess.
pub trait Entropy: Send + Sync {
    /// Fills `bytes`.
    ///
    /// # Errors
    /// When the operating system gives none; nothing may be named by guessable bytes instead.
    fn fill(&self, bytes: &mut [u8]) -> Result<(), Fault>;
}
