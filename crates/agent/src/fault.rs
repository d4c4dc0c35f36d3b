//! An error that leaves a room: a kind for code, a message for the caller, a cause for the log. Never mixed.

use std::borrow::Cow;

/// The kind of a fault, for code to match on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The request is invalid.
    Invalid,
    /// The request contradicts a change that was made meanwhile.
    Conflict,
    /// The caller lacks the permission.
    Denied,
    /// There is no such agent.
    NotFound,
    /// Overloaded; a retry may succeed.
    Busy {
        /// The suggested retry delay.
        retry_after_ms: u64,
    },
    /// The disk is full; a retry may succeed.
    Full {
        /// The suggested retry delay.
        retry_after_ms: u64,
    },
    /// The daemon stopped meanwhile; a retry with the same request id resumes the turn.
    Interrupted,
    /// The model, or the connection to it, failed.
    Model,
    /// The prompt exceeds the model's context window.
    ContextFull,
    /// The daemon failed.
    Internal,
}

/// An error that leaves a room.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{public}")]
pub struct Fault {
    /// The kind, for code.
    pub kind: FaultKind,
    /// The message for the caller. Contains no secret and no internal path of the daemon.
    pub public: Cow<'static, str>,
    /// The cause, for the log.
    pub cause: Option<String>,
}

impl Fault {
    /// A fault without a cause for the log.
    #[must_use]
    pub fn new(kind: FaultKind, public: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, public: public.into(), cause: None }
    }

    /// A denied request; the cause is the rule that forbids it, for the audit log.
    #[must_use]
    pub fn denied(rule: &str, public: impl Into<Cow<'static, str>>) -> Self {
        Self::new(FaultKind::Denied, public).caused_by(rule)
    }

    /// Adds the cause for the log.
    #[must_use]
    pub fn caused_by(mut self, cause: impl std::fmt::Display) -> Self {
        self.cause = Some(cause.to_string());
        self
    }
}
