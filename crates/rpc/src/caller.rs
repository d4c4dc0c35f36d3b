//! Who asks, and what they may do. Built by a door from what it has checked, judged here, at the call, from what the
//! daemon knows then.

use agent::{AgentId, Fault, FaultKind};
use nexus3_protocol::Method;
use runtime::{AgentHandle, AgentRef, Initiator, PoolHandle};

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
pub(crate) enum Author {
    /// Whoever runs the daemon.
    Admin,
    /// An agent.
    Agent(AgentHandle),
}

impl Author {
    pub(crate) fn by(&self) -> Initiator<'_> {
        match self {
            Author::Admin => Initiator::Admin,
            Author::Agent(own) => Initiator::Agent(own),
        }
    }
}

/// What somebody wants of an agent.
#[derive(Clone, Copy)]
pub(crate) struct Errand {
    /// What it is called.
    name: &'static str,
    /// The tool that does the same to another agent. Having the tool is leave for the errand.
    tool: &'static str,
    /// Whether an agent may do it to itself.
    is_for_itself: bool,
}

impl Errand {
    /// Reading an agent's events: no more than its messages.
    pub(crate) const EVENTS: Errand = Errand { name: "events", ..Errand::of(Method::GetMessages) };

    const fn of(method: Method) -> Self {
        Errand { name: "", tool: tool_for(method), is_for_itself: is_for_itself(method) }
    }

    pub(crate) fn name(self) -> &'static str {
        self.name
    }

    pub(crate) fn tool(self) -> &'static str {
        self.tool
    }
}

impl From<Method> for Errand {
    fn from(method: Method) -> Self {
        Errand { name: method.name(), ..Errand::of(method) }
    }
}

impl Caller {
    /// The holder of the daemon's token.
    #[must_use]
    pub fn admin() -> Self {
        Self { shown: Shown::AdminToken, narrowed_to: None }
    }

    /// The holder of an agent's capability.
    pub(crate) fn capability(agent: AgentRef) -> Self {
        Self { shown: Shown::Capability(agent), narrowed_to: None }
    }

    /// The same caller speaking for an agent: it can do what that agent may do, and no more.
    #[must_use]
    pub fn narrowed_to(mut self, agent: &str) -> Self {
        self.narrowed_to = Some(agent.to_owned());
        self
    }

    /// Whom this call counts as. An agent that is gone is nobody. Wakes nobody.
    pub(crate) fn principal(&self, pool: &PoolHandle) -> Result<Principal, Fault> {
        let named = self.narrowed_to.as_deref();
        match (&self.shown, named) {
            (Shown::AdminToken, None) => Ok(Principal::Admin),
            (Shown::AdminToken, Some(name)) => {
                let agent = AgentId::parse(name).ok().and_then(|id| pool.refer(&id));
                let unknown = || denied("X-Nexus-Agent names no agent that exists".to_owned());
                agent.map(Principal::Agent).ok_or_else(unknown)
            }
            (Shown::Capability(agent), Some(name)) if agent.id().as_str() != name => {
                Err(denied("X-Nexus-Agent does not match the agent of the capability token".to_owned()))
            }
            (Shown::Capability(agent), _) if pool.still_there(agent) => Ok(Principal::Agent(agent.clone())),
            (Shown::Capability(_), _) => Err(denied("Invalid API key".to_owned())),
        }
    }

    /// Whom this call counts as, awake.
    pub(crate) async fn author(&self, pool: &PoolHandle) -> Result<Author, Fault> {
        match self.principal(pool)? {
            Principal::Admin => Ok(Author::Admin),
            Principal::Agent(own) => pool.wake(&own).await.map(Author::Agent),
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

    /// For what is done to an agent: admins, the agent itself, and those above it as far as their grant goes.
    pub(crate) async fn must_reach(
        &self,
        pool: &PoolHandle,
        target: &AgentRef,
        errand: Errand,
    ) -> Result<(), Fault> {
        let own = match self.principal(pool)? {
            Principal::Admin => return Ok(()),
            Principal::Agent(own) => own,
        };
        if own.serial() == target.serial() {
            return if errand.is_for_itself {
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
    pub(crate) async fn must_find(
        &self,
        pool: &PoolHandle,
        id: &AgentId,
        method: Method,
    ) -> Result<AgentRef, Fault> {
        let errand = Errand::from(method);
        match (self.principal(pool)?, pool.refer(id)) {
            (_, Some(agent)) => self.must_reach(pool, &agent, errand).await.map(|()| agent),
            (Principal::Admin, None) => {
                Err(Fault::new(FaultKind::NotFound, format!("Agent not found: {id}")))
            }
            (Principal::Agent(own), None) => Err(not_authorized(&own, errand, id)),
        }
    }

    /// `main` need not exist yet: only an admin may bring it into being.
    pub(crate) async fn must_reach_main(
        &self,
        pool: &PoolHandle,
        method: Method,
    ) -> Result<AgentHandle, Fault> {
        let main = AgentId::main();
        if let Some(agent) = pool.refer(&main) {
            self.must_reach(pool, &agent, method.into()).await?;
            return pool.wake(&agent).await;
        }
        match self.principal(pool)? {
            Principal::Admin => pool.main_agent().await,
            Principal::Agent(own) => Err(not_authorized(&own, method.into(), &main)),
        }
    }

    /// An agent may destroy itself and everybody below it.
    pub(crate) fn may_destroy(
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
const fn tool_for(method: Method) -> &'static str {
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
const fn is_for_itself(method: Method) -> bool {
    !matches!(
        method,
        Method::SetPermissions
            | Method::ForkAgent
            | Method::RollbackAgent
            | Method::RenameAgent
            | Method::ExportAgent
    )
}

fn not_authorized(own: &AgentRef, errand: Errand, target: &AgentId) -> Fault {
    let name = errand.name;
    denied(format!("Agent '{}' is not authorized to call {name} on '{target}'", own.id()))
}

fn denied(text: String) -> Fault {
    Fault::denied("identity", text)
}
