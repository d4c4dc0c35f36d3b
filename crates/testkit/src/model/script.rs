//! The commands of the scripted model and their parser; `response` executes them.
//! `SCRIPT_COMMANDS` is the only list: the parser, the error for an unknown command and `--help` read it.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

#[cfg(test)]
mod tests;

/// What a message makes the scripted model do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Script {
    /// Respond with this text.
    Reply {
        /// The complete response.
        text: String,
    },
    /// Respond with this text in `count` deltas, all sent at once.
    Chunks {
        /// The number of deltas; at least one.
        count: usize,
        /// The complete response.
        text: String,
    },
    /// Stream this text, then hang.
    Stall {
        /// The text before the hang; may be empty.
        text: String,
    },
    /// Never send the response head.
    Silent,
    /// Stream word by word.
    Slow {
        /// The pause between two words.
        pause_ms: u64,
        /// The complete response.
        text: String,
    },
    /// Stream this text, wait for the release of `name`, then end with ` released NAME`.
    Hold {
        /// The name that the test releases.
        name: String,
        /// The text before the wait; may be empty.
        text: String,
    },
    /// Stream reasoning, then run another script.
    Think {
        /// The reasoning text.
        thought: String,
        /// A script whose response can be streamed.
        rest: Box<Script>,
    },
    /// Call these tools, all in one message.
    Tools {
        /// At least one call.
        calls: Vec<ScriptedCall>,
    },
    /// Call these tools, and again after each result.
    Insist {
        /// At least one call.
        calls: Vec<ScriptedCall>,
    },
    /// Respond with this HTTP status.
    Status {
        /// 200 to 599.
        code: u16,
        /// The response body; by default an error in the API's format.
        body: Option<String>,
    },
    /// Respond with 429 to the first request, and with this text to later ones.
    Later {
        /// The `Retry-After` header of the 429 response, in seconds.
        wait_s: u64,
        /// The complete response.
        text: String,
    },
    /// Stream this text, then close the connection in the middle of the body.
    Cut {
        /// The text before the close; may be empty.
        text: String,
    },
    /// Stream events that are not JSON.
    Garbage,
    /// Respond with a web page.
    Html,
    /// Finish without content.
    Empty,
    /// Respond with all user messages of the request.
    History,
    /// No command: echo the message.
    Echo {
        /// The message.
        text: String,
    },
}

/// One tool call of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptedCall {
    /// The tool's name.
    pub name: String,
    /// The arguments as written: JSON, or malformed text that a test wants to send.
    pub arguments: String,
}

/// A command of the script language.
#[derive(Debug)]
pub struct ScriptCommand {
    /// The command without its exclamation mark.
    pub name: &'static str,
    /// The command with its parameters.
    pub usage: &'static str,
    /// What the model does, for `--help`.
    pub description: &'static str,
    parse: fn(&str) -> Result<Script, String>,
}

/// All commands of the scripted model.
pub const SCRIPT_COMMANDS: &[ScriptCommand] = &[
    ScriptCommand {
        name: "reply",
        usage: "!reply TEXT",
        description: "respond with TEXT",
        parse: |rest| Ok(Script::Reply { text: rest.to_owned() }),
    },
    ScriptCommand {
        name: "chunks",
        usage: "!chunks N TEXT",
        description: "respond with TEXT in N deltas, sent at once",
        parse: parse_chunks,
    },
    ScriptCommand {
        name: "stall",
        usage: "!stall [TEXT]",
        description: "stream TEXT, then hang",
        parse: |rest| Ok(Script::Stall { text: rest.to_owned() }),
    },
    ScriptCommand {
        name: "silent",
        usage: "!silent",
        description: "never send the response head",
        parse: |rest| without_arguments(rest, Script::Silent),
    },
    ScriptCommand {
        name: "slow",
        usage: "!slow MS TEXT",
        description: "stream TEXT word by word, MS milliseconds apart",
        parse: parse_slow,
    },
    ScriptCommand {
        name: "hold",
        usage: "!hold NAME [TEXT]",
        description: "stream TEXT, wait for release, add ` released NAME`",
        parse: parse_hold,
    },
    ScriptCommand {
        name: "think",
        usage: "!think THOUGHT | REST",
        description: "stream reasoning THOUGHT, then REST (command or text)",
        parse: parse_think,
    },
    ScriptCommand {
        name: "tool",
        usage: "!tool NAME {JSON}",
        description: "call tool NAME; for more calls, one !tool per line",
        parse: parse_tools,
    },
    ScriptCommand {
        name: "insist",
        usage: "!insist NAME {JSON}",
        description: "call tool NAME, and again after each result",
        parse: |rest| parse_tool_call(rest).map(|call| Script::Insist { calls: vec![call] }),
    },
    ScriptCommand {
        name: "status",
        usage: "!status CODE [BODY]",
        description: "respond with HTTP status CODE",
        parse: parse_status,
    },
    ScriptCommand {
        name: "later",
        usage: "!later S TEXT",
        description: "first 429 with `Retry-After: S`, then TEXT",
        parse: parse_later,
    },
    ScriptCommand {
        name: "cut",
        usage: "!cut [TEXT]",
        description: "stream TEXT, then close the connection mid-body",
        parse: |rest| Ok(Script::Cut { text: rest.to_owned() }),
    },
    ScriptCommand {
        name: "garbage",
        usage: "!garbage",
        description: "stream events that are not JSON",
        parse: |rest| without_arguments(rest, Script::Garbage),
    },
    ScriptCommand {
        name: "html",
        usage: "!html",
        description: "respond with a web page",
        parse: |rest| without_arguments(rest, Script::Html),
    },
    ScriptCommand {
        name: "empty",
        usage: "!empty",
        description: "finish without content",
        parse: |rest| without_arguments(rest, Script::Empty),
    },
    ScriptCommand {
        name: "history",
        usage: "!history",
        description: "respond with all user messages joined by ` | `",
        parse: |rest| without_arguments(rest, Script::History),
    },
];

/// A message that starts like a command but is not a valid one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptFault {
    /// Unknown command.
    Unknown {
        /// The command without its exclamation mark.
        command: String,
    },
    /// A known command with invalid parameters.
    Misused {
        /// The command with its parameters.
        usage: &'static str,
        /// What is invalid.
        reason: String,
    },
}

impl fmt::Display for ScriptFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { command } => {
                write!(f, "unknown script command !{command}; known:")?;
                SCRIPT_COMMANDS.iter().try_for_each(|known| write!(f, " !{}", known.name))
            }
            Self::Misused { usage, reason } => write!(f, "{reason}; usage: {usage}"),
        }
    }
}

impl std::error::Error for ScriptFault {}

impl Script {
    /// Parses a message. Text that does not start with `!` and a letter is echoed.
    pub fn parse(content: &str) -> Result<Self, ScriptFault> {
        let Some(script) =
            content.strip_prefix('!').filter(|s| s.starts_with(|c: char| c.is_ascii_alphabetic()))
        else {
            return Ok(Self::Echo { text: content.to_owned() });
        };
        let (name, rest) = split_word(script);
        let Some(command) = SCRIPT_COMMANDS.iter().find(|command| command.name == name) else {
            return Err(ScriptFault::Unknown { command: name.to_owned() });
        };
        (command.parse)(rest).map_err(|reason| ScriptFault::Misused { usage: command.usage, reason })
    }
}

fn split_word(text: &str) -> (&str, &str) {
    text.split_once(char::is_whitespace).unwrap_or((text, ""))
}

fn without_arguments(rest: &str, script: Script) -> Result<Script, String> {
    if rest.trim().is_empty() { Ok(script) } else { Err("this command takes no arguments".to_owned()) }
}

fn parse_number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is not a valid number"))
}

fn parse_chunks(rest: &str) -> Result<Script, String> {
    let (count, text) = split_word(rest);
    let count = parse_number(count)?;
    if count == 0 {
        return Err("a response has at least one delta".to_owned());
    }
    Ok(Script::Chunks { count, text: text.to_owned() })
}

fn parse_slow(rest: &str) -> Result<Script, String> {
    let (pause_ms, text) = split_word(rest);
    Ok(Script::Slow { pause_ms: parse_number(pause_ms)?, text: text.to_owned() })
}

fn parse_later(rest: &str) -> Result<Script, String> {
    let (wait_s, text) = split_word(rest);
    Ok(Script::Later { wait_s: parse_number(wait_s)?, text: text.to_owned() })
}

fn parse_hold(rest: &str) -> Result<Script, String> {
    let (name, text) = split_word(rest);
    if name.is_empty() {
        return Err("missing name to release".to_owned());
    }
    Ok(Script::Hold { name: name.to_owned(), text: text.to_owned() })
}

fn parse_status(rest: &str) -> Result<Script, String> {
    let (code, body) = split_word(rest);
    let code = parse_number(code)?;
    // hyper does not send a 1xx as the final response.
    if !(200..=599).contains(&code) {
        return Err(format!("{code} is not a final status (200 to 599)"));
    }
    Ok(Script::Status { code, body: (!body.is_empty()).then(|| body.to_owned()) })
}

fn parse_think(rest: &str) -> Result<Script, String> {
    let Some((thought, rest)) = rest.split_once('|') else {
        return Err("missing `|` and what follows the thought".to_owned());
    };
    let rest = match Script::parse(rest.trim_start()).map_err(|fault| fault.to_string())? {
        Script::Echo { text } => Script::Reply { text },
        Script::Status { .. } | Script::Later { .. } | Script::Html | Script::Garbage | Script::Silent => {
            return Err("only a streamed response can follow a thought".to_owned());
        }
        script => script,
    };
    Ok(Script::Think { thought: thought.trim_end().to_owned(), rest: Box::new(rest) })
}

fn parse_tools(rest: &str) -> Result<Script, String> {
    let mut calls = Vec::new();
    for (index, line) in rest.lines().enumerate() {
        let call = if index == 0 { Some(line) } else { line.strip_prefix("!tool ") };
        let call = call.ok_or_else(|| format!("{line:?} is not a tool call"))?;
        calls.push(parse_tool_call(call)?);
    }
    if calls.is_empty() {
        return Err("missing tool name".to_owned());
    }
    Ok(Script::Tools { calls })
}

/// All tool calls that a text injects: a `!tool NAME` and a JSON object anywhere in a line. If the text is JSON, as
/// many tool results are, its strings are searched.
pub(crate) fn injected_calls(text: &str) -> Vec<ScriptedCall> {
    match serde_json::from_str::<Value>(text) {
        Ok(value) => string_values(&value).into_iter().flat_map(injected_calls).collect(),
        Err(_) => text.lines().filter_map(injected_call).collect(),
    }
}

fn string_values(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(elements) => elements.iter().flat_map(string_values).collect(),
        Value::Object(members) => members.values().flat_map(string_values).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

fn injected_call(line: &str) -> Option<ScriptedCall> {
    let (_, call) = line.split_once("!tool ")?;
    let (name, rest) = split_word(call);
    // Text after the arguments is not part of them.
    let arguments = serde_json::Deserializer::from_str(rest).into_iter::<Value>().next()?.ok()?;
    Some(ScriptedCall { name: name.to_owned(), arguments: arguments.to_string() })
}

fn parse_tool_call(call: &str) -> Result<ScriptedCall, String> {
    let (name, arguments) = split_word(call);
    if name.is_empty() {
        return Err("missing tool name".to_owned());
    }
    let arguments = if arguments.trim().is_empty() { "{}" } else { arguments.trim() };
    Ok(ScriptedCall { name: name.to_owned(), arguments: arguments.to_owned() })
}
