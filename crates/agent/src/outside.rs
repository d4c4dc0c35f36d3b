//! Interfaces of an agent to the outside: model providers, tools, store, clock, entropy. Other rooms implement these
//! traits; tests use doubles.

mod file_changes;
mod key_values;
mod peers;
mod store;
mod toolbox;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use futures_core::Stream;

pub use file_changes::{
    ChangeRecorder, ChangeWrite, FileChange, FileChangeStore, FileState, NewChanges, RestoreFault,
    StateDigest, TurnChanges, UNDO_AGENT_BYTES_MAX, UNDO_FILE_BYTES_MAX, UNDO_TURN_BYTES_MAX,
    UNDO_TURN_FILES_MAX, Unrecorded,
};
pub use key_values::{
    ENTRIES_MAX, KEY_BYTES_MAX, KEYS_PAGE_MAX, KeyPage, KeyRange, KeyValueStore, KeyValues, Namespace,
    StoredValue, TTL_SECS_MAX, VALUE_BYTES_MAX, ValueChange, ValueWrite,
};
pub use peers::{
    AnswerScope, CreatedPeer, NewAnswer, NewPeer, PeerResponse, PeerStatus, Peers, PendingApproval,
};
pub use store::{
    Append, CommitListener, EntryRange, IndexRow, JournalBounds, JournalEntry, Store, StoreFault,
    StoredAgent, StoredTurn,
};
pub use toolbox::{ToolSet, Toolbox};

use crate::journal::Serial;
use crate::permission::{DirectoryIdentity, Effect, FilePath, Permit, Relation};
use crate::prompt::Note;
use crate::tokens::estimate_tokens;
use crate::{
    AgentId, Fault, HistoryVersion, Message, Prices, TodoItem, TokenCount, ToolCall, ToolOutcome, ToolSpec,
    Usage,
};

/// A boxed, sendable future. Dropping it cancels the operation.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A request to a model.
#[derive(Debug, Clone, Default)]
pub struct ModelRequest {
    /// The system prompt.
    pub system: Option<Arc<str>>,
    /// The conversation, oldest first.
    pub messages: Arc<Vec<Arc<Message>>>,
    /// The version of the history that `messages` belong to: an equal version means that they extend the messages of
    /// an earlier request. None if unknown.
    pub history_version: Option<HistoryVersion>,
    /// Facts that change between requests, such as the time. Encoders append them after the last message, so that the
    /// provider's prompt cache of everything before them stays valid. Not part of the conversation.
    pub volatile_suffix: Option<Arc<str>>,
    /// The tools that the model may call.
    pub tools: Vec<Arc<ToolSpec>>,
    /// The JSON Schema that the response text has to match, as text.
    pub output_schema: Option<Arc<str>>,
    /// The maximum number of response tokens; none leaves it to the provider.
    pub answer_tokens_max: Option<TokenCount>,
    /// The requester, for fair queueing.
    pub requester: Requester,
}

/// The requester of a model call. All agents of one tree share one slot in the provider's fair queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requester {
    /// The agent.
    pub agent: Option<AgentId>,
    /// The serial of the root agent of its tree.
    pub root: Serial,
}

/// Why a model stopped generating.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The response is complete.
    Finished,
    /// The model called tools and waits for their results.
    ToolCalls,
    /// The response reached its token limit, or the context window is full.
    Length,
    /// The provider filtered the output, or the model refused.
    Filtered,
}

/// Known properties of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSpec {
    /// The size of its context window, including the response.
    pub window_tokens: TokenCount,
    /// The maximum number of response tokens, if known.
    pub answer_tokens_max: Option<TokenCount>,
    /// Its prices; none if unknown or free.
    pub prices: Option<Prices>,
    /// Whether it accepts images.
    pub accepts_images: bool,
    /// Its capability tier.
    pub tier: ModelTier,
}

/// The capability tier of a model: how long a prompt and how many tools it can handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelTier {
    /// A long prompt and many tools.
    Full,
    /// A small local model: a short prompt and few tools.
    Small,
}

impl ModelSpec {
    /// A model of which only the context window is known.
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

/// One event of a model's streaming response. A stream that ends before `Done` was cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelEvent {
    /// A text delta.
    Text(String),
    /// A reasoning delta. Published to subscribers, not persisted.
    Reasoning(String),
    /// The complete reasoning in the format of the provider's API, which expects it back with the tool calls that
    /// follow.
    ReasoningBlock(String),
    /// A complete tool call; partial calls are never emitted.
    ToolCall(ToolCall),
    /// The token usage of the request.
    Usage(Usage),
    /// The token usage at the fallback model that responded instead of this one, and its prices.
    FallbackUsage(Usage, Option<Prices>),
    /// The stop reason, if the provider reports one; precedes `Done`.
    Stopped(StopReason),
    /// The request waits: in the queue, or because the server is rate limiting. Until the next event the idle timeout
    /// is suspended; the provider bounds the wait.
    Waiting,
    /// The request is being sent, or the server is working without output yet: the idle timeout restarts.
    Heartbeat,
    /// The provider holds this many bytes of the response that it has not emitted, such as an incomplete tool call.
    /// Also a heartbeat.
    Buffered(usize),
    /// The response is complete.
    Done,
}

/// A streaming model response. Dropping it cancels the request at once.
pub type ModelStream = Pin<Box<dyn Stream<Item = Result<ModelEvent, Fault>> + Send>>;

/// A model that can be called.
pub trait Provider: Send + Sync {
    /// Calls the model. Lazy: nothing is sent until the stream is polled.
    fn call(&self, request: ModelRequest) -> ModelStream;

    /// The model's name as configured by the user.
    fn model(&self) -> Option<&str>;

    /// The known properties of the model.
    fn spec(&self) -> &ModelSpec;

    /// Counts the tokens of a text: with the model's own tokenizer if known, else an estimate. Deterministic: equal
    /// texts give equal counts.
    fn count(&self, text: &str) -> TokenCount {
        estimate_tokens(text)
    }
}

/// The model registry.
pub trait Models: Send + Sync {
    /// The model of agents that do not name one.
    fn default_model(&self) -> Arc<dyn Provider>;

    /// Looks up a model by name.
    ///
    /// # Errors
    /// When no model has that name; the message describes valid names.
    fn find(&self, name: &str) -> Result<Arc<dyn Provider>, Fault>;
}

/// The call site of a tool call: what the tool may know about the calling agent before the call is permitted.
pub struct CallSite<'a> {
    /// The calling agent.
    pub agent: &'a AgentId,
    /// Its serial, by which tools find what they hold for it.
    pub serial: Serial,
    /// Its working directory, the base of relative paths.
    pub cwd: &'a FilePath,
    /// The relation of another agent to the calling agent.
    pub relation_to: &'a (dyn Fn(&AgentId) -> Relation + Send + Sync),
    /// The names of a preset and of the presets it extends; empty if there is no such preset.
    pub preset_inheritance: &'a (dyn Fn(Option<&str>) -> Vec<Arc<str>> + Send + Sync),
}

/// The context in which a permitted tool call runs.
pub struct ToolContext {
    /// The serial of the calling agent: the key of what tools hold for it between calls.
    pub agent: Serial,
    /// The permit of the judge: the files to read and those to write.
    pub permit: Permit,
    /// The other agents, as seen by the calling agent.
    pub peers: Arc<dyn Peers>,
    /// The full text of earlier results that were truncated.
    pub results: Arc<dyn CachedResults>,
    /// Where the call shows output while it runs.
    pub output: Arc<dyn ToolOutputSink>,
    /// The stored values of the calling agent's tree.
    pub values: KeyValues,
    /// The plan of the calling agent.
    pub plan: Arc<dyn PlanKeeper>,
    /// Records the file changes of the call, so that they can be undone.
    pub changes: Arc<dyn ChangeRecorder>,
}

/// A stream of a tool's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolOutputStream {
    /// Standard output of a command.
    Stdout,
    /// Standard error of a command.
    Stderr,
}

/// Receives the output of a tool call while it runs, for people who watch. The result of the call does not depend on it.
pub trait ToolOutputSink: Send + Sync {
    /// Adds output. Never blocks; output beyond the limits of the sink is omitted.
    fn push(&self, stream: ToolOutputStream, bytes: &[u8]);
}

/// A sink for calls that are not watched.
#[derive(Debug, Clone, Copy)]
pub struct DiscardedOutput;

impl ToolOutputSink for DiscardedOutput {
    fn push(&self, _stream: ToolOutputStream, _bytes: &[u8]) {}
}

/// A tool that models can call.
pub trait Tool: Send + Sync {
    /// Its specification.
    fn spec(&self) -> &Arc<ToolSpec>;

    /// Parses the arguments of a call and determines its effects. Has no side effects.
    ///
    /// # Errors
    /// When the arguments do not match the tool's schema: an error message for the model.
    fn prepare(&self, arguments: &str, site: &CallSite<'_>) -> Result<Box<dyn PreparedCall>, String>;
}

/// A tool call with valid arguments that has not run yet.
pub trait PreparedCall: Send {
    /// The effects of the call beyond the use of the tool. The files are in the order of the [`Permit`], from which the
    /// tool opens them.
    fn effects(&self) -> Vec<Effect>;

    /// Runs the call. Dropping the future cancels it.
    fn run(self: Box<Self>, context: ToolContext) -> BoxFuture<'static, ToolOutcome>;
}

/// File system access for the working directories of agents.
pub trait Workspace: Send + Sync {
    /// Resolves an existing directory to its path without symbolic links. Relative paths start at `base`.
    ///
    /// # Errors
    /// When it does not exist or is not a directory; the message names the path as given.
    fn resolve_directory(&self, path: &str, base: &FilePath) -> Result<FilePath, String>;

    /// Resolves a path that need not exist yet: the existing part of the result is free of symbolic links.
    ///
    /// # Errors
    /// When the path is not valid for any file.
    fn resolve_path(&self, path: &str, base: &FilePath) -> Result<FilePath, String>;

    /// The identity of the directory at a resolved path, or of the nearest existing directory above it if there is
    /// none; none if it cannot be determined.
    fn identify_directory(&self, _path: &FilePath) -> Option<DirectoryIdentity> {
        None
    }

    /// Reads the instruction files for agents that work in this directory, in prompt order: the user's own notes, those
    /// of the parent directories, then the directory's own. Unreadable notes are skipped and logged.
    fn notes(&self, _cwd: &FilePath) -> Vec<Note> {
        Vec::new()
    }

    /// Reads a permitted file. `given` is its path as the user wrote it.
    ///
    /// # Errors
    /// When it cannot be read, is not a regular file or exceeds `bytes_max`; the message names the path as given.
    fn read_file(&self, given: &str, _permit: Permit, _bytes_max: usize) -> Result<Vec<u8>, String> {
        Err(format!("File not found: {given}"))
    }

    /// Restores the state before file changes, all or nothing; returns the paths that were changed. The permit has one
    /// write for each change, in their order. Blocks.
    ///
    /// # Errors
    /// When a path has changed since, or the restoration fails. Nothing is changed then.
    fn restore_files(
        &self,
        _changes: &[FileChange],
        _permit: &Permit,
    ) -> Result<Vec<FilePath>, RestoreFault> {
        Err(RestoreFault::Failed("there are no files here".to_owned()))
    }

    /// A one-line status of the directory, such as the branch of its repository. Reads a few small files and starts no
    /// process.
    fn status_line(&self, _cwd: &FilePath) -> Option<String> {
        None
    }
}

/// The cache of truncated tool results, for the agent that called the tool. A full cache evicts the oldest.
pub trait CachedResults: Send + Sync {
    /// Reads at most `bytes_max` bytes of a result, starting at byte `offset`.
    ///
    /// # Errors
    /// When the result is no longer cached; the message says what to do.
    fn read(&self, handle: &str, offset: usize, bytes_max: usize) -> Result<ResultChunk, String>;
}

/// Holds the plan of the agent that called the tool.
pub trait PlanKeeper: Send + Sync {
    /// Replaces the plan. It is committed together with the result of the call.
    ///
    /// # Errors
    /// When the caller is not an agent.
    fn replace(&self, items: Vec<TodoItem>) -> Result<(), String>;
}

/// A chunk of a cached tool result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultChunk {
    /// The text.
    pub text: String,
    /// Its byte offset in the full text, on a character boundary.
    pub offset: usize,
    /// The length of the full text.
    pub bytes_total: usize,
}

/// A point in time: microseconds since 1970, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub i64);

/// The wall clock.
pub trait Clock: Send + Sync {
    /// The current time.
    fn now(&self) -> Timestamp;

    /// The local time zone's offset from UTC at that time.
    fn offset_minutes(&self, _at: Timestamp) -> i32 {
        0
    }
}

/// A source of cryptographically secure random bytes.
pub trait Entropy: Send + Sync {
    /// Fills `bytes`.
    ///
    /// # Errors
    /// When the operating system provides none; callers must not fall back to guessable bytes.
    fn fill(&self, bytes: &mut [u8]) -> Result<(), Fault>;
}
