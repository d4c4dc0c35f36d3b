//! Effects of tool calls. A tool declares them before a call runs.

use std::fmt;
use std::sync::Arc;

use super::{Destination, FilePath};
use crate::{AgentId, ToolSpec};

/// One effect of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Uses the tool of this name. Every call has this effect.
    Use(Arc<str>),
    /// Uses a tool that has this name beside the one of `Use`.
    UseAlias(Arc<str>),
    /// Reads this file.
    Read(FilePath),
    /// Writes this file.
    Write(FilePath),
    /// Runs a program.
    Run(CommandEffect),
    /// Connects to this host.
    Connect(Destination),
    /// Creates an agent: the names of its preset and of the presets it extends.
    Create(Vec<Arc<str>>),
    /// Accesses another agent.
    Reach(AgentId, Relation),
    /// Reads stored values of the caller's namespace.
    ReadValues,
    /// Changes stored values of the caller's namespace.
    WriteValues,
}

impl Effect {
    /// The effects of using a tool, under all its names.
    pub fn of_tool(spec: &ToolSpec) -> impl Iterator<Item = Self> {
        let aliases = spec.lookup_names().skip(1).map(|name| Effect::UseAlias(Arc::clone(name)));
        std::iter::once(Effect::Use(Arc::clone(&spec.name))).chain(aliases)
    }

    /// Whether the effect is a write: a call that has it is not repeated after a crash.
    #[must_use]
    pub fn is_write(&self) -> bool {
        match self {
            Effect::Write(_) | Effect::Run(_) | Effect::Create(_) | Effect::WriteValues => true,
            // A connection or another agent may be only read.
            Effect::Use(_)
            | Effect::UseAlias(_)
            | Effect::Read(_)
            | Effect::Connect(_)
            | Effect::Reach(..)
            | Effect::ReadValues => false,
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Effect::Use(tool) | Effect::UseAlias(tool) => write!(out, "use {tool}"),
            Effect::Read(path) => write!(out, "read {path}"),
            Effect::Write(path) => write!(out, "write {path}"),
            Effect::Run(command) => command.fmt(out),
            Effect::Connect(host) => write!(out, "connect to {host}"),
            Effect::Create(inheritance) => {
                write!(out, "create an agent with preset {}", inheritance.first().map_or("", |name| name))
            }
            Effect::Reach(agent, _) => write!(out, "access agent {agent}"),
            Effect::ReadValues => out.write_str("read stored values"),
            Effect::WriteValues => out.write_str("change stored values"),
        }
    }
}

/// A command that a call runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandEffect {
    /// The program, as the caller wrote it: a name or a path.
    pub program: Arc<str>,
    /// Its arguments. Permissions name programs only; approval rules compare arguments too.
    pub arguments: Arc<[String]>,
    /// The working directory.
    pub cwd: FilePath,
    /// Whether it runs in the sandbox.
    pub confinement: Confinement,
}

impl CommandEffect {
    /// A command in the sandbox.
    #[must_use]
    pub fn sandboxed(
        program: impl Into<Arc<str>>,
        arguments: impl Into<Arc<[String]>>,
        cwd: FilePath,
    ) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.into(),
            cwd,
            confinement: Confinement::Sandboxed,
        }
    }
}

/// Whether a command runs in the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Confinement {
    /// In the sandbox.
    #[default]
    Sandboxed,
    /// With the access of the daemon's user.
    Unsandboxed,
}

impl fmt::Display for CommandEffect {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "run {}", self.program)?;
        for argument in &*self.arguments {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+%".contains(c);
            if !argument.is_empty() && argument.chars().all(is_plain) {
                write!(out, " {argument}")?;
            } else {
                write!(out, " {argument:?}")?;
            }
        }
        write!(out, " in {}", self.cwd)?;
        match self.confinement {
            Confinement::Sandboxed => Ok(()),
            Confinement::Unsandboxed => out.write_str(" outside the sandbox"),
        }
    }
}

/// The relation of another agent to the calling agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// The calling agent itself.
    Itself,
    /// Its parent.
    Parent,
    /// Its child, or a further descendant.
    Descendant,
    /// Any other agent, or a name without an agent.
    Other,
}

/// Maximum length of a program's name or path.
const PROGRAM_BYTES_MAX: usize = 4096;

/// The rule of [`is_program_name`]; completes the sentence "it must be …".
pub const PROGRAM_NAME_RULE: &str =
    "a program's name or path, of at most 4096 bytes and without control characters, or '*'";

/// Whether a text can be in a list of allowed commands.
#[must_use]
pub fn is_program_name(text: &str) -> bool {
    !text.trim().is_empty() && text.len() <= PROGRAM_BYTES_MAX && !text.chars().any(char::is_control)
}
