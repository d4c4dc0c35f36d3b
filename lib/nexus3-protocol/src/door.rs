//! The doors of the daemon: the HTTP paths at which methods are called.

/// The door at which a method is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Door {
    /// `POST /` and `POST /rpc`: the daemon itself.
    Daemon,
    /// `POST /agent/{agent_id}`: one agent. Called at `/`, these methods go to the agent `main`.
    Agent,
}

impl Door {
    /// HTTP path of this door, as a template for documents.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Door::Daemon => "/",
            Door::Agent => "/agent/{agent_id}",
        }
    }
}
