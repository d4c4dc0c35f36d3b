//! Names: of agents, which become directory and path parts and so obey a narrow rule, and of sends.

use std::fmt;
use std::sync::Arc;

/// An agent's name. Its syntax is checked once, here.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AgentId(Arc<str>);

/// The most characters an agent's name may have.
const ID_CHARS_MAX: usize = 63;

/// Why a text is not an agent's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentIdFault {
    /// Nothing was given.
    #[error("Agent ID cannot be empty")]
    Empty,
    /// A name may not climb.
    #[error("Invalid agent ID {0:?}: contains forbidden pattern '..'")]
    ContainsDotDot(String),
    /// Anything else.
    #[error(
        "Invalid agent ID {0:?}: must be 1-63 chars, alphanumeric/dot/underscore/hyphen, start with alphanumeric or dot"
    )]
    Syntax(String),
}

impl AgentId {
    /// The agent that answers agent methods at `/`.
    #[must_use]
    pub fn main() -> Self {
        Self(Arc::from("main"))
    }

    /// Checks a name.
    ///
    /// # Errors
    /// When the text is not a name.
    pub fn parse(text: &str) -> Result<Self, AgentIdFault> {
        if text.is_empty() {
            return Err(AgentIdFault::Empty);
        }
        let shown = || text.chars().take(ID_CHARS_MAX + 1).collect::<String>();
        if text.contains("..") {
            return Err(AgentIdFault::ContainsDotDot(shown()));
        }
        let body = text.strip_prefix('.').unwrap_or(text);
        let starts_well = body.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        let all_well = body.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        if starts_well && all_well && text.len() <= ID_CHARS_MAX {
            Ok(Self(Arc::from(text)))
        } else {
            Err(AgentIdFault::Syntax(shown()))
        }
    }

    /// The name's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this agent is temporary: its name starts with a dot.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        self.0.starts_with('.')
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Debug for AgentId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, out)
    }
}

/// The name of one send. A text and a number are never the same name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RequestId {
    /// A text.
    Text(String),
    /// A number.
    Number(i64),
}

impl fmt::Display for RequestId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestId::Text(text) => out.write_str(text),
            RequestId::Number(number) => write!(out, "{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rule() {
        let longest = "a".repeat(63);
        for good in ["a", "0", "main", "worker-1", ".1", ".tmp", "A_b.c-d", "a.", "a-", longest.as_str()] {
            assert!(AgentId::parse(good).is_ok(), "{good:?} should be a name");
        }
        let too_long = "a".repeat(64);
        for bad in [
            "",
            ".",
            "..",
            "...",
            "a..b",
            "..a",
            "-a",
            "_a",
            ".-a",
            "a/b",
            "a\\b",
            "a b",
            "nl\n",
            "\n",
            "a\0",
            "ä",
            "a%2e",
            "~",
            too_long.as_str(),
        ] {
            assert!(AgentId::parse(bad).is_err(), "{bad:?} should be refused");
        }
    }

    #[test]
    fn a_refusal_says_why() {
        let said = |text| AgentId::parse(text).unwrap_err().to_string();
        assert_eq!(said(""), "Agent ID cannot be empty");
        assert_eq!(said("a..b"), "Invalid agent ID \"a..b\": contains forbidden pattern '..'");
        assert!(said("nl\n").starts_with(r#"Invalid agent ID "nl\n": must be 1-63 chars"#));
    }

    #[test]
    fn a_leading_dot_makes_an_agent_temporary() {
        assert!(AgentId::parse(".1").unwrap().is_temporary());
        assert!(!AgentId::parse("a.1").unwrap().is_temporary());
    }

    #[test]
    fn a_text_and_a_number_are_two_request_ids() {
        assert_ne!(RequestId::Text("5".into()), RequestId::Number(5));
    }
}
