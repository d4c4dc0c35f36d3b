//! Who asks, and what they may do. Built by a door from what it has checked, judged here, at the call, from what the
//! daemon knows then.

use agent::{AgentId, Fault, FaultKind};
use nexus3_protocol::Method;
use runtime::{AgentHandle, AgentRef, Initiator, PoolHandle};

/// Whoever makes a call.
#[derive(Clone)]
pub struct Caller {
    credential: Credential,
    /// The agent that the call is made in the name of, as it came.
    acting_as: Option<String>,
}

/// What the caller has shown.
#[derive(Clone)]
enum Credential {
    /// The daemon's token, or nothing where none is needed.
    AdminToken,
    /// The capability of an agent.
    Capability(AgentRef),
}

/// Whom a call counts as.
pub(crate) enum Principal {
    /// Whoever runs the daemon.
    Admin,
    /// An agent: its own methods, and what its grant allows over those below it.
    Agent(AgentRef),
}

/// The same, awake: for work that asks what it may do.
pub(crate) enum AwakePrincipal {
    /// Whoever runs the daemon.
    Admin,
    /// An agent.
    Agent(AgentHandle),
}

impl AwakePrincipal {
    pub(crate) fn initiator(&self) -> Initiator<'_> {
        match self {
            AwakePrincipal::Admin => Initiator::Admin,
            AwakePrincipal::Agent(own) => Initiator::Agent(own),
        }
    }
}

/// What somebody wants of an agent.
#[derive(Clone, Copy)]
pub(crate) struct Operation {
    /// What it is called.
    name: &'static str,
    /// The tool that does the same to another agent. Having the tool is leave for the errand.
    tool: &'static str,
    /// Whether an agent may do it to itself.
    is_allowed_on_self: bool,
}

impl Operation {
    /// Reading an agent's events: no more than its messages.
    pub(crate) const EVENTS: Operation =
        Operation { name: "events", ..Operation::for_method(Method::GetMessages) };

    const fn for_method(method: Method) -> Self {
        Operation { name: "", tool: required_tool(method), is_allowed_on_self: is_allowed_on_self(method) }
    }

    pub(crate) fn name(self) -> &'static str {
        self.name
    }

    pub(crate) fn tool(self) -> &'static str {
        self.tool
    }
}

impl From<Method> for Operation {
    fn from(method: Method) -> Self {
        Operation { name: method.name(), ..Operation::for_method(method) }
    }
}

impl Caller {
    /// The holder of the daemon's token.
    #[must_use]
    pub fn admin() -> Self {
        Self { credential: Credential::AdminToken, acting_as: None }
    }

    /// The holder of an agent's capability.
    pub(crate) fn capability(agent: AgentRef) -> Self {
        Self { credential: Credential::Capability(agent), acting_as: None }
    }

    /// The same caller speaking for an agent: it can do what that agent may do, and no more.
    #[must_use]
    pub fn acting_as(mut self, agent: &str) -> Self {
        self.acting_as = Some(agent.to_owned());
        self
    }

    /// Whom this call counts as. An agent that is gone is nobody. Wakes nobody.
    pub(crate) fn principal(&self, pool: &PoolHandle) -> Result<Principal, Fault> {
        let named = self.acting_as.as_deref();
        match (&self.credential, named) {
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

    /// Whom this call counts as, awake.
    pub(crate) async fn awake_principal(&self, pool: &PoolHandle) -> Result<AwakePrincipal, Fault> {
        match self.principal(pool)? {
            Principal::Admin => Ok(AwakePrincipal::Admin),
            Principal::Agent(own) => pool.wake(&own).await.map(AwakePrincipal::Agent),
        }
    }

    /// Who this is, for the audit trail. A name that is no agent's is not repeated: it may be anything, a secret too.
    pub(crate) fn audit_name(&self, pool: &PoolHandle) -> String {
        match (&self.credential, &self.acting_as) {
            (Credential::Capability(agent), _) => agent.id().to_string(),
            (Credential::AdminToken, Some(name)) if self.principal(pool).is_ok() => name.clone(),
            (Credential::AdminToken, _) => "admin".to_owned(),
        }
    }

    /// For methods that only an admin may call.
    pub(crate) fn authorize_admin(&self, pool: &PoolHandle, method: Method) -> Result<(), Fault> {
        match self.principal(pool)? {
            Principal::Admin => Ok(()),
            Principal::Agent(own) => {
                let text = format!("Agent '{}' is not authorized to call {}", own.id(), method.name());
                Err(denied(text))
            }
        }
    }

    /// For what is done to an agent: admins, the agent itself, and those above it as far as their grant goes.
    pub(crate) async fn authorize(
        &self,
        pool: &PoolHandle,
        target: &AgentRef,
        errand: Operation,
    ) -> Result<(), Fault> {
        let own = match self.principal(pool)? {
            Principal::Admin => return Ok(()),
            Principal::Agent(own) => own,
        };
        if own.serial() == target.serial() {
            return if errand.is_allowed_on_self {
                Ok(())
            } else {
                Err(not_authorized(&own, errand, target.id()))
            };
        }
        if !pool.is_in_subtree(target.serial(), &own) {
            return Err(not_authorized(&own, errand, target.id()));
        }
        let (own, target) = (pool.wake(&own).await?, pool.wake(target).await?);
        own.authorize_reach(errand.tool, &target).map_err(|denial| denied(denial.text))
    }

    /// For what the daemon does to an agent: who is not there and who is out of reach are the same to an agent.
    pub(crate) async fn find_authorized(
        &self,
        pool: &PoolHandle,
        id: &AgentId,
        method: Method,
    ) -> Result<AgentRef, Fault> {
        let errand = Operation::from(method);
        match (self.principal(pool)?, pool.find_ref(id)) {
            (_, Some(agent)) => self.authorize(pool, &agent, errand).await.map(|()| agent),
            (Principal::Admin, None) => {
                Err(Fault::new(FaultKind::NotFound, format!("Agent not found: {id}")))
            }
            (Principal::Agent(own), None) => Err(not_authorized(&own, errand, id)),
        }
    }

    /// `main` need not exist yet: only an admin may bring it into being.
    pub(crate) async fn authorize_main(
        &self,
        pool: &PoolHandle,
        method: Method,
    ) -> Result<AgentHandle, Fault> {
        let main = AgentId::main();
        if let Some(agent) = pool.find_ref(&main) {
            self.authorize(pool, &agent, method.into()).await?;
            return pool.wake(&agent).await;
        }
        match self.principal(pool)? {
            Principal::Admin => pool.main_agent().await,
            Principal::Agent(own) => Err(not_authorized(&own, method.into(), &main)),
        }
    }

    /// An agent may destroy itself and everybody below it.
    pub(crate) fn authorize_destroy(
        &self,
        pool: &PoolHandle,
        target: &AgentId,
        found: Option<&AgentRef>,
    ) -> Result<(), Fault> {
        let Principal::Agent(own) = self.principal(pool)? else { return Ok(()) };
        if found.is_some_and(|other| pool.is_in_subtree(other.serial(), &own)) {
            return Ok(());
        }
        let text = format!("Agent '{}' is not authorized to destroy '{target}'", own.id());
        Err(denied(text))
    }
}

/// The tool that does to another agent what a method does.
const fn required_tool(method: Method) -> &'static str {
    match method {
        Method::Send | Method::Steer | Method::Compact | Method::RollbackAgent => "agent_send",
        Method::Cancel | Method::Shutdown => "agent_cancel",
        Method::CreateAgent
        | Method::SetPermissions
        | Method::ForkAgent
        | Method::RenameAgent
        | Method::ImportAgent => "agent_create",
        Method::DestroyAgent => "agent_destroy",
        Method::ListAgents | Method::ListChildren | Method::ListSessions => "agent_list",
        Method::GetTokens
        | Method::GetContext
        | Method::GetMessages
        | Method::GetAgent
        | Method::GetPermissions
        | Method::ExportAgent
        | Method::ShutdownServer
        | Method::Discover => "agent_status",
    }
}

/// Nobody widens its own rights, and nobody writes its own history.
const fn is_allowed_on_self(method: Method) -> bool {
    !matches!(
        method,
        Method::SetPermissions
            | Method::ForkAgent
            | Method::RollbackAgent
            | Method::RenameAgent
            | Method::ExportAgent
    )
}

fn not_authorized(own: &AgentRef, errand: Operation, target: &AgentId) -> Fault {
    let name = errand.name;
    denied(format!("Agent '{}' is not authorized to call {name} on '{target}'", own.id()))
}

fn denied(text: String) -> Fault {
    Fault::denied("identity", text)
}
