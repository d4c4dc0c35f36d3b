//! Command-line arguments of `nexus3 rpc` and `nexus3 ask`, with their help texts. Every help line fits 80 columns.

mod create;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Args, Command, Subcommand};
use nexus3_client::{Token, TokenFault};
use nexus3_protocol::events::EventKind;
use nexus3_protocol::methods::PageSize;

pub use self::create::CreateArgs;

/// Call a running daemon
#[derive(Debug, Args)]
#[command(after_help = "Results are JSON on standard output, messages go to standard error.
Exit code: 0 success, 1 the daemon or the connection failed, 2 wrong usage.
Other users can see arguments: prefer NEXUS3_API_KEY or the token file to
--api-key.

Examples:
  nexus3 rpc create worker --system-prompt 'You are brief.'
  nexus3 rpc send worker 'Name three rivers.'
  nexus3 rpc events --agent worker
  nexus3 rpc list -p 9000")]
pub struct RpcArgs {
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,

    /// Command
    #[command(subcommand)]
    pub(crate) command: RpcCommand,
}

impl AskArgs {
    /// The port, if given.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.connection.port
    }
}

/// Address of the daemon, and the token.
#[derive(Debug, Args)]
pub(crate) struct ConnectionArgs {
    /// Daemon's port [default: the setting port, 8765]
    #[arg(short, long, global = true, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,

    /// Token [default: NEXUS3_API_KEY or token file]
    #[arg(long, global = true, value_name = "KEY", value_parser = TokenParser)]
    pub(crate) api_key: Option<Token>,
}

/// Ask one question and print the response as it arrives
#[derive(Debug, Args)]
#[command(after_help = "Uses the running daemon, or starts one that stops by itself when idle.
The response goes to standard output, everything else to standard error.
Ctrl-C cancels. Without --agent a temporary agent answers and is destroyed
afterwards. It writes no transcript to logs/; the journal (nexus3.db) keeps
the conversation, as of every agent.
Other users can see arguments: prefer NEXUS3_API_KEY or the token file to
--api-key.
Exit code: 0 answered, 1 failed or cancelled, 2 wrong usage, 130 interrupted
before the question was sent.

Examples:
  nexus3 ask 'Why is the sky blue?'
  nexus3 ask - < question.txt
  nexus3 ask 'What does this project do?' --model anthropic/claude-sonnet-4-5
  nexus3 ask 'And why is it red in the evening?' --agent weather")]
pub struct AskArgs {
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    /// Question; "-" reads it from standard input
    #[arg(value_name = "TEXT")]
    pub(crate) text: String,
    /// Model [default: the daemon's default model]
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Continue with this agent; create it if missing
    #[arg(short, long = "agent", value_name = "ID")]
    pub(crate) agent_id: Option<String>,
    /// System prompt of a new agent [default: daemon's]
    #[arg(long, value_name = "TEXT")]
    pub(crate) system_prompt: Option<String>,
    /// Image: PNG, JPEG, GIF or WebP (repeatable)
    #[arg(long = "image", value_name = "FILE")]
    pub(crate) images: Vec<String>,
    /// Download a small model without asking if needed
    #[arg(short, long)]
    pub yes: bool,
    /// Cancel after this time
    #[arg(short, long, value_name = "SECONDS", default_value = "600", value_parser = parse_seconds)]
    pub(crate) timeout: Duration,
}

/// Subcommands of `nexus3 rpc`.
#[derive(Debug, Subcommand)]
pub enum RpcCommand {
    /// Check whether a daemon is running
    #[command(after_help = "The result is no_server, nexus_server, other_service, timeout or error.
Exit code: 0 a daemon is running, 1 otherwise, 2 wrong usage.

Examples:
  nexus3 rpc detect
  nexus3 rpc detect -p 9000 || nexus3 serve 9000")]
    Detect,

    /// List the agents
    #[command(after_help = "Example:
  nexus3 rpc list")]
    List,

    /// Create an agent, optionally with a first message
    #[command(after_help = "With --message the response is printed under \"response\".
--on-restart decides about a turn that a crash of the daemon interrupts: resume
continues it, mark ends it as interrupted. The default is the daemon's setting.

Examples:
  nexus3 rpc create
  nexus3 rpc create worker --system-prompt 'You are brief.'
  nexus3 rpc create writer --cwd /tmp/project --write-path /tmp/project/output
  nexus3 rpc create lead --preset trusted
  nexus3 rpc create helper --parent lead
  nexus3 rpc create worker -M 'Name three rivers.' -t 60")]
    Create(Box<CreateArgs>),

    /// Send a message to an agent and print its response
    #[command(after_help = "Ctrl-C and the timeout cancel the turn and print the partial text.
A send with the --request-id and text of an earlier one does not run again: it
prints the earlier response.

Examples:
  nexus3 rpc send worker 'Name three rivers.'
  nexus3 rpc send worker 'Tell me a long story.' --stream
  nexus3 rpc send worker 'What is this?' --image photo.jpg
  nexus3 rpc send worker 'Pay the bill.' --request-id bill-17
  nexus3 rpc send worker - < question.txt
  nexus3 rpc send worker -t 10 -- '-1 is what kind of number?'")]
    Send(SendArgs),

    /// Cancel a running or queued send
    #[command(after_help = "Example:
  nexus3 rpc cancel worker 91b8a2f0c4d3e576")]
    Cancel {
        /// Agent id
        #[arg(value_name = "ID")]
        agent_id: String,
        /// Request id of the send
        #[arg(value_name = "REQUEST_ID")]
        request_id: String,
    },

    /// Print an agent's token counts and context
    #[command(after_help = "Example:
  nexus3 rpc status worker")]
    Status {
        /// Agent id
        #[arg(value_name = "ID")]
        agent_id: String,
    },

    /// Shorten an agent's context by summarizing older messages
    #[command(after_help = "Waits for the running turn. The original messages stay in the journal.

Examples:
  nexus3 rpc compact worker
  nexus3 rpc compact worker --if-full")]
    Compact {
        /// Agent id
        #[arg(value_name = "ID")]
        agent_id: String,
        /// Compact only when the context is full
        #[arg(long)]
        if_full: bool,
    },

    /// Print an agent's messages
    #[command(after_help = "Examples:
  nexus3 rpc messages worker
  nexus3 rpc messages worker --offset 200 --limit 50")]
    Messages {
        /// Agent id
        #[arg(value_name = "ID")]
        agent_id: String,
        /// Index of the first message [default: 0]
        #[arg(long, value_name = "N")]
        offset: Option<u64>,
        /// Maximum number of messages, 1 to 2000 [default: 200]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=PageSize::MAX))]
        limit: Option<u64>,
    },

    /// Send extra instructions to the running turn
    #[command(after_help = "Exit code: 0 accepted, 1 no running turn or too many pending, 2 wrong usage.

Example:
  nexus3 rpc steer worker 'Only European rivers.'")]
    Steer {
        /// Agent id
        #[arg(value_name = "ID")]
        agent_id: String,
        /// Instructions; "-" reads them from standard input
        #[arg(value_name = "TEXT")]
        text: String,
    },

    /// Show one agent: position in the tree, tools, resource usage
    #[command(after_help = "Example:
  nexus3 rpc show worker")]
    Show {
        /// Agent id
        #[arg(value_name = "ID")]
        agent_id: String,
    },

    /// List an agent's children
    #[command(after_help = "Example:
  nexus3 rpc children lead")]
    Children {
        /// Agent id
        #[arg(value_name = "ID")]
        agent_id: String,
    },

    /// Explain an agent's permissions: each limit and its origin
    #[command(after_help = "Example:
  nexus3 rpc permissions worker")]
    Permissions {
        /// Agent id
        #[arg(value_name = "ID")]
        agent_id: String,
    },

    /// List all stored agents, including those asleep
    #[command(after_help = "Examples:
  nexus3 rpc sessions
  nexus3 rpc sessions --offset 200 --limit 50")]
    Sessions {
        /// Index of the first agent [default: 0]
        #[arg(long, value_name = "N")]
        offset: Option<u64>,
        /// Maximum number of agents, 1 to 2000 [default: 200]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=PageSize::MAX))]
        limit: Option<u64>,
    },

    /// Copy an agent, with all or only its first messages
    #[command(after_help = "The copy has the same system prompt, permissions, working directory, model and
parent.

Examples:
  nexus3 rpc fork worker
  nexus3 rpc fork worker worker-2 --messages 4")]
    Fork {
        /// Agent id
        #[arg(value_name = "ID")]
        agent_id: String,
        /// Id of the new agent [default: random]
        #[arg(value_name = "NEW_ID")]
        new_agent_id: Option<String>,
        /// Number of first messages to copy [default: all]
        #[arg(long, value_name = "N")]
        messages: Option<u64>,
    },

    /// Remove an agent's newest messages from its context
    #[command(after_help = "The model no longer sees the removed messages; they stay in the journal.

Example:
  nexus3 rpc rollback worker 4")]
    Rollback {
        /// Agent id
        #[arg(value_name = "ID")]
        agent_id: String,
        /// Number of first messages that stay
        #[arg(value_name = "MESSAGES")]
        messages: u64,
    },

    /// Restore the files that a turn changed
    #[command(after_help = "Restores all files of the turn or none: it is refused if one changed since.
Changes made by commands are not undone.

Example:
  nexus3 rpc undo worker
  nexus3 rpc undo worker 7")]
    Undo {
        /// Agent id
        #[arg(value_name = "ID")]
        agent_id: String,
        /// Turn number; the latest turn that changed files if absent
        #[arg(value_name = "TURN")]
        turn: Option<u64>,
    },

    /// Change an agent's id
    #[command(after_help = "Example:
  nexus3 rpc rename worker archivist")]
    Rename {
        /// Agent id
        #[arg(value_name = "ID")]
        agent_id: String,
        /// New id
        #[arg(value_name = "NEW_ID")]
        new_agent_id: String,
    },

    /// Print an agent as a session document for import
    #[command(after_help = "Examples:
  nexus3 rpc export worker > worker.json
  nexus3 rpc export worker | nexus3 rpc import - --as copy -p 9000")]
    Export {
        /// Agent id
        #[arg(value_name = "ID")]
        agent_id: String,
    },

    /// Create an agent from a session document
    #[command(after_help = "FILE is an export, or a session file of the original NEXUS3.
To import many files, or without a daemon: nexus3 import FILE...

Examples:
  nexus3 rpc import worker.json
  nexus3 rpc import ~/.nexus3/sessions/worker.json --as worker-2")]
    Import {
        /// Session document; "-" reads it from standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Id of the new agent [default: the id in the document]
        #[arg(long = "as", value_name = "NAME")]
        name: Option<String>,
    },

    /// Print events, one per line, until Ctrl-C
    #[command(after_help = "Reconnects when the daemon restarts, and continues without gaps. Text that a
model is streaming is printed too; it has no sequence number.
Exit code: 0 after Ctrl-C, 1 the daemon or the connection failed, 2 wrong usage.

Examples:
  nexus3 rpc events
  nexus3 rpc events --agent worker --kind message,turn_ended
  nexus3 rpc events --after 0 --json > everything.jsonl")]
    Events(EventsArgs),

    /// Destroy an agent and its descendants; cancel their turns
    #[command(after_help = "Exit code: 0 destroyed, 1 agent not found, 2 wrong usage.

Examples:
  nexus3 rpc destroy worker
  nexus3 rpc destroy lead --orphan")]
    Destroy {
        /// Agent id
        #[arg(value_name = "ID")]
        agent_id: String,
        /// Keep the children; their permissions do not change
        #[arg(long)]
        orphan: bool,
    },

    /// Stop the daemon
    #[command(after_help = "Example:
  nexus3 rpc shutdown")]
    Shutdown,
}

/// Arguments of `send`.
#[derive(Debug, Args)]
pub struct SendArgs {
    /// Agent id
    #[arg(value_name = "ID")]
    pub(crate) agent_id: String,
    /// Message; "-" reads it from standard input
    #[arg(value_name = "TEXT")]
    pub(crate) text: String,
    /// Image: PNG, JPEG, GIF or WebP (repeatable)
    #[arg(long = "image", value_name = "FILE")]
    pub(crate) images: Vec<String>,
    /// Print text as it arrives, not JSON at the end
    #[arg(long)]
    pub(crate) stream: bool,
    /// Id for safe retry and cancel [default: random]
    #[arg(long, value_name = "REQUEST_ID")]
    pub(crate) request_id: Option<String>,
    /// Cancel the turn after this time
    #[arg(short, long, value_name = "SECONDS", default_value = "300", value_parser = parse_seconds)]
    pub(crate) timeout: Duration,
}

/// Arguments of `events`.
#[derive(Debug, Args)]
pub struct EventsArgs {
    /// Start after this sequence, 0 for all [default: only new]
    #[arg(long, value_name = "N")]
    pub(crate) after: Option<u64>,
    /// Only these kinds, such as message,turn_ended (repeatable)
    #[arg(long = "kind", value_name = "KIND", value_delimiter = ',', value_parser = parse_event_kind)]
    pub(crate) kinds: Vec<EventKind>,
    /// Omit streamed text and reasoning
    #[arg(long)]
    pub(crate) no_deltas: bool,
    /// Only events of this agent
    #[arg(long = "agent", value_name = "ID")]
    pub(crate) agent_id: Option<String>,
    /// Print each event as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Parser of `--api-key`. With a plain function clap would repeat the value in its error, and it may be a mistyped
/// secret.
#[derive(Clone)]
struct TokenParser;

impl TypedValueParser for TokenParser {
    type Value = Token;

    fn parse_ref(&self, command: &Command, _: Option<&Arg>, value: &OsStr) -> Result<Token, clap::Error> {
        let token = value.to_str().ok_or(TokenFault::Given("it is not UTF-8")).and_then(Token::parse);
        token.map_err(|fault| {
            command.clone().error(ErrorKind::ValueValidation, format!("invalid value for --api-key: {fault}"))
        })
    }
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|number: f64| Duration::try_from_secs_f64(number).ok());
    seconds
        .filter(|seconds| !seconds.is_zero())
        .ok_or_else(|| "must be a number of seconds above 0".to_owned())
}

fn parse_event_kind(text: &str) -> Result<EventKind, String> {
    EventKind::find(text).ok_or_else(|| format!("must be one of {}", EventKind::choices()))
}
