//! Approval rules: patterns over the effects of tool calls, in the text form that presets, requests and answers use.

use std::fmt;
use std::sync::Arc;

use super::effect::{CommandEffect, Confinement};
use super::{Effect, FilePath, HostPattern};

/// A pattern over the effects of tool calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// Calls of a tool: its name, or `*` for every tool.
    Tool(Arc<str>),
    /// One call, exactly: the tool and its arguments as the model wrote them.
    Call {
        /// The name of the tool.
        tool: Arc<str>,
        /// The arguments, byte for byte.
        arguments: Arc<str>,
    },
    /// Commands.
    Run(CommandRule),
    /// Connections to hosts.
    Host(HostPattern),
    /// Reading in a directory.
    Read(FilePath),
    /// Writing in a directory.
    Write(FilePath),
}

/// A pattern over commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandRule {
    /// Whether the commands run in the sandbox.
    pub confinement: Confinement,
    /// The program and its first arguments; empty for every command.
    pub words: Vec<Arc<str>>,
    /// Only in this directory.
    pub directory: Option<FilePath>,
}

/// Why a text is no rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rule '{text}' is invalid: {why}; {RULE_FORMS}")]
pub struct RuleFault {
    /// The beginning of the text.
    text: String,
    why: &'static str,
}

/// The forms of a rule, for error messages and help.
pub const RULE_FORMS: &str = "a rule is a tool's name, `run:PROGRAM [ARGUMENT…] [in /DIRECTORY]`, \
                              `unsandboxed:PROGRAM …`, `host:NAME`, `read:/PATH`, `write:/PATH`, or a tool's name \
                              followed by exact arguments; `*` stands for all";

/// Maximum length of a rule: long enough for the arguments of most calls.
const RULE_BYTES_MAX: usize = 16 << 10;

const DIRECTORY_SEPARATOR: &str = " in /";

impl Rule {
    /// Parses a rule.
    ///
    /// # Errors
    /// When the text has none of the forms.
    pub fn parse(text: &str) -> Result<Self, RuleFault> {
        let fault = |why| RuleFault { text: text.chars().take(80).collect(), why };
        if text.len() > RULE_BYTES_MAX {
            return Err(fault("longer than 16384 bytes"));
        }
        let path = |text: &str| {
            let path = FilePath::resolve(text, &FilePath::root()).ok().filter(|path| path.as_str() == text);
            path.ok_or_else(|| fault("the path is not absolute and normalized"))
        };
        if let Some(command) = text.strip_prefix("run:") {
            return CommandRule::parse(Confinement::Sandboxed, command).map(Rule::Run).map_err(fault);
        }
        if let Some(command) = text.strip_prefix("unsandboxed:") {
            return CommandRule::parse(Confinement::Unsandboxed, command).map(Rule::Run).map_err(fault);
        }
        if let Some(host) = text.strip_prefix("host:") {
            return HostPattern::parse(host).map(Rule::Host).ok_or_else(|| fault("the host is invalid"));
        }
        if let Some(directory) = text.strip_prefix("read:") {
            return path(directory).map(Rule::Read);
        }
        if let Some(directory) = text.strip_prefix("write:") {
            return path(directory).map(Rule::Write);
        }
        let (tool, arguments) = match text.split_once(' ') {
            Some((tool, arguments)) => (tool, Some(arguments)),
            None => (text, None),
        };
        let is_name_char = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if tool != "*" && (tool.is_empty() || !tool.chars().all(is_name_char)) {
            return Err(fault("it names no tool"));
        }
        Ok(match arguments {
            Some(arguments) => Rule::Call { tool: tool.into(), arguments: arguments.into() },
            None => Rule::Tool(tool.into()),
        })
    }

    /// Whether the rule applies to one effect of a call. As for `denied_hosts`, `*` stands for all hosts, and a host without
    /// a port for all ports.
    #[must_use]
    pub fn matches(&self, effect: &Effect, call: &CallText<'_>) -> bool {
        match (self, effect) {
            (Rule::Call { tool, arguments }, _) => **tool == *call.tool && **arguments == *call.arguments,
            (Rule::Tool(name), Effect::Use(tool)) => &**name == "*" || name == tool,
            (Rule::Run(rule), Effect::Run(command)) => rule.matches(command),
            (Rule::Host(pattern), Effect::Connect(to)) => pattern.denies(to),
            (Rule::Read(directory), Effect::Read(path)) | (Rule::Write(directory), Effect::Write(path)) => {
                directory.contains(path)
            }
            _ => false,
        }
    }

    /// Whether the rule allows one effect of a call. As for `allowed_hosts`, `*` stands for the public hosts only, and a
    /// host without a port for the default ports.
    #[must_use]
    pub fn allows(&self, effect: &Effect, call: &CallText<'_>) -> bool {
        match (self, effect) {
            (Rule::Host(pattern), Effect::Connect(to)) => pattern.allows(to),
            _ => self.matches(effect, call),
        }
    }

    /// The rule with the canonical name of its tool.
    #[must_use]
    pub fn with_canonical_tool(self, canonical: impl FnOnce(&str) -> Arc<str>) -> Self {
        match self {
            Rule::Tool(name) if &*name != "*" => Rule::Tool(canonical(&name)),
            Rule::Call { tool, arguments } => Rule::Call { tool: canonical(&tool), arguments },
            rule => rule,
        }
    }
}

/// A tool call as the model wrote it.
#[derive(Debug, Clone, Copy)]
pub struct CallText<'a> {
    /// The canonical name of the tool.
    pub tool: &'a str,
    /// The arguments.
    pub arguments: &'a str,
}

impl CommandRule {
    fn parse(confinement: Confinement, text: &str) -> Result<Self, &'static str> {
        if text.chars().any(char::is_control) {
            return Err("it has a control character");
        }
        let (command, directory) = match text.rfind(DIRECTORY_SEPARATOR) {
            Some(at) => (&text[..at], Some(&text[at + DIRECTORY_SEPARATOR.len() - 1..])),
            None => (text, None),
        };
        let directory = directory.map(|text| FilePath::resolve(text, &FilePath::root())).transpose();
        let directory = directory.map_err(|_| "the directory is invalid")?;
        let words: Vec<Arc<str>> = command.split_whitespace().map(Arc::from).collect();
        match words.first().map(|word| &**word) {
            None => Err("the program is missing"),
            Some("*") if words.len() == 1 => Ok(Self { confinement, words: Vec::new(), directory }),
            Some("*") => Err("`*` stands for the whole command"),
            Some(_) => Ok(Self { confinement, words, directory }),
        }
    }

    fn matches(&self, command: &CommandEffect) -> bool {
        let words = std::iter::once(&*command.program).chain(command.arguments.iter().map(|word| &**word));
        let mut own = self.words.iter().map(|word| &**word);
        let is_prefix = own
            .by_ref()
            .zip(words.map(Some).chain(std::iter::repeat(None)))
            .all(|(own, word)| word == Some(own));
        is_prefix
            && self.confinement == command.confinement
            && self.directory.as_ref().is_none_or(|directory| directory.contains(&command.cwd))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Tool(name) => out.write_str(name),
            Rule::Call { tool, arguments } => write!(out, "{tool} {arguments}"),
            Rule::Run(rule) => rule.fmt(out),
            Rule::Host(host) => write!(out, "host:{host}"),
            Rule::Read(directory) => write!(out, "read:{directory}"),
            Rule::Write(directory) => write!(out, "write:{directory}"),
        }
    }
}

impl fmt::Display for CommandRule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self.confinement {
            Confinement::Sandboxed => "run:",
            Confinement::Unsandboxed => "unsandboxed:",
        };
        let command = if self.words.is_empty() { "*".to_owned() } else { self.words.join(" ") };
        write!(out, "{prefix}{command}")?;
        match &self.directory {
            Some(directory) => write!(out, " in {directory}"),
            None => Ok(()),
        }
    }
}
