//! The words that a message may tell the scripted model, and nothing of how they are carried out.
//! `SCRIPT_WORDS` is the one list: the parser, the fault for an unknown word and `--help` read it.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

#[cfg(test)]
mod tests;

/// What a message asks the scripted model to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Script {
    /// Answer this text.
    Reply {
        /// The whole answer.
        text: String,
    },
    /// Answer this text in `count` deltas, all sent at once.
    Chunks {
        /// How many deltas; at least one.
        count: usize,
        /// The whole answer.
        text: String,
    },
    /// Stream this text, then never go on.
    Stall {
        /// What comes before the silence; may be empty.
        text: String,
    },
    /// Never even send the response's head.
    Silent,
    /// Stream word by word.
    Slow {
        /// The pause between two words.
        pause_ms: u64,
        /// The whole answer.
        text: String,
    },
    /// Stream this text, then wait for the release of `name`.
    Hold {
        /// What the test releases.
        name: String,
        /// What comes before the wait; may be empty.
        text: String,
    },
    /// Think this, then do the rest.
    Think {
        /// What is streamed as reasoning.
        thought: String,
        /// What follows; something that is streamed.
        rest: Box<Script>,
    },
    /// Call these tools, all in one message.
    Tools {
        /// At least one call.
        calls: Vec<ScriptedCall>,
    },
    /// Call these tools, and again after each of their results.
    Insist {
        /// At least one call.
        calls: Vec<ScriptedCall>,
    },
    /// Answer with this HTTP status.
    Status {
        /// 200 to 599.
        code: u16,
        /// The response's body; an OpenAI error where none is given.
        body: Option<String>,
    },
    /// Answer this text, but not before the second time: the first is told when to come back.
    Later {
        /// What `Retry-After` says.
        wait_s: u64,
        /// The whole answer.
        text: String,
    },
    /// Stream this text, then drop the connection in the middle of the body.
    Cut {
        /// What comes before the end; may be empty.
        text: String,
    },
    /// Stream events that are not JSON.
    Garbage,
    /// Answer with a web page.
    Html,
    /// Finish without any content.
    Empty,
    /// Answer all user messages of the request.
    History,
    /// No script word: answer the message itself.
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
    /// The arguments as written: JSON, or something broken that a test wants to send.
    pub arguments: String,
}

/// One word of the script: its name, how it is written, what it does.
#[derive(Debug)]
pub struct ScriptCommand {
    /// The word without its exclamation mark.
    pub name: &'static str,
    /// The word with its parameters.
    pub usage: &'static str,
    /// What the model then does.
    pub description: &'static str,
    parse: fn(&str) -> Result<Script, String>,
}

/// Every word that the scripted model knows.
pub const SCRIPT_COMMANDS: &[ScriptCommand] = &[
    ScriptCommand {
        name: "reply",
        usage: "!reply TEXT",
        description: "answer TEXT",
        parse: |rest| Ok(Script::Reply { text: rest.to_owned() }),
    },
    ScriptCommand {
        name: "chunks",
        usage: "!chunks N TEXT",
        description: "answer TEXT cut into N deltas, sent at once",
        parse: parse_chunks,
    },
    ScriptCommand {
        name: "stall",
        usage: "!stall [TEXT]",
        description: "stream TEXT, then never go on",
        parse: |rest| Ok(Script::Stall { text: rest.to_owned() }),
    },
    ScriptCommand {
        name: "silent",
        usage: "!silent",
        description: "never even send the response's head",
        parse: |rest| without_arguments(rest, Script::Silent),
    },
    ScriptCommand {
        name: "slow",
        usage: "!slow MS TEXT",
        description: "stream TEXT word by word with MS milliseconds between",
        parse: parse_slow,
    },
    ScriptCommand {
        name: "hold",
        usage: "!hold NAME [TEXT]",
        description: "stream TEXT, wait for the release of NAME, end with ` released NAME`",
        parse: parse_hold,
    },
    ScriptCommand {
        name: "think",
        usage: "!think THOUGHT | REST",
        description: "stream THOUGHT as reasoning, then REST: a script, or a text to answer",
        parse: parse_think,
    },
    ScriptCommand {
        name: "tool",
        usage: "!tool NAME {JSON}",
        description: "call the tool NAME; one call per line, each line with the word",
        parse: parse_tools,
    },
    ScriptCommand {
        name: "insist",
        usage: "!insist NAME {JSON}",
        description: "call the tool NAME, and after each result again",
        parse: |rest| parse_tool_call(rest).map(|call| Script::Insist { calls: vec![call] }),
    },
    ScriptCommand {
        name: "status",
        usage: "!status CODE [BODY]",
        description: "answer with the HTTP status CODE",
        parse: parse_status,
    },
    ScriptCommand {
        name: "later",
        usage: "!later S TEXT",
        description: "answer 429 with `Retry-After: S` the first time, then TEXT",
        parse: parse_later,
    },
    ScriptCommand {
        name: "cut",
        usage: "!cut [TEXT]",
        description: "stream TEXT, then drop the connection in the middle of the body",
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
        description: "answer with a web page",
        parse: |rest| without_arguments(rest, Script::Html),
    },
    ScriptCommand {
        name: "empty",
        usage: "!empty",
        description: "finish without any content",
        parse: |rest| without_arguments(rest, Script::Empty),
    },
    ScriptCommand {
        name: "history",
        usage: "!history",
        description: "answer all user messages joined by ` | `",
        parse: |rest| without_arguments(rest, Script::History),
    },
];

/// A message that starts like a script and is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptFault {
    /// No such word.
    Unknown {
        /// The word without its exclamation mark.
        command: String,
    },
    /// A known word with parameters that do not fit.
    Misused {
        /// How the word is written.
        usage: &'static str,
        /// What does not fit.
        reason: String,
    },
}

impl fmt::Display for ScriptFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { command: word } => {
                write!(f, "unknown script word !{word}; known:")?;
                SCRIPT_COMMANDS.iter().try_for_each(|known| write!(f, " !{}", known.name))
            }
            Self::Misused { usage, reason: why } => write!(f, "{why}; write: {usage}"),
        }
    }
}

impl std::error::Error for ScriptFault {}

impl Script {
    /// Reads a message. What does not start with `!` and a letter is no script and is echoed.
    pub fn parse(content: &str) -> Result<Self, ScriptFault> {
        let Some(script) =
            content.strip_prefix('!').filter(|s| s.starts_with(|c: char| c.is_ascii_alphabetic()))
        else {
            return Ok(Self::Echo { text: content.to_owned() });
        };
        let (name, rest) = split_word(script);
        let Some(word) = SCRIPT_COMMANDS.iter().find(|word| word.name == name) else {
            return Err(ScriptFault::Unknown { command: name.to_owned() });
        };
        (word.parse)(rest).map_err(|why| ScriptFault::Misused { usage: word.usage, reason: why })
    }
}

fn split_word(text: &str) -> (&str, &str) {
    text.split_once(char::is_whitespace).unwrap_or((text, ""))
}

fn without_arguments(rest: &str, script: Script) -> Result<Script, String> {
    if rest.trim().is_empty() { Ok(script) } else { Err("this word stands alone".to_owned()) }
}

fn parse_number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number that fits"))
}

fn parse_chunks(rest: &str) -> Result<Script, String> {
    let (count, text) = split_word(rest);
    let count = parse_number(count)?;
    if count == 0 {
        return Err("an answer has at least one delta".to_owned());
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
        return Err("the name to release is missing".to_owned());
    }
    Ok(Script::Hold { name: name.to_owned(), text: text.to_owned() })
}

fn parse_status(rest: &str) -> Result<Script, String> {
    let (code, body) = split_word(rest);
    let code = parse_number(code)?;
    // hyper refuses to send the 1xx as final answers.
    if !(200..=599).contains(&code) {
        return Err(format!("{code} is no final status"));
    }
    Ok(Script::Status { code, body: (!body.is_empty()).then(|| body.to_owned()) })
}

fn parse_think(rest: &str) -> Result<Script, String> {
    let Some((thought, rest)) = rest.split_once('|') else {
        return Err("what follows the thought is missing".to_owned());
    };
    let rest = match Script::parse(rest.trim_start()).map_err(|fault| fault.to_string())? {
        Script::Echo { text } => Script::Reply { text },
        Script::Status { .. } | Script::Later { .. } | Script::Html | Script::Garbage | Script::Silent => {
            return Err("only what is streamed can follow a thought".to_owned());
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
        return Err("the tool's name is missing".to_owned());
    }
    Ok(Script::Tools { calls })
}

/// Every call that a text asks for: wherever `!tool NAME` and a JSON object stand in one of its lines. In a text that is
/// JSON itself, as many results are, its strings are looked through.
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
    // Whatever is said behind the arguments is not theirs.
    let arguments = serde_json::Deserializer::from_str(rest).into_iter::<Value>().next()?.ok()?;
    Some(ScriptedCall { name: name.to_owned(), arguments: arguments.to_string() })
}

fn parse_tool_call(call: &str) -> Result<ScriptedCall, String> {
    let (name, arguments) = split_word(call);
    if name.is_empty() {
        return Err("the tool's name is missing".to_owned());
    }
    let arguments = if arguments.trim().is_empty() { "{}" } else { arguments.trim() };
    Ok(ScriptedCall { name: name.to_owned(), arguments: arguments.to_owned() })
}
