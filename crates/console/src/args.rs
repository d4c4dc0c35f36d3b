//! The arguments of `nexus3 rpc …`, with the help texts.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Args, Command, Subcommand};
use nexus3_client::{Token, TokenFault};
use nexus3_protocol::events::EventKind;
use nexus3_protocol::methods::{OnRestart, PageSize};

/// Calls a running daemon. Answers are JSON on standard output, messages go to standard error. Exit code: 0 done, 1 the
/// daemon or the connection said no, 2 wrong usage.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  nexus3 rpc create worker --system-prompt 'You are brief.'
  nexus3 rpc send worker 'Name three rivers.'
  nexus3 rpc events --agent worker
  nexus3 rpc list -p 9000")]
pub struct RpcArgs {
    #[command(flatten)]
    pub(crate) address: ConnectionArgs,

    /// What to do
    #[command(subcommand)]
    pub(crate) command: RpcCommand,
}

impl AskArgs {
    /// The port, if one was named.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.address.port
    }
}

/// Which daemon is meant.
#[derive(Debug, Args)]
pub(crate) struct ConnectionArgs {
    /// The daemon's port on this machine [default: the setting `port`, 8765]
    #[arg(short, long, global = true, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,

    /// The daemon's token [default: NEXUS3_API_KEY, or the token file in NEXUS3_HOME]. Other users of this machine
    /// can see arguments: prefer the default
    #[arg(long, global = true, value_name = "KEY", value_parser = TokenParser)]
    pub(crate) api_key: Option<Token>,
}

/// Asks once and prints the answer as it is said. Uses the running daemon, or starts one that stops by itself when it
/// is no longer used.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit code: 0 answered, 1 failed or cancelled, 2 wrong usage, 130 interrupted before the question was sent.

The answer goes to standard output, everything else to standard error. Ctrl-C cancels. Without --agent nothing is kept.

Examples:
  nexus3 ask 'Why is the sky blue?'
  nexus3 ask - < question.txt
  nexus3 ask 'What does this project do?' --model anthropic/claude-sonnet-4-5
  nexus3 ask 'And why is it red in the evening?' --agent weather"
)]
pub struct AskArgs {
    #[command(flatten)]
    pub(crate) address: ConnectionArgs,
    /// The question; "-" reads it from standard input
    #[arg(value_name = "TEXT")]
    pub(crate) text: String,
    /// The model that answers [default: the daemon's]
    #[arg(short, long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Go on with the agent of this name, which is made when it is not there, instead of one for this question alone
    #[arg(short, long = "agent", value_name = "ID")]
    pub(crate) agent_id: Option<String>,
    /// The system prompt of an agent that is made [default: the daemon's]
    #[arg(long, value_name = "TEXT")]
    pub(crate) system_prompt: Option<String>,
    /// Show the model this picture (PNG, JPEG, GIF or WebP); can be given several times
    #[arg(long = "image", value_name = "FILE")]
    pub(crate) images: Vec<String>,
    /// Pull the small model without asking when there is no other
    #[arg(short, long)]
    pub yes: bool,
    /// How long to wait for the answer before it is cancelled
    #[arg(short, long, value_name = "SECONDS", default_value = "600", value_parser = parse_seconds)]
    pub(crate) timeout: Duration,
}

/// One command.
#[derive(Debug, Subcommand)]
pub enum RpcCommand {
    /// Say whether a daemon is running: no_server, nexus_server, other_service, timeout or error
    #[command(after_help = "Exit code 0 when a daemon is running, else 1.

Examples:
  nexus3 rpc detect
  nexus3 rpc detect -p 9000 || nexus3 serve 9000")]
    Detect,

    /// List the agents
    #[command(after_help = "Example:
  nexus3 rpc list")]
    List,

    /// Create an agent, and give it a first message if there is one
    #[command(after_help = "Examples:
  nexus3 rpc create
  nexus3 rpc create worker --system-prompt 'You are brief.'
  nexus3 rpc create writer --cwd /tmp/project --write-path /tmp/project/output
  nexus3 rpc create lead --preset trusted
  nexus3 rpc create helper --parent lead
  nexus3 rpc create worker -M 'Name three rivers.' -t 60")]
    Create(CreateArgs),

    /// Send a message to an agent and print its answer
    #[command(after_help = "Ctrl-C and the time limit cancel the turn; what was said until then is printed.
A send that is repeated with the same --request-id and text is not done twice: it gets the answer of the first.

Examples:
  nexus3 rpc send worker 'Name three rivers.'
  nexus3 rpc send worker 'Tell me a long story.' --stream
  nexus3 rpc send worker 'What is this?' --image photo.jpg
  nexus3 rpc send worker 'Pay the bill.' --request-id bill-17
  nexus3 rpc send worker - < question.txt
  nexus3 rpc send worker -t 10 -- '-1 is what kind of number?'")]
    Send(SendArgs),

    /// Cancel a send that is running or waiting
    #[command(after_help = "Example:
  nexus3 rpc cancel worker 91b8a2f0c4d3e576")]
    Cancel {
        /// The agent
        #[arg(value_name = "ID")]
        agent_id: String,
        /// The request_id of the send
        #[arg(value_name = "REQUEST_ID")]
        request_id: String,
    },

    /// Print an agent's token counts and context
    #[command(after_help = "Example:
  nexus3 rpc status worker")]
    Status {
        /// The agent
        #[arg(value_name = "ID")]
        agent_id: String,
    },

    /// Make an agent's context shorter: older messages are summed up
    #[command(after_help = "Waits for a turn that is running. What was summed up stays in the journal.

Examples:
  nexus3 rpc compact worker
  nexus3 rpc compact worker --if-full")]
    Compact {
        /// The agent
        #[arg(value_name = "ID")]
        agent_id: String,
        /// Only when the context is full
        #[arg(long)]
        if_full: bool,
    },

    /// Print an agent's messages
    #[command(after_help = "Examples:
  nexus3 rpc messages worker
  nexus3 rpc messages worker --offset 200 --limit 50")]
    Messages {
        /// The agent
        #[arg(value_name = "ID")]
        agent_id: String,
        /// The first message to print [default: 0]
        #[arg(long, value_name = "N")]
        offset: Option<u64>,
        /// How many to print at the most, 1 to 2000 [default: 200]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=PageSize::MAX))]
        limit: Option<u64>,
    },

    /// Add a word to the turn an agent is working on
    #[command(after_help = "Exit code 1 when no turn is running.

Example:
  nexus3 rpc steer worker 'Only European rivers.'")]
    Steer {
        /// The agent
        #[arg(value_name = "ID")]
        agent_id: String,
        /// The word to add; "-" reads it from standard input
        #[arg(value_name = "TEXT")]
        text: String,
    },

    /// Show one agent in full: its place in the tree, its tools, what it has used up
    #[command(after_help = "Example:
  nexus3 rpc show worker")]
    Show {
        /// The agent
        #[arg(value_name = "ID")]
        agent_id: String,
    },

    /// List an agent's children
    #[command(after_help = "Example:
  nexus3 rpc children lead")]
    Children {
        /// The agent
        #[arg(value_name = "ID")]
        agent_id: String,
    },

    /// Explain what an agent may do: every limit, who set it, and why
    #[command(after_help = "Example:
  nexus3 rpc permissions worker")]
    Permissions {
        /// The agent
        #[arg(value_name = "ID")]
        agent_id: String,
    },

    /// List what is kept of every agent: how long it is, whether it is in memory, what a crash means for it
    #[command(after_help = "Examples:
  nexus3 rpc sessions
  nexus3 rpc sessions --offset 200 --limit 50")]
    Sessions {
        /// The first session to print [default: 0]
        #[arg(long, value_name = "N")]
        offset: Option<u64>,
        /// How many to print at the most, 1 to 2000 [default: 200]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=PageSize::MAX))]
        limit: Option<u64>,
    },

    /// Make a new agent that begins where another one stands, or stood
    #[command(after_help = "The new agent has the same prompt, permissions, folder, model and parent.

Examples:
  nexus3 rpc fork worker
  nexus3 rpc fork worker worker-2 --messages 4")]
    Fork {
        /// The agent
        #[arg(value_name = "ID")]
        agent_id: String,
        /// The new agent's name; the daemon makes one up when it is left out
        #[arg(value_name = "NEW_ID")]
        new_agent_id: Option<String>,
        /// How many of its first messages the new agent has [default: all]
        #[arg(long, value_name = "N")]
        messages: Option<u64>,
    },

    /// Take an agent back to its first messages; the rest stays in the journal, but the model no longer sees it
    #[command(after_help = "Example:
  nexus3 rpc rollback worker 4")]
    Rollback {
        /// The agent
        #[arg(value_name = "ID")]
        agent_id: String,
        /// How many of its first messages stay
        #[arg(value_name = "MESSAGES")]
        messages: u64,
    },

    /// Give an agent another name
    #[command(after_help = "Example:
  nexus3 rpc rename worker archivist")]
    Rename {
        /// The agent
        #[arg(value_name = "ID")]
        agent_id: String,
        /// Its new name
        #[arg(value_name = "NEW_ID")]
        new_agent_id: String,
    },

    /// Print an agent as a document that can be imported
    #[command(after_help = "Examples:
  nexus3 rpc export worker > worker.json
  nexus3 rpc export worker | nexus3 rpc import - --as copy -p 9000")]
    Export {
        /// The agent
        #[arg(value_name = "ID")]
        agent_id: String,
    },

    /// Make an agent from an exported document, or from a session file of the original NEXUS3
    #[command(after_help = "To import when no daemon runs, or many files at once: nexus3 import FILE...

Examples:
  nexus3 rpc import worker.json
  nexus3 rpc import ~/.nexus3/sessions/worker.json --as worker-2")]
    Import {
        /// The document; "-" reads it from standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// The agent's name [default: the one in the document]
        #[arg(long = "as", value_name = "NAME")]
        name: Option<String>,
    },

    /// Print what happens, one line an event, until Ctrl-C
    #[command(
        after_help = "Goes on where it was when the daemon is restarted. Text that a model is just saying is shown too; it has no number.
Exit code 0 after Ctrl-C.

Examples:
  nexus3 rpc events
  nexus3 rpc events --agent worker --kind message,turn_ended
  nexus3 rpc events --after 0 --json > everything.jsonl"
    )]
    Events(EventsArgs),

    /// Destroy an agent and its children; turns that are running are cancelled
    #[command(after_help = "Exit code 1 when there is no such agent.

Examples:
  nexus3 rpc destroy worker
  nexus3 rpc destroy lead --orphan")]
    Destroy {
        /// The agent
        #[arg(value_name = "ID")]
        agent_id: String,
        /// Leave its children, under the ceiling they had
        #[arg(long)]
        orphan: bool,
    },

    /// Stop the daemon
    #[command(after_help = "Example:
  nexus3 rpc shutdown")]
    Shutdown,
}

/// What `create` takes.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// The agent's name; the daemon makes one up when it is left out
    #[arg(value_name = "ID")]
    pub(crate) agent_id: Option<String>,
    /// The agent's system prompt
    #[arg(long, value_name = "TEXT")]
    pub(crate) system_prompt: Option<String>,
    /// What the agent may do: sandboxed, worker, trusted, or a preset of the configuration
    #[arg(long, value_name = "NAME")]
    pub(crate) preset: Option<String>,
    /// The agent it is created under; it can never do more than this one may grant
    #[arg(long, value_name = "ID")]
    pub(crate) parent: Option<String>,
    /// The working directory [default: the parent's, or the daemon's]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<String>,
    /// A folder the agent may write to, relative to its working directory; may be given several times
    #[arg(long = "write-path", value_name = "DIR")]
    pub(crate) write_paths: Vec<String>,
    /// A tool the agent may not call; may be given several times
    #[arg(long = "disable-tool", value_name = "TOOL")]
    pub(crate) disable_tools: Vec<String>,
    /// The model that answers it [default: the daemon's]
    #[arg(short, long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// What becomes of a turn that a crash cut off: resume it, or mark it as interrupted [default: the daemon's]
    #[arg(long, value_name = "POLICY", value_parser = parse_on_restart)]
    pub(crate) on_restart: Option<OnRestart>,
    /// Make up a temporary name: .1, .2, …
    #[arg(long, conflicts_with = "agent_id")]
    pub(crate) temporary: bool,
    /// A first message; its answer is printed under "response". "-" reads it from standard input
    #[arg(short = 'M', long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// How long to wait for the answer before the turn is cancelled
    #[arg(short, long, value_name = "SECONDS", default_value = "300", value_parser = parse_seconds)]
    pub(crate) timeout: Duration,
}

/// What `send` takes.
#[derive(Debug, Args)]
pub struct SendArgs {
    /// The agent
    #[arg(value_name = "ID")]
    pub(crate) agent_id: String,
    /// The message; "-" reads it from standard input
    #[arg(value_name = "TEXT")]
    pub(crate) text: String,
    /// Show the model this picture (PNG, JPEG, GIF or WebP); can be given several times
    #[arg(long = "image", value_name = "FILE")]
    pub(crate) images: Vec<String>,
    /// Print the text as the model says it, instead of the answer as JSON at the end
    #[arg(long)]
    pub(crate) stream: bool,
    /// The send's name, for repeating it safely and for cancel [default: made up]
    #[arg(long, value_name = "REQUEST_ID")]
    pub(crate) request_id: Option<String>,
    /// How long to wait for the answer before the turn is cancelled
    #[arg(short, long, value_name = "SECONDS", default_value = "300", value_parser = parse_seconds)]
    pub(crate) timeout: Duration,
}

/// What `events` takes.
#[derive(Debug, Args)]
pub struct EventsArgs {
    /// Begin behind this number of the journal, 0 with everything there is [default: with what happens from now on]
    #[arg(long, value_name = "N")]
    pub(crate) after: Option<u64>,
    /// Only these kinds, such as message or turn_ended; comma separated, may be given several times
    #[arg(long = "kind", value_name = "KIND", value_delimiter = ',', value_parser = parse_event_kind)]
    pub(crate) kinds: Vec<EventKind>,
    /// Leave out what models are just saying and thinking
    #[arg(long)]
    pub(crate) no_deltas: bool,
    /// Only this agent's
    #[arg(long = "agent", value_name = "ID")]
    pub(crate) agent_id: Option<String>,
    /// Print each event as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Reads a token. A function would do, but then clap repeats what was given, and that may be a secret with a slip in
/// it.
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
    let wanted = text.parse().ok().and_then(|seconds: f64| Duration::try_from_secs_f64(seconds).ok());
    wanted.filter(|wanted| !wanted.is_zero()).ok_or_else(|| "must be a number of seconds above 0".to_owned())
}

fn parse_event_kind(text: &str) -> Result<EventKind, String> {
    EventKind::find(text).ok_or_else(|| format!("must be one of {}", EventKind::choices()))
}

fn parse_on_restart(text: &str) -> Result<OnRestart, String> {
    match text {
        "resume" => Ok(OnRestart::Resume),
        "mark" => Ok(OnRestart::Mark),
        _ => Err("must be resume or mark".to_owned()),
    }
}
