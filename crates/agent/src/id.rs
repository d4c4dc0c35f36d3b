//! Agent ids, which become directory names and URL path segments and so have a restricted syntax, and request ids.

use std::fmt;
use std::sync::Arc;

/// An agent's id, the name that its creator gave it; validated by [`AgentId::parse`].
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AgentId(Arc<str>);

/// Maximum length of an agent's id.
const ID_CHARS_MAX: usize = 63;

/// Why a text is not a valid agent id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentIdFault {
    /// The text is empty.
    #[error("Agent ID cannot be empty")]
    Empty,
    /// The text contains `..`, which is a path traversal in a directory name.
    #[error("Invalid agent ID {0:?}: contains forbidden pattern '..'")]
    ContainsDotDot(String),
    /// The text violates the syntax otherwise.
    #[error(
        "Invalid agent ID {0:?}: must be 1-63 chars, alphanumeric/dot/underscore/hyphen, start with alphanumeric or dot"
    )]
    Syntax(String),
}

impl AgentId {
    /// The main agent, which serves the agent methods at `/`.
    #[must_use]
    pub fn main() -> Self {
        Self(Arc::from("main"))
    }

    /// Validates an id.
    ///
    /// # Errors
    /// When the text is not a valid id.
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

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this agent is temporary: its id starts with a dot.
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

/// The request id of a turn, its idempotency key. A text and a number are never equal.
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
    fn parse_accepts_only_valid_agent_names() {
        let longest = "a".repeat(63);
        for good in ["a", "0", "main", "worker-1", ".1", ".tmp", "A_b.c-d", "a.", "a-", longest.as_str()] {
            assert!(AgentId::parse(good).is_ok(), "{good:?} should be accepted");
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
            assert!(AgentId::parse(bad).is_err(), "{bad:?} should be rejected");
        }
    }

    #[test]
    fn parse_error_names_the_violated_rule() {
        let error = |text| AgentId::parse(text).unwrap_err().to_string();
        assert_eq!(error(""), "Agent ID cannot be empty");
        assert_eq!(error("a..b"), "Invalid agent ID \"a..b\": contains forbidden pattern '..'");
        assert!(error("nl\n").starts_with(r#"Invalid agent ID "nl\n": must be 1-63 chars"#));
    }

    #[test]
    fn leading_dot_makes_an_agent_temporary() {
        assert!(AgentId::parse(".1").unwrap().is_temporary());
        assert!(!AgentId::parse("a.1").unwrap().is_temporary());
    }

    #[test]
    fn text_and_number_request_ids_differ() {
        assert_ne!(RequestId::Text("5".into()), RequestId::Number(5));
    }
}
