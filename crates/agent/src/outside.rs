//! The outside as an agent sees it. Other rooms implement these traits; tests use doubles.

mod peers;
mod store;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use futures_core::Stream;

pub use peers::{CreatedPeer, NewPeer, PeerResponse, PeerStatus, Peers};
pub use store::{
    Append, CommitListener, EntryRange, IndexRow, JournalBounds, JournalEntry, Store, StoreFault,
    StoredAgent, StoredTurn,
};

use crate::journal::Serial;
use crate::permission::{Effect, FilePath, Permit, Relation};
use crate::prompt::Note;
use crate::tokens::estimate_tokens;
use crate::{
    AgentId, Fault, HistoryVersion, Message, Prices, TokenCount, ToolCall, ToolOutcome, ToolSpec, Usage,
};

/// Something that takes its time. Dropping it ends it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a model is asked.
#[derive(Debug, Clone, Default)]
pub struct ModelRequest {
    /// The system prompt.
    pub system: Option<Arc<str>>,
    /// The conversation, oldest first.
    pub messages: Arc<Vec<Arc<Message>>>,
    /// What tells that they are those of an earlier question with more behind them; none tells nothing.
    pub history_version: Option<HistoryVersion>,
    /// Facts that differ from one question to the next, such as the time. They ride behind the last message, so that a
    /// model's cache of everything before them holds. Not part of the conversation.
    pub volatile_suffix: Option<Arc<str>>,
    /// The tools it may call.
    pub tools: Vec<Arc<ToolSpec>>,
    /// The JSON Schema that the answer's text has to fit, as text.
    pub output_schema: Option<Arc<str>>,
    /// The most tokens the answer may have; none leaves it to the model.
    pub answer_tokens_max: Option<TokenCount>,
    /// Who asks.
    pub requester: Requester,
}

/// Who asks a model: agents of one tree share one place in its queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requester {
    /// The agent.
    pub agent: Option<AgentId>,
    /// The agent at the top of its tree.
    pub root: Serial,
}

/// Why a model's answer ends where it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// It said what it had to say.
    Finished,
    /// It wants its tools to run.
    ToolCalls,
    /// It reached the most tokens it may write, or its window is full.
    Length,
    /// The provider held the rest back, or the model refused.
    Filtered,
}

/// What is known of a model beside its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSpec {
    /// How many tokens it can take, its answer among them.
    pub window_tokens: TokenCount,
    /// The most tokens it can answer with; none is not known.
    pub answer_tokens_max: Option<TokenCount>,
    /// What it costs; none is not known, or nothing.
    pub prices: Option<Prices>,
    /// Whether it can look at images.
    pub accepts_images: bool,
    /// How much can be asked of it.
    pub tier: ModelTier,
}

/// How much can be asked of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelTier {
    /// A long prompt and many tools.
    Full,
    /// A small local model: a short prompt and few tools.
    Small,
}

impl ModelSpec {
    /// A model of which nothing but its window is known.
    #[must_use]
    pub const fn with_window(window_tokens: TokenCount) -> Self {
        Self {
            window_tokens,
            answer_tokens_max: None,
            prices: None,
            accepts_images: false,
            tier: ModelTier::Full,
        }
    }
}

/// What a model sends back, piece by piece. A stream that ends before `Done` was cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelEvent {
    /// More text of the answer.
    Text(String),
    /// More of what the model thinks before it answers. Shown to whoever watches, and not kept.
    Reasoning(String),
    /// All that it thought, in the words of its API, which wants it back with the calls that follow.
    ReasoningBlock(String),
    /// A whole tool call; half a call is never handed on.
    ToolCall(ToolCall),
    /// What the request used.
    Usage(Usage),
    /// What the request used at another model, which answered in this one's place, and what that one costs.
    FallbackUsage(Usage, Option<Prices>),
    /// Why the answer ends here; comes before `Done`, if the model says it.
    Stopped(StopReason),
    /// The question waits: in a queue, or because the server wants to be left alone. Until the next event the model is not
    /// silent; whoever asks for us bounds the wait.
    Waiting,
    /// The question is asked now, or the server is at it without a word of the answer yet: its silence begins anew.
    Heartbeat,
    /// The answer is complete.
    Done,
}

/// A model's answer on its way. Dropping it ends the request at once.
pub type ModelStream = Pin<Box<dyn Stream<Item = Result<ModelEvent, Fault>> + Send>>;

/// A model.
pub trait Provider: Send + Sync {
    /// Asks; nothing happens until the stream is polled.
    fn call(&self, request: ModelRequest) -> ModelStream;

    /// The model's name, as the user chose it.
    fn model(&self) -> Option<&str>;

    /// What is known of the model.
    fn spec(&self) -> &ModelSpec;

    /// How many tokens this text is for the model: by its own tokenizer where that is known, else an estimate. The same
    /// text always gives the same count.
    fn count(&self, text: &str) -> TokenCount {
        estimate_tokens(text)
    }
}

/// The models there are.
pub trait Models: Send + Sync {
    /// The model of an agent that names none.
    fn default_model(&self) -> Arc<dyn Provider>;

    /// A model by its name.
    ///
    /// # Errors
    /// When there is none of that name; the text says what a name looks like.
    fn find(&self, name: &str) -> Result<Arc<dyn Provider>, Fault>;
}

/// What a tool knows of the agent that calls it before it is allowed to do anything.
pub struct CallSite<'a> {
    /// The agent.
    pub agent: &'a AgentId,
    /// Its working directory: relative paths begin here.
    pub cwd: &'a FilePath,
    /// What another agent is to it.
    pub relation_to: &'a (dyn Fn(&AgentId) -> Relation + Send + Sync),
    /// The names of a preset and of those it extends; nothing when there is none of that name.
    pub preset_inheritance: &'a (dyn Fn(Option<&str>) -> Vec<Arc<str>> + Send + Sync),
}

/// Leave to run, and what a tool may need for it.
pub struct ToolContext {
    /// What was allowed.
    pub permit: Permit,
    /// The other agents, for the agent that calls.
    pub peers: Arc<dyn Peers>,
    /// What was cut off its earlier results.
    pub results: Arc<dyn CachedResults>,
}

/// A tool.
pub trait Tool: Send + Sync {
    /// Its description.
    fn spec(&self) -> &Arc<ToolSpec>;

    /// Reads the arguments of a call and says what it would touch. Touches nothing.
    ///
    /// # Errors
    /// When the arguments are no arguments of this tool: a text for the model that says what is wrong.
    fn prepare(&self, arguments: &str, scene: &CallSite<'_>) -> Result<Box<dyn PreparedCall>, String>;
}

/// A call whose arguments are good.
pub trait PreparedCall: Send {
    /// What it would touch, beside using the tool. Files in the order in which their folders are wanted.
    fn effects(&self) -> Vec<Effect>;

    /// Does it. Dropping the future ends it.
    fn run(self: Box<Self>, leave: ToolContext) -> BoxFuture<'static, ToolOutcome>;
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
    fn resolve_directory(&self, path: &str, base: &FilePath) -> Result<FilePath, String>;

    /// Finds a place that need not be there yet: its path without links, as far as it is there.
    ///
    /// # Errors
    /// When no file can have such a path.
    fn resolve_path(&self, path: &str, base: &FilePath) -> Result<FilePath, String>;

    /// What people have written down for agents that work in this folder, in the order it is read: their own notes, then
    /// those of the folders above it, then its own. What cannot be read is left out, and said in the log.
    fn notes(&self, _cwd: &FilePath) -> Vec<Note> {
        Vec::new()
    }

    /// The bytes of a file that was allowed. `given` is its path as people wrote it.
    ///
    /// # Errors
    /// When it cannot be read, is no regular file or has more bytes than this; the text names it as it was given.
    fn read_file(&self, given: &str, _permit: Permit, _bytes_max: usize) -> Result<Vec<u8>, String> {
        Err(format!("File not found: {given}"))
    }

    /// What is under way in this folder, in one line, such as the branch of its repository. Looks at a few small files
    /// and runs nothing.
    fn status_line(&self, _cwd: &FilePath) -> Option<String> {
        None
    }
}

/// What was cut off the result of a tool, for the agent that called it. It is there for a while.
pub trait CachedResults: Send + Sync {
    /// A part of the result, from this byte on, not more than so many bytes.
    ///
    /// # Errors
    /// When there is no such result any more; the text says what to do.
    fn read(&self, handle: &str, offset: usize, bytes_max: usize) -> Result<ResultChunk, String>;
}

/// A part of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultChunk {
    /// The text.
    pub text: String,
    /// Where it begins: not within a character.
    pub offset: usize,
    /// How long the whole is.
    pub bytes_total: usize,
}

/// A point in time: microseconds since 1970, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub i64);

/// Tells the time.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Timestamp;

    /// How far the clocks on the wall are from UTC at that time.
    fn offset_minutes(&self, _at: Timestamp) -> i32 {
        0
    }
}

/// Gives random bytes that nobody can guess.
pub trait Entropy: Send + Sync {
    /// Fills `bytes`.
    ///
    /// # Errors
    /// When the operating system gives none; nothing may be named by guessable bytes instead.
    fn fill(&self, bytes: &mut [u8]) -> Result<(), Fault>;
}
