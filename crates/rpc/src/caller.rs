//! Identity and authorization of callers. The transport authenticates and builds a [`Caller`]; each call is authorized
//! here, against the state of the pool at that time.

use agent::{AgentId, Fault, FaultKind};
use nexus3_protocol::Method;
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

impl AwakePrincipal {
    pub(crate) fn initiator(&self) -> Initiator<'_> {
        match self {
            AwakePrincipal::Admin => Initiator::Admin,
            AwakePrincipal::Agent(own) => Initiator::Agent(own),
        }
    }
}

/// An operation on an agent, as authorization sees it.
#[derive(Clone, Copy)]
pub(crate) struct Operation {
    /// Name in messages and in the audit log.
    name: &'static str,
    /// Tool that does the same to another agent. An agent that has the tool may use the operation.
    tool: &'static str,
    /// Whether an agent may use it on itself.
    is_allowed_on_self: bool,
}

impl Operation {
    /// Reading an agent's events, which needs the same permission as reading its messages.
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

    /// Returns the principal of this call and wakes its agent.
    pub(crate) async fn awake_principal(&self, pool: &PoolHandle) -> Result<AwakePrincipal, Fault> {
        match self.principal(pool)? {
            Principal::Admin => Ok(AwakePrincipal::Admin),
            Principal::Agent(own) => pool.wake(&own).await.map(AwakePrincipal::Agent),
        }
    }

    /// Returns the caller's name for the audit log. An unknown `X-Nexus-Agent` is never logged, since it may be
    /// anything, even a secret: such a caller is named `admin`.
    pub(crate) fn audit_name(&self, pool: &PoolHandle) -> String {
        match (&self.credential, &self.acting_as) {
            (Credential::Capability(agent), _) => agent.id().to_string(),
            (Credential::AdminToken, Some(name)) if self.principal(pool).is_ok() => name.clone(),
            (Credential::AdminToken, _) => "admin".to_owned(),
        }
    }

    /// Authorizes a method that only an admin may call.
    pub(crate) fn authorize_admin(&self, pool: &PoolHandle, method: Method) -> Result<(), Fault> {
        match self.principal(pool)? {
            Principal::Admin => Ok(()),
            Principal::Agent(own) => {
                let text = format!("Agent '{}' is not authorized to call {}", own.id(), method.name());
                Err(denied(text))
            }
        }
    }

    /// Authorizes an operation on an agent: for admins, for ancestors whose grant allows it, and for the agent itself
    /// unless the operation is not allowed on oneself.
    pub(crate) async fn authorize(
        &self,
        pool: &PoolHandle,
        target: &AgentRef,
        operation: Operation,
    ) -> Result<(), Fault> {
        let own = match self.principal(pool)? {
            Principal::Admin => return Ok(()),
            Principal::Agent(own) => own,
        };
        if own.serial() == target.serial() {
            return if operation.is_allowed_on_self {
                Ok(())
            } else {
                Err(not_authorized(&own, operation, target.id()))
            };
        }
        if !pool.is_in_subtree(target.serial(), &own) {
            return Err(not_authorized(&own, operation, target.id()));
        }
        let (own, target) = (pool.wake(&own).await?, pool.wake(target).await?);
        own.authorize_reach(operation.tool, &target).map_err(|denial| denied(denial.text))
    }

    /// Finds an agent by id and authorizes a daemon method on it. To an agent, a missing target and one out of its
    /// reach give the same error, so that ids cannot be probed.
    pub(crate) async fn find_authorized(
        &self,
        pool: &PoolHandle,
        id: &AgentId,
        method: Method,
    ) -> Result<AgentRef, Fault> {
        let operation = Operation::from(method);
        match (self.principal(pool)?, pool.find_ref(id)) {
            (_, Some(agent)) => self.authorize(pool, &agent, operation).await.map(|()| agent),
            (Principal::Admin, None) => {
                Err(Fault::new(FaultKind::NotFound, format!("Agent not found: {id}")))
            }
            (Principal::Agent(own), None) => Err(not_authorized(&own, operation, id)),
        }
    }

    /// Authorizes a method on `main` and wakes it. Only an admin's call creates a missing `main`.
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

    /// Authorizes destruction: an agent may destroy itself and its descendants.
    pub(crate) fn authorize_destroy(
        &self,
        pool: &PoolHandle,
        target: &AgentId,
        found: Option<&AgentRef>,
    ) -> Result<(), Fault> {
        let Principal::Agent(own) = self.principal(pool)? else { return Ok(()) };
        if found.is_some_and(|agent| pool.is_in_subtree(agent.serial(), &own)) {
            return Ok(());
        }
        let text = format!("Agent '{}' is not authorized to destroy '{target}'", own.id());
        Err(denied(text))
    }
}

/// Returns the tool with the same effect on another agent as a method.
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

/// Whether an agent may call a method on itself. It may not widen its own permissions or rewrite its own history.
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

fn not_authorized(own: &AgentRef, operation: Operation, target: &AgentId) -> Fault {
    let name = operation.name;
    denied(format!("Agent '{}' is not authorized to call {name} on '{target}'", own.id()))
}

fn denied(text: String) -> Fault {
    Fault::denied("identity", text)
}
