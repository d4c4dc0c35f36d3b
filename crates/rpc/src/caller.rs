//! Identity of callers: the transport authenticates and builds a [`Caller`], which resolves to a [`Principal`] at each
//! call, against the state of the pool at that time.

use agent::{AgentId, Fault, PrincipalId};
use runtime::{AgentHandle, AgentRef, Initiator, PoolHandle};

/// The authenticated caller of a method.
#[derive(Clone)]
pub struct Caller {
    credential: Credential,
    /// Unchecked id of the agent the caller acts as.
    acting_as: Option<String>,
}

/// The credential that authenticated the caller.
#[derive(Clone)]
enum Credential {
    /// The daemon's token, or none where none is required.
    AdminToken,
    /// The capability token of an agent.
    Capability(AgentRef),
}

/// The identity a call is authorized as.
pub(crate) enum Principal {
    /// The operator of the daemon.
    Admin,
    /// An agent: limited to itself and, as far as its grant allows, its descendants.
    Agent(AgentRef),
}

/// A principal whose agent is awake, for operations that check its permissions.
pub(crate) enum AwakePrincipal {
    /// The operator of the daemon.
    Admin,
    /// An agent.
    Agent(AgentHandle),
}

impl Principal {
    /// Wakes the principal's agent.
    pub(crate) async fn wake(&self, pool: &PoolHandle) -> Result<AwakePrincipal, Fault> {
        match self {
            Principal::Admin => Ok(AwakePrincipal::Admin),
            Principal::Agent(own) => pool.wake(own).await.map(AwakePrincipal::Agent),
        }
    }
}

impl AwakePrincipal {
    pub(crate) fn initiator(&self) -> Initiator<'_> {
        match self {
            AwakePrincipal::Admin => Initiator::Admin,
            AwakePrincipal::Agent(own) => Initiator::Agent(own),
        }
    }
}

impl Caller {
    /// Returns a caller with the daemon's token.
    #[must_use]
    pub fn admin() -> Self {
        Self { credential: Credential::AdminToken, acting_as: None }
    }

    /// Returns a caller with an agent's capability token.
    pub(crate) fn capability(agent: AgentRef) -> Self {
        Self { credential: Credential::Capability(agent), acting_as: None }
    }

    /// Makes the caller act as an agent, limited to that agent's permissions.
    #[must_use]
    pub fn acting_as(mut self, agent: &str) -> Self {
        self.acting_as = Some(agent.to_owned());
        self
    }

    /// Whether the caller has the daemon's token and acts for itself.
    pub(crate) fn is_admin(&self) -> bool {
        matches!(self, Self { credential: Credential::AdminToken, acting_as: None })
    }

    /// Returns the principal of this call, without waking an agent. A destroyed agent is denied.
    pub(crate) fn principal(&self, pool: &PoolHandle) -> Result<Principal, Fault> {
        match (&self.credential, self.acting_as.as_deref()) {
            (Credential::AdminToken, None) => Ok(Principal::Admin),
            (Credential::AdminToken, Some(name)) => {
                let agent = AgentId::parse(name).ok().and_then(|id| pool.find_ref(&id));
                let unknown = || denied("X-Nexus-Agent names no agent that exists".to_owned());
                agent.map(Principal::Agent).ok_or_else(unknown)
            }
            (Credential::Capability(agent), Some(name)) if agent.id().as_str() != name => {
                Err(denied("X-Nexus-Agent does not match the agent of the capability token".to_owned()))
            }
            (Credential::Capability(agent), _) if pool.exists(agent) => Ok(Principal::Agent(agent.clone())),
            (Credential::Capability(_), _) => Err(denied("Invalid API key".to_owned())),
        }
    }

    /// Returns the caller's identity for the audit trail. An unknown `X-Nexus-Agent` is never logged, since it may be
    /// anything, even a secret: such a caller is the admin whose token it has.
    pub(crate) fn audit_id(&self, pool: &PoolHandle) -> PrincipalId {
        match (&self.credential, self.principal(pool)) {
            (Credential::Capability(agent), _) => PrincipalId::Agent(agent.id().clone()),
            (Credential::AdminToken, Ok(Principal::Agent(agent))) => PrincipalId::Agent(agent.id().clone()),
            (Credential::AdminToken, Ok(Principal::Admin) | Err(_)) => PrincipalId::Admin,
        }
    }
}

pub(crate) fn denied(text: String) -> Fault {
    Fault::denied("identity", text)
}
