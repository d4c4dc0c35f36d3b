//! Access to other agents for the tools of one agent. Each operation is authorized again here, after the tool call
//! was: a grant may have shrunk since.

use std::sync::{Arc, Weak};
use std::time::Duration;

use agent::journal::ApprovalAnswer;
use agent::outside::{
    BoxFuture, CreatedPeer, NewAnswer, NewPeer, PeerResponse, PeerStatus, Peers, PendingApproval,
};
use agent::permission::{Effect, Verdict, judge};
use agent::{AgentId, Fault, FaultKind, MessageSource, PrincipalId, RequestId, TurnEnd, TurnOutcome};

use crate::actor::Command;
use crate::admission::shutting_down;
use crate::handle::{AgentHandle, AgentRef, NewMessage, Shared, TurnFuture, agent_not_found};
use crate::lineage::LineageNode;
use crate::pool::{
    AgentSpec, ChildPolicy, CreatedAgent, FirstMessage, Initiator, ListScope, NameSpec, PermissionSpec, Pool,
    PoolHandle,
};
use crate::published::AgentStatus;
use crate::wait_graph::WaitEdge;

/// Other agents, accessed with the permissions of one agent.
pub(crate) struct AgentPeers {
    pool: Weak<Pool>,
    id: AgentId,
    node: Arc<LineageNode>,
}

/// Source kind of messages between agents.
const SOURCE_KIND: &str = "agent";

impl AgentPeers {
    pub(crate) fn new(shared: &Shared) -> Self {
        Self { pool: shared.pool.clone(), id: shared.id.clone(), node: Arc::clone(&shared.node) }
    }

    fn pool(&self) -> Result<PoolHandle, Fault> {
        self.pool.upgrade().map(|pool| PoolHandle { pool }).ok_or_else(shutting_down)
    }

    /// Returns the agent's own handle; it may have been destroyed while its tool runs.
    async fn own_handle(&self, pool: &PoolHandle) -> Result<AgentHandle, Fault> {
        pool.wake(&AgentRef { serial: self.node.serial, id: self.id.clone() }).await
    }

    /// Resolves another agent, if this one may reach it.
    fn resolve_peer(&self, pool: &PoolHandle, id: &AgentId) -> Result<AgentRef, Fault> {
        let relation = pool.pool.directory.relation(self.node.serial, id);
        match judge(&[Effect::Reach(id.clone(), relation)], &self.node.may()) {
            Verdict::Allowed(_) => pool.find_ref(id).ok_or_else(|| agent_not_found(id)),
            Verdict::Denied(denial) => Err(Fault::denied(denial.dimension.name(), denial.text)),
        }
    }

    /// Resolves another agent and wakes it.
    async fn wake_peer(&self, pool: &PoolHandle, id: &AgentId) -> Result<AgentHandle, Fault> {
        let target = self.resolve_peer(pool, id)?;
        pool.wake(&target).await
    }

    /// Creates a child. Does not hold the pool handle afterwards: a waiting tool must not keep the pool alive.
    async fn create_child(
        &self,
        new: NewPeer,
    ) -> Result<(CreatedAgent, Option<Result<WaitEdge, Fault>>), Fault> {
        let pool = self.pool()?;
        let own = self.own_handle(&pool).await?;
        let is_waiting = new.wait && new.initial_message.is_some();
        let created = pool.create(agent_spec(new, self.source()), Initiator::Agent(&own)).await?;
        let id = created.handle.id();
        tracing::info!(target: "nexus3::audit", event = "created", principal = %PrincipalId::Agent(self.id.clone()), agent = %id, "agent created");
        // Adds a wait edge only if the parent waits. The child exists and may be running, so a deadlock fails the wait
        // and not the creation.
        let edge = is_waiting.then(|| pool.pool.wait_graph.add_edge(&self.node, created.handle.node()));
        Ok((created, edge))
    }

    async fn prepare_send(&self, to: &AgentId) -> Result<(AgentHandle, RequestId), Fault> {
        let pool = self.pool()?;
        Ok((self.wake_peer(&pool, to).await?, pool.generate_request_id()?))
    }

    fn source(&self) -> MessageSource {
        MessageSource {
            kind: Some(SOURCE_KIND.to_owned()),
            agent: Some(RequestId::Text(self.id.to_string())),
        }
    }

    /// Waits for the response. Dropping the future cancels the request: no other caller waits for it.
    async fn wait_for_response(
        &self,
        target: AgentHandle,
        edge: WaitEdge,
        request_id: RequestId,
        turn: TurnFuture,
    ) -> Result<PeerResponse, Fault> {
        let mut cancel_on_drop =
            CancelOnDrop { pool: self.pool.clone(), request: Some((target, request_id.clone())) };
        let end = turn.await;
        cancel_on_drop.request = None;
        drop(edge);
        end.map(|end| peer_response(request_id, end))
    }
}

fn peer_response(request_id: RequestId, end: TurnEnd) -> PeerResponse {
    PeerResponse {
        content: end.content,
        request_id,
        cancelled: end.outcome == TurnOutcome::Cancelled,
        halted: end.halted.map(agent::Halt::name),
        queued: false,
    }
}

impl Peers for AgentPeers {
    fn create(&self, new: NewPeer) -> BoxFuture<'_, Result<CreatedPeer, Fault>> {
        Box::pin(async move {
            let (created, edge) = self.create_child(new).await?;
            let id = created.handle.id().clone();
            let Some((request_id, turn)) = created.initial else {
                return Ok(CreatedPeer { id, initial_request_id: None, response: None });
            };
            let initial_request_id = Some(request_id.clone());
            let response = match edge {
                None => None,
                Some(Err(deadlock)) => Some(Err(deadlock)),
                Some(Ok(edge)) => Some(self.wait_for_response(created.handle, edge, request_id, turn).await),
            };
            Ok(CreatedPeer { id, initial_request_id, response })
        })
    }

    fn send(&self, to: AgentId, content: String, wait: bool) -> BoxFuture<'_, Result<PeerResponse, Fault>> {
        Box::pin(async move {
            let (target, request_id) = self.prepare_send(&to).await?;
            let message = NewMessage {
                text: content,
                images: Vec::new(),
                request_id: request_id.clone(),
                source: self.source(),
            };
            if !wait {
                target.submit_committed(message).await?;
                let content = String::new();
                return Ok(PeerResponse {
                    content,
                    request_id,
                    cancelled: false,
                    halted: None,
                    queued: true,
                });
            }
            // Before the message is submitted: a rejected wait must not leave a turn behind.
            let edge = self.pool()?.pool.wait_graph.add_edge(&self.node, target.node())?;
            let turn = target.submit(message)?;
            self.wait_for_response(target, edge, request_id, turn).await
        })
    }

    fn status(&self, of: AgentId) -> BoxFuture<'_, Result<PeerStatus, Fault>> {
        Box::pin(async move {
            let pool = self.pool()?;
            let target = self.wake_peer(&pool, &of).await?;
            Ok(peer_status(pool.status(&target)))
        })
    }

    fn cancel(&self, at: AgentId, request_id: RequestId) -> BoxFuture<'_, Result<bool, Fault>> {
        Box::pin(async move {
            let pool = self.pool()?;
            let target = self.wake_peer(&pool, &at).await?;
            Ok(target.cancel(request_id).await)
        })
    }

    fn destroy(&self, agent: AgentId) -> BoxFuture<'_, Result<bool, Fault>> {
        Box::pin(async move {
            let pool = self.pool()?;
            let target = match self.resolve_peer(&pool, &agent) {
                Ok(target) => target,
                Err(fault) if fault.kind == FaultKind::NotFound => return Ok(false),
                Err(fault) => return Err(fault),
            };
            let own = AgentRef { serial: self.node.serial, id: self.id.clone() };
            if target.serial == own.serial || !pool.is_in_subtree(target.serial, &own) {
                let text = format!("Agent '{}' is not authorized to destroy '{agent}'", self.id);
                return Err(Fault::denied("targets", text));
            }
            let own_handle = self.own_handle(&pool).await?;
            pool.destroy(&target, ChildPolicy::Cascade, Initiator::Agent(&own_handle)).await
        })
    }

    fn list(&self) -> BoxFuture<'_, Result<Vec<PeerStatus>, Fault>> {
        Box::pin(async move {
            let own = AgentRef { serial: self.node.serial, id: self.id.clone() };
            let page = self.pool()?.list_page(ListScope::Subtree(&own), 0, usize::MAX).await?;
            Ok(page.agents.into_iter().map(peer_status).collect())
        })
    }

    fn approvals(&self, wait_secs: u64) -> BoxFuture<'_, Result<Vec<PendingApproval>, Fault>> {
        Box::pin(async move {
            let pool = self.pool()?;
            let own = self.own_handle(&pool).await?;
            pool.wait_for_approvals(Initiator::Agent(&own), Duration::from_secs(wait_secs)).await
        })
    }

    fn answer_approval(&self, id: String, answer: NewAnswer) -> BoxFuture<'_, Result<ApprovalAnswer, Fault>> {
        Box::pin(async move {
            let pool = self.pool()?;
            let own = self.own_handle(&pool).await?;
            pool.answer_approval(&id, answer, Initiator::Agent(&own)).await
        })
    }
}

fn agent_spec(new: NewPeer, source: MessageSource) -> AgentSpec {
    AgentSpec {
        name: new.id.map_or(NameSpec::Generated, NameSpec::Given),
        system_prompt: new.system_prompt,
        parent: None,
        cwd: new.cwd,
        model: new.model,
        permissions: PermissionSpec {
            preset: new.preset,
            tools: new.tools,
            disable_tools: new.disable_tools,
            write_paths: new.write_paths,
            commands: new.commands,
            hosts: new.hosts,
            denied_hosts: new.denied_hosts,
            ..PermissionSpec::default()
        },
        level_max: Some(agent::permission::Level::Trusted),
        initial: new.initial_message.map(|text| FirstMessage { text, source }),
        on_restart: None,
        origin: None,
    }
}

fn peer_status(status: AgentStatus) -> PeerStatus {
    PeerStatus {
        id: status.id,
        parent: status.parent,
        preset: status.preset,
        message_count: status.message_count,
        is_working: status.is_working,
        queued: status.open_turns.saturating_sub(usize::from(status.is_working)),
        halted: status.halted.map(agent::Halt::name),
    }
}

/// Cancels a request when dropped before its response arrived.
struct CancelOnDrop {
    pool: Weak<Pool>,
    request: Option<(AgentHandle, RequestId)>,
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some((target, request_id)) = self.request.take() else { return };
        let (reply, _) = tokio::sync::oneshot::channel();
        let command = Box::new(Command::Cancel { request_id: request_id.clone(), reply });
        // If the inbox is full, a task of the pool sends it, so that a shutdown waits for it.
        if let Err(tokio::sync::mpsc::error::TrySendError::Full(_)) = target.inbox.try_send(command)
            && let Some(pool) = self.pool.upgrade()
        {
            pool.tasks.spawn(async move { target.cancel(request_id).await });
        }
    }
}
