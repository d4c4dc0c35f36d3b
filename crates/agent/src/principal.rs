//! Principals as records and the audit trail name them. The text says what kind a principal is, so that an agent called
//! `admin` cannot pass for the admin.

use std::fmt;

use crate::AgentId;

/// Who initiated an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrincipalId {
    /// The operator of the daemon.
    Admin,
    /// An agent.
    Agent(AgentId),
    /// The daemon, because the context of an agent was full.
    Auto,
    /// The daemon, after a restart.
    Restart,
}

const AGENT_PREFIX: &str = "agent:";

impl PrincipalId {
    /// Parses the text of a stored record; `None` if it names no principal. A bare agent id, as written by earlier
    /// builds, is that agent.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "admin" => Self::Admin,
            "auto" => Self::Auto,
            "restart" => Self::Restart,
            _ => Self::Agent(AgentId::parse(text.strip_prefix(AGENT_PREFIX).unwrap_or(text)).ok()?),
        })
    }
}

impl fmt::Display for PrincipalId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admin => out.write_str("admin"),
            Self::Agent(id) => write!(out, "{AGENT_PREFIX}{id}"),
            Self::Auto => out.write_str("auto"),
            Self::Restart => out.write_str("restart"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_with_reserved_names_keep_their_kind() {
        let agent = |name: &str| PrincipalId::Agent(AgentId::parse(name).expect("a valid id"));
        for (principal, text) in [
            (PrincipalId::Admin, "admin"),
            (PrincipalId::Auto, "auto"),
            (PrincipalId::Restart, "restart"),
            (agent("admin"), "agent:admin"),
            (agent("auto"), "agent:auto"),
            (agent(".tmp"), "agent:.tmp"),
        ] {
            assert_eq!(principal.to_string(), text);
            assert_eq!(PrincipalId::parse(text), Some(principal), "{text}");
        }
        assert_eq!(PrincipalId::parse("lead"), Some(agent("lead")), "as written by earlier builds");
        for text in ["", "agent:", "agent:a b", "agent:agent:a", "a:b", "two\nlines"] {
            assert_eq!(PrincipalId::parse(text), None, "{text:?}");
        }
    }
}
