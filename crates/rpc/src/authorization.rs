//! Authorization of a principal for an operation, by the access rule of the method list and the pool's current state.

use agent::{AgentId, Fault, FaultKind};
use nexus3_protocol::{Access, Method};
use runtime::{AgentHandle, AgentRef};

use crate::caller::{Principal, denied};
use crate::dispatcher::{Dispatcher, Target, TargetKind};

impl Principal {
    /// Authorizes an operation that only an admin may run.
    pub(crate) fn authorize_admin(&self, operation: &str) -> Result<(), Fault> {
        match self {
            Principal::Admin => Ok(()),
            Principal::Agent(own) => {
                Err(denied(format!("Agent '{}' is not authorized to call {operation}", own.id())))
            }
        }
    }
}

impl Dispatcher {
    /// Authorizes an operation on an agent.
    pub(crate) async fn authorize(
        &self,
        principal: &Principal,
        subject: &AgentRef,
        access: Access,
        operation: &str,
    ) -> Result<(), Fault> {
        let Principal::Agent(own) = principal else { return Ok(()) };
        let is_self = own.serial() == subject.serial();
        let is_in_subtree = || self.pool.is_in_subtree(subject.serial(), own);
        match access {
            Access::Anyone => Ok(()),
            Access::SelfOrReach(_) if is_self => Ok(()),
            Access::Subtree if is_in_subtree() => Ok(()),
            Access::Reach(tool) | Access::SelfOrReach(tool) if !is_self && is_in_subtree() => {
                let (own, subject) = (self.pool.wake(own).await?, self.pool.wake(subject).await?);
                own.authorize_reach(tool, &subject).map_err(|denial| denied(denial.text))
            }
            Access::Admin | Access::Subtree | Access::Reach(_) | Access::SelfOrReach(_) => {
                Err(not_authorized(own, operation, subject.id()))
            }
        }
    }

    /// Finds an agent by id and authorizes an operation on it; `None` if it does not exist, which only an admin learns.
    /// To an agent, a missing agent and one out of its reach give the same error, so that ids cannot be probed.
    pub(crate) async fn find_authorized(
        &self,
        principal: &Principal,
        id: &AgentId,
        access: Access,
        operation: &str,
    ) -> Result<Option<AgentRef>, Fault> {
        match (self.pool.find_ref(id), principal) {
            (Some(agent), _) => {
                self.authorize(principal, &agent, access, operation).await.map(|()| Some(agent))
            }
            (None, Principal::Admin) => Ok(None),
            (None, Principal::Agent(_)) => Err(missing(principal, operation, id)),
        }
    }

    /// Authorizes an operation on the target's agent and wakes it. For the daemon that is `main`, which an admin's
    /// call creates if it is missing.
    pub(crate) async fn target_agent(
        &self,
        target: &Target,
        principal: &Principal,
        access: Access,
        operation: &str,
    ) -> Result<AgentHandle, Fault> {
        match &target.0 {
            // The body may arrive long after the head; if the agent was destroyed meanwhile, this fails.
            TargetKind::Agent(agent) => {
                self.authorize(principal, agent, access, operation).await?;
                self.pool.wake(agent).await
            }
            TargetKind::Missing(id) => Err(missing(principal, operation, id)),
            TargetKind::Daemon => {
                match self.find_authorized(principal, &AgentId::main(), access, operation).await? {
                    Some(main) => self.pool.wake(&main).await,
                    None => self.pool.main_agent().await,
                }
            }
        }
    }
}

pub(crate) fn agent_not_found(id: &AgentId) -> Fault {
    Fault::new(FaultKind::NotFound, format!("Agent not found: {id}"))
}

/// Returns the error for an agent that does not exist.
pub(crate) fn missing(principal: &Principal, operation: &str, id: &AgentId) -> Fault {
    match principal {
        Principal::Admin => agent_not_found(id),
        Principal::Agent(own) => not_authorized(own, operation, id),
    }
}

fn not_authorized(own: &AgentRef, operation: &str, subject: &AgentId) -> Fault {
    let own = own.id();
    // Clients of the original NEXUS3 know this text.
    if operation == Method::DestroyAgent.name() {
        return denied(format!("Agent '{own}' is not authorized to destroy '{subject}'"));
    }
    denied(format!("Agent '{own}' is not authorized to call {operation} on '{subject}'"))
}
