//! What a tool call would touch. Tools declare it before they run; nobody else names it.

use std::sync::Arc;

use super::FilePath;
use crate::AgentId;

/// One thing a call would touch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Uses a tool of this name. Every call has this one.
    Use(Arc<str>),
    /// Reads this file.
    Read(FilePath),
    /// Writes this file.
    Write(FilePath),
    /// Runs this program.
    Run(Arc<str>),
    /// Talks to this host.
    Connect(Arc<str>),
    /// Creates an agent: the names of its preset and of those it extends.
    Create(Vec<Arc<str>>),
    /// Reaches another agent.
    Reach(AgentId, Relation),
}

/// What another agent is to the one that asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// The one that asks.
    Itself,
    /// Its parent.
    Parent,
    /// Its child, or a child's, and so on.
    Descendant,
    /// None of these, or nobody at all.
    Other,
}
