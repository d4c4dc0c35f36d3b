//! Effects of tool calls. A tool declares them before a call runs.

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
    /// Runs a program in the sandbox.
    Run {
        /// The program, as the caller wrote it: a name or a path.
        program: Arc<str>,
        /// The working directory.
        cwd: FilePath,
    },
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
            Effect::Write(_) | Effect::Run { .. } | Effect::Create(_) | Effect::WriteValues => true,
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
