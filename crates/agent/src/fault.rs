//! A fault as it leaves a room: a kind for code, a text for the caller, a cause for the log. Never mixed.

use std::borrow::Cow;

/// What went wrong, for code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The caller asked for something that cannot be.
    Invalid,
    /// The caller may not do this.
    Denied,
    /// There is no such agent.
    NotFound,
    /// Too much work at once; the same call may pass later.
    Busy {
        /// When to try again.
        retry_after_ms: u64,
    },
    /// There is no room to keep things; the same call may pass later.
    Full {
        /// When to try again.
        retry_after_ms: u64,
    },
    /// The daemon stopped in the middle; the same send goes on where it was.
    Interrupted,
    /// The model, or the way to it, failed.
    Model,
    /// The prompt does not fit the model's window.
    ContextFull,
    /// The daemon itself failed.
    Internal,
}

/// A fault that leaves a room.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{public}")]
pub struct Fault {
    /// For code.
    pub kind: FaultKind,
    /// For the caller. Holds no secret and no path of the daemon's own.
    pub public: Cow<'static, str>,
    /// For the log.
    pub cause: Option<String>,
}

impl Fault {
    /// A fault whose text for the caller says it all.
    #[must_use]
    pub fn new(kind: FaultKind, public: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, public: public.into(), cause: None }
    }

    /// Something that is not allowed; the cause is the rule that forbids it, for the audit trail.
    #[must_use]
    pub fn denied(rule: &str, public: impl Into<Cow<'static, str>>) -> Self {
        Self::new(FaultKind::Denied, public).caused_by(rule)
    }

    /// The same fault with what the log should know.
    #[must_use]
    pub fn caused_by(mut self, cause: impl std::fmt::Display) -> Self {
        self.cause = Some(cause.to_string());
        self
    }
}
