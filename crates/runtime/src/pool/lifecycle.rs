//! Lifecycle operations on whole conversations: fork, rename, import.

use std::sync::Arc;

use agent::journal::Record;
use agent::outside::{Append, StoreFault, Timestamp};
use agent::permission::Effect;
use agent::{AgentId, Fault, FaultKind, Message, PrincipalId, TodoItem};

use super::create::{CreatePlan, CreatedAgent, Initiator, NameSpec, OwnedInitiator};
use super::permissions::authorize_effects;
use super::{AgentSpec, Pool, PoolHandle};
use crate::admission::busy;
use crate::handle::{AgentHandle, AgentRef, agent_not_found};

/// Parameters of a fork.
#[derive(Debug, Clone, Default)]
pub struct Fork {
    /// Id of the fork; generated if `None`.
    pub id: Option<AgentId>,
    /// Number of messages to copy; all if `None`.
    pub messages: Option<usize>,
}

/// An agent to import.
#[derive(Debug, Clone)]
pub struct Import {
    /// Parameters of the agent.
    pub spec: AgentSpec,
    /// Messages of the context.
    pub messages: Vec<Message>,
    /// Creation time, if known.
    pub created_at: Option<Timestamp>,
    /// Origin of the import.
    pub origin: String,
}

impl PoolHandle {
    /// Creates an agent with the first messages and the permissions of another.
    ///
    /// # Errors
    /// As for [`Self::create`], and when the cut would separate a tool call from its result.
    pub async fn fork(
        &self,
        source: &AgentHandle,
        fork: Fork,
        initiator: Initiator<'_>,
    ) -> Result<CreatedAgent, Fault> {
        let (pool, source, initiator) =
            (Arc::clone(&self.pool), source.clone(), OwnedInitiator::from_initiator(initiator));
        self.pool.run_detached(async move { pool.fork(&source, fork, initiator.as_initiator()).await }).await
    }

    /// Renames an agent. Its journal stays with it.
    ///
    /// # Errors
    /// When the id is taken, the agent is working, or the commit failed.
    pub async fn rename(
        &self,
        agent: &AgentRef,
        id: AgentId,
        initiator: Initiator<'_>,
    ) -> Result<AgentRef, Fault> {
        let (pool, agent, by) = (Arc::clone(&self.pool), agent.clone(), initiator.principal_id());
        self.pool.run_detached(async move { pool.rename(&agent, id, by).await }).await
    }

    /// Creates an agent with imported messages.
    ///
    /// # Errors
    /// As for [`Self::create`].
    pub async fn import(&self, import: Import, initiator: Initiator<'_>) -> Result<CreatedAgent, Fault> {
        let (pool, initiator) = (Arc::clone(&self.pool), OwnedInitiator::from_initiator(initiator));
        let import = async move {
            let Import { spec, messages, created_at, origin } = import;
            let spec = AgentSpec { origin: Some(origin), initial: None, ..spec };
            let messages = messages.into_iter().map(Arc::new).collect();
            let plan = CreatePlan {
                messages,
                created_at,
                ..pool.plan_create(spec, initiator.as_initiator()).await?
            };
            pool.create_planned(&plan).await
        };
        self.pool.run_detached(import).await
    }
}

impl Pool {
    async fn fork(
        self: &Arc<Self>,
        source: &AgentHandle,
        fork: Fork,
        initiator: Initiator<'_>,
    ) -> Result<CreatedAgent, Fault> {
        let (record, node) = (source.record(), source.node());
        if let Initiator::Agent(agent) = initiator {
            let preset = self.find_preset(&node.granted().spec, None)?;
            let is_parent = node.parent.as_ref().is_some_and(|parent| parent.serial == agent.node().serial);
            if !is_parent {
                let text = format!("Agent '{}' may fork only its own children", agent.id());
                return Err(Fault::denied("targets", text));
            }
            authorize_effects(&[Effect::Create(preset.inheritance.clone())], &agent.node().may())?;
        }
        let (messages, todo) = first_messages(source, fork.messages)?;
        let provider = Arc::clone(&source.shared.provider);
        let spec = AgentSpec {
            name: fork.id.map_or(NameSpec::Generated, NameSpec::Given),
            // A source without a prompt must not get the default one.
            system_prompt: Some(record.system_prompt.unwrap_or_default()),
            model: record.model,
            on_restart: Some(record.on_restart),
            origin: Some(format!("fork of {} at {}", record.id, messages.len())),
            ..AgentSpec::default()
        };
        let plan = CreatePlan {
            spec,
            parent: node.parent.clone(),
            cwd: node.cwd.clone(),
            granted: node.granted(),
            provider,
            created_by: initiator.principal_id(),
            created_at: None,
            messages,
            todo,
        };
        self.create_planned(&plan).await
    }

    async fn rename(
        self: &Arc<Self>,
        agent: &AgentRef,
        id: AgentId,
        by: PrincipalId,
    ) -> Result<AgentRef, Fault> {
        if id.is_temporary() && !agent.id.is_temporary() {
            let text = format!("a persistent agent cannot get a temporary ID: {id}");
            return Err(Fault::new(FaultKind::Invalid, text));
        }
        self.wait_for_id(&id).await;
        let not_found = || agent_not_found(&agent.id);
        let tree_lock = self.directory.tree_lock(agent.serial).ok_or_else(not_found)?;
        let _tree_guard = tree_lock.write().await;
        if !self.directory.exists(agent.serial) {
            return Err(not_found());
        }
        if !self.directory.put_to_sleep(agent.serial) && self.directory.live_handle(agent.serial).is_some() {
            let text = format!("busy: agent '{}' is working; rename it when it is idle", agent.id);
            return Err(Fault::new(busy(), text));
        }
        // Locked, so that no caller wakes it under its old id.
        let super::directory::Lookup::Asleep(wake_lock) = self.directory.lookup(agent.serial) else {
            return Err(Fault::new(busy(), format!("busy: agent '{}' is working", agent.id)));
        };
        let _wake_guard = wake_lock.lock().await;
        if self.directory.live_handle(agent.serial).is_some() {
            return Err(Fault::new(busy(), format!("busy: agent '{}' is working", agent.id)));
        }
        if !self.directory.reserve_id(agent.serial, &id) {
            return Err(id_taken(&id));
        }
        let append = Append {
            agent: agent.serial,
            // The old id; later records have the new one.
            agent_id: Some(agent.id.clone()),
            at: self.outside.clock.now(),
            records: vec![Record::Renamed { by, id: id.clone() }],
            state: None,
            ledgers: Vec::new(),
        };
        match self.outside.store.append(vec![append]).await {
            Ok(()) => {
                self.directory.rename(agent.serial, &id);
                Ok(AgentRef { serial: agent.serial, id })
            }
            Err(fault) => {
                self.directory.release_id(&id);
                Err(if fault == StoreFault::DuplicateAgentId { id_taken(&id) } else { fault.into() })
            }
        }
    }
}

fn id_taken(id: &AgentId) -> Fault {
    Fault::new(FaultKind::Invalid, format!("Agent already exists: {id}"))
}

fn first_messages(
    source: &AgentHandle,
    count: Option<usize>,
) -> Result<(Vec<Arc<Message>>, Vec<TodoItem>), Fault> {
    let state = source.shared.published.read();
    let all = state.window.messages();
    let count = count.unwrap_or(all.len());
    let invalid = |text: String| Err(Fault::new(FaultKind::Invalid, text));
    if count > all.len() {
        return invalid(format!(
            "messages must be at most {}, the number there are, got: {count}",
            all.len()
        ));
    }
    if !state.window.can_split_at(count) {
        return invalid(format!("messages {count} would cut a tool call from its result"));
    }
    Ok((all[..count].to_vec(), state.plan_at(count)))
}
