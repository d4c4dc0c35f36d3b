//! Who asks, and what they may do. Built by a door from what it has checked, judged here, at the call.

use agent::{AgentId, Fault, FaultKind};
use nexus3_protocol::Method;
use runtime::PoolHandle;

/// Whoever makes a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Set when the call is made in the name of an agent; the text is as it came.
    narrowed_to: Option<String>,
}

impl Caller {
    /// The holder of the daemon's token.
    #[must_use]
    pub fn admin() -> Self {
        Self { narrowed_to: None }
    }

    /// The holder of the daemon's token, speaking for an agent: it can do what that agent may do, and no more.
    #[must_use]
    pub fn narrowed_to(agent: &str) -> Self {
        Self { narrowed_to: Some(agent.to_owned()) }
    }

    /// The agent this caller speaks for; none for an admin.
    pub(crate) fn agent(&self, pool: &PoolHandle) -> Result<Option<AgentId>, Fault> {
        let Some(text) = &self.narrowed_to else { return Ok(None) };
        let known = AgentId::parse(text).ok().filter(|id| pool.find(id).is_some());
        known.map(Some).ok_or_else(|| denied("X-Nexus-Agent names no agent that exists".to_owned()))
    }

    /// For methods that only an admin may call.
    pub(crate) fn must_be_admin(&self, pool: &PoolHandle, method: Method) -> Result<(), Fault> {
        match self.agent(pool)? {
            None => Ok(()),
            Some(id) => Err(denied(format!("Agent '{id}' is not authorized to call {}", method.name()))),
        }
    }

    /// For an agent's own methods: admins, and the agent itself.
    pub(crate) fn must_be(&self, pool: &PoolHandle, target: &AgentId, method: Method) -> Result<(), Fault> {
        match self.agent(pool)? {
            None => Ok(()),
            Some(id) if id == *target => Ok(()),
            Some(id) => {
                Err(denied(format!("Agent '{id}' is not authorized to call {} on '{target}'", method.name())))
            }
        }
    }

    /// An agent may destroy itself.
    pub(crate) fn may_destroy(&self, pool: &PoolHandle, target: &str) -> Result<(), Fault> {
        match self.agent(pool)? {
            None => Ok(()),
            Some(id) if id.as_str() == target => Ok(()),
            Some(id) => Err(denied(format!("Agent '{id}' is not authorized to destroy '{target}'"))),
        }
    }
}

fn denied(text: String) -> Fault {
    Fault::new(FaultKind::Denied, text)
}
