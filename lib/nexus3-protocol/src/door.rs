//! The places a method can be called at.

/// Where a method may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Door {
    /// `POST /` and `POST /rpc`: the daemon itself.
    Daemon,
    /// `POST /agent/{id}`: one agent. At `/` these methods reach the agent `main`.
    Agent,
}

impl Door {
    /// The HTTP path of this door, for people.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Door::Daemon => "/",
            Door::Agent => "/agent/{agent_id}",
        }
    }
}
