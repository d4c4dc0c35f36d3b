//! Who may call a method.

use std::fmt;

/// Who may call a method. Every entry of the method list states it; the dispatcher enforces it before the handler runs.
///
/// The subject is the agent that the method acts on: at an agent's door that agent, at the daemon's door the agent that
/// the parameter after `of` names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Only an admin.
    Admin,
    /// Every authenticated caller. The method has no subject; the runtime limits an agent to its own subtree.
    Anyone,
    /// An admin, the subject itself, and its ancestors.
    Subtree,
    /// An admin, and an ancestor of the subject that may reach it with this tool.
    Reach(&'static str),
    /// An admin, the subject itself, and an ancestor that may reach it with this tool.
    SelfOrReach(&'static str),
}

impl Access {
    /// The tool with which an ancestor may call the method.
    #[must_use]
    pub const fn tool(self) -> Option<&'static str> {
        match self {
            Access::Reach(tool) | Access::SelfOrReach(tool) => Some(tool),
            Access::Admin | Access::Anyone | Access::Subtree => None,
        }
    }
}

/// The sentence of the reference page.
impl fmt::Display for Access {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Access::Admin => out.write_str("admins"),
            Access::Anyone => out.write_str("admins; agents within their subtree"),
            Access::Subtree => out.write_str("admins, the agent itself, its ancestors"),
            Access::Reach(tool) => write!(out, "admins, ancestors with `{tool}`"),
            Access::SelfOrReach(tool) => {
                write!(out, "admins, the agent itself, ancestors with `{tool}`")
            }
        }
    }
}
