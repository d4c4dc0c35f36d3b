//! Who asks, and what they may do. Built by a door from what it has checked, judged here, at the call, from what the
//! daemon knows then.

use agent::{AgentId, Fault};
use nexus3_protocol::Method;
use runtime::{AgentHandle, PoolHandle};

/// Whoever makes a call.
#[derive(Clone)]
pub struct Caller {
    shown: Shown,
    /// The agent that the call is made in the name of, as it came.
    narrowed_to: Option<String>,
}

/// What the caller has shown.
#[derive(Clone)]
enum Shown {
    /// The daemon's token, or nothing where none is needed.
    AdminToken,
    /// The capability of an agent.
    Capability(AgentHandle),
}

/// Whom a call counts as.
pub(crate) enum Principal {
    /// Whoever runs the daemon.
    Admin,
    /// An agent: its own methods, and what its grant allows over those below it.
    Agent(AgentHandle),
}

impl Caller {
    /// The holder of the daemon's token.
    #[must_use]
    pub fn admin() -> Self {
        Self { shown: Shown::AdminToken, narrowed_to: None }
    }

    /// The holder of an agent's capability.
    pub(crate) fn capability(agent: AgentHandle) -> Self {
        Self { shown: Shown::Capability(agent), narrowed_to: None }
    }

    /// The same caller speaking for an agent: it can do what that agent may do, and no more.
    #[must_use]
    pub fn narrowed_to(mut self, agent: &str) -> Self {
        self.narrowed_to = Some(agent.to_owned());
        self
    }

    /// Whom this call counts as. An agent that is gone is nobody.
    pub(crate) fn principal(&self, pool: &PoolHandle) -> Result<Principal, Fault> {
        let named = self.narrowed_to.as_deref();
        match (&self.shown, named) {
            (Shown::AdminToken, None) => Ok(Principal::Admin),
            (Shown::AdminToken, Some(name)) => {
                let agent = AgentId::parse(name).ok().and_then(|id| pool.find(&id));
                let unknown = || denied("X-Nexus-Agent names no agent that exists".to_owned());
                agent.map(Principal::Agent).ok_or_else(unknown)
            }
            (Shown::Capability(agent), Some(name)) if agent.id().as_str() != name => {
                Err(denied("X-Nexus-Agent does not match the agent of the capability token".to_owned()))
            }
            (Shown::Capability(agent), _) => {
                let alive = pool.find(agent.id()).filter(|other| other.is_same(agent));
                let gone = || denied("Invalid API key".to_owned());
                alive.map(Principal::Agent).ok_or_else(gone)
            }
        }
    }

    /// Who this is, for the audit trail. A name that is no agent's is not repeated: it may be anything, a secret too.
    pub(crate) fn name(&self, pool: &PoolHandle) -> String {
        match (&self.shown, &self.narrowed_to) {
            (Shown::Capability(agent), _) => agent.id().to_string(),
            (Shown::AdminToken, Some(name)) if self.principal(pool).is_ok() => name.clone(),
            (Shown::AdminToken, _) => "admin".to_owned(),
        }
    }

    /// For methods that only an admin may call.
    pub(crate) fn must_be_admin(&self, pool: &PoolHandle, method: Method) -> Result<(), Fault> {
        match self.principal(pool)? {
            Principal::Admin => Ok(()),
            Principal::Agent(own) => {
                let text = format!("Agent '{}' is not authorized to call {}", own.id(), method.name());
                Err(denied(text))
            }
        }
    }

    /// For an agent's methods: admins, the agent itself, and those above it as far as their grant goes.
    pub(crate) fn must_reach(
        &self,
        pool: &PoolHandle,
        target: &AgentHandle,
        method: Method,
    ) -> Result<(), Fault> {
        let own = match self.principal(pool)? {
            Principal::Admin => return Ok(()),
            Principal::Agent(own) => own,
        };
        let name = method.name();
        let not_authorized = || {
            let text = format!("Agent '{}' is not authorized to call {name} on '{}'", own.id(), target.id());
            denied(text)
        };
        if own.is_same(target) {
            // Nobody widens its own rights.
            return if method == Method::SetPermissions { Err(not_authorized()) } else { Ok(()) };
        }
        if !target.is_below(&own) {
            return Err(not_authorized());
        }
        own.may_reach(tool_for(method), target).map_err(|denial| denied(denial.text))
    }

    /// `main` need not exist yet: only an admin may bring it into being.
    pub(crate) fn must_reach_main(&self, pool: &PoolHandle, method: Method) -> Result<AgentHandle, Fault> {
        let main = AgentId::main();
        if let Some(agent) = pool.find(&main) {
            self.must_reach(pool, &agent, method)?;
            return Ok(agent);
        }
        match self.principal(pool)? {
            Principal::Admin => pool.main_agent(),
            Principal::Agent(own) => {
                let text =
                    format!("Agent '{}' is not authorized to call {} on 'main'", own.id(), method.name());
                Err(denied(text))
            }
        }
    }

    /// An agent may destroy itself and everybody below it.
    pub(crate) fn may_destroy(
        &self,
        pool: &PoolHandle,
        target: &AgentId,
        found: Option<&AgentHandle>,
    ) -> Result<(), Fault> {
        let Principal::Agent(own) = self.principal(pool)? else { return Ok(()) };
        if found.is_some_and(|other| other.is_same(&own) || other.is_below(&own)) {
            return Ok(());
        }
        let text = format!("Agent '{}' is not authorized to destroy '{target}'", own.id());
        Err(denied(text))
    }
}

/// The tool that does to another agent what a method does. Having the tool is leave to call the method.
fn tool_for(method: Method) -> &'static str {
    match method {
        Method::Send | Method::Steer => "agent_send",
        Method::Cancel | Method::Shutdown => "agent_cancel",
        Method::CreateAgent | Method::SetPermissions => "agent_create",
        Method::DestroyAgent => "agent_destroy",
        Method::ListAgents | Method::ListChildren => "agent_list",
        Method::GetTokens
        | Method::GetContext
        | Method::GetMessages
        | Method::GetAgent
        | Method::GetPermissions
        | Method::ShutdownServer
        | Method::Discover => "agent_status",
    }
}

fn denied(text: String) -> Fault {
    Fault::denied("identity", text)
}
