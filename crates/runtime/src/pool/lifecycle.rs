//! What can be done to a conversation as a whole: copied up to a message, given another name, brought in from elsewhere.

use std::sync::Arc;

use agent::journal::Record;
use agent::outside::{Append, StoreFault, Timestamp};
use agent::permission::Effect;
use agent::{AgentId, Fault, FaultKind, Message};

use super::create::{CreatePlan, CreatedAgent, Initiator, NameSpec, OwnedInitiator};
use super::permissions::authorize_effects;
use super::{AgentSpec, Pool, PoolHandle};
use crate::admission::busy;
use crate::handle::{AgentHandle, AgentRef};

/// A copy of an agent.
#[derive(Debug, Clone, Default)]
pub struct Fork {
    /// What it is called; made up when nothing is said.
    pub id: Option<AgentId>,
    /// The messages it begins with; all when nothing is said.
    pub messages: Option<usize>,
}

/// An agent from elsewhere.
#[derive(Debug, Clone)]
pub struct Import {
    /// What it is made from.
    pub spec: AgentSpec,
    /// Its messages.
    pub messages: Vec<Message>,
    /// When it was made, if that is known.
    pub created_at: Option<Timestamp>,
    /// Where it comes from.
    pub origin: String,
}

impl PoolHandle {
    /// Makes a new agent with the first messages of another, and all that the other was given.
    ///
    /// # Errors
    /// As for a create, and when the messages would end within a tool call.
    pub async fn fork(
        &self,
        source: &AgentHandle,
        fork: Fork,
        by: Initiator<'_>,
    ) -> Result<CreatedAgent, Fault> {
        let (pool, source, author) =
            (Arc::clone(&self.pool), source.clone(), OwnedInitiator::from_initiator(by));
        self.pool.run_detached(async move { pool.fork(&source, fork, author.as_initiator()).await }).await
    }

    /// Gives an agent another name. What was kept of it stays with it.
    ///
    /// # Errors
    /// When the name is taken, the agent is at work, or the name cannot be kept.
    pub async fn rename(&self, agent: &AgentRef, id: AgentId, by: Initiator<'_>) -> Result<AgentRef, Fault> {
        let (pool, agent, by) = (Arc::clone(&self.pool), agent.clone(), by.name().to_owned());
        self.pool.run_detached(async move { pool.rename(&agent, id, by).await }).await
    }

    /// Makes an agent with messages it had elsewhere.
    ///
    /// # Errors
    /// As for a create.
    pub async fn import(&self, import: Import, by: Initiator<'_>) -> Result<CreatedAgent, Fault> {
        let (pool, author) = (Arc::clone(&self.pool), OwnedInitiator::from_initiator(by));
        let import = async move {
            let Import { spec, messages, created_at, origin } = import;
            let spec = AgentSpec { origin: Some(origin), initial: None, ..spec };
            let messages = messages.into_iter().map(Arc::new).collect();
            let plan =
                CreatePlan { messages, created_at, ..pool.plan_create(spec, author.as_initiator()).await? };
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
        by: Initiator<'_>,
    ) -> Result<CreatedAgent, Fault> {
        let (record, kin) = (source.record(), source.node());
        if let Initiator::Agent(own) = by {
            let preset = self.find_preset(&kin.granted().spec, None)?;
            let is_parent = kin.parent.as_ref().is_some_and(|parent| parent.serial == own.node().serial);
            if !is_parent {
                let text = format!("Agent '{}' may fork only its own children", own.id());
                return Err(Fault::denied("targets", text));
            }
            authorize_effects(&[Effect::Create(preset.inheritance.clone())], &own.node().may())?;
        }
        let messages = first_messages(source, fork.messages)?;
        let provider = Arc::clone(&source.shared.provider);
        let spec = AgentSpec {
            name: fork.id.map_or(NameSpec::Generated, NameSpec::Given),
            // An agent without a prompt stays without.
            system_prompt: Some(record.system_prompt.unwrap_or_default()),
            model: record.model,
            on_restart: Some(record.on_restart),
            origin: Some(format!("fork of {} at {}", record.id, messages.len())),
            ..AgentSpec::default()
        };
        let plan = CreatePlan {
            spec,
            parent: kin.parent.clone(),
            cwd: kin.cwd.clone(),
            granted: kin.granted(),
            provider,
            created_by: by.name().to_owned(),
            created_at: None,
            messages,
        };
        self.create_planned(&plan).await
    }

    async fn rename(self: &Arc<Self>, agent: &AgentRef, id: AgentId, by: String) -> Result<AgentRef, Fault> {
        let _alone = self.tree_lock.write().await;
        if id.is_temporary() && !agent.id.is_temporary() {
            let text = format!("an agent that is kept cannot get a temporary name: {id}");
            return Err(Fault::new(FaultKind::Invalid, text));
        }
        if !self.directory.exists(agent.serial) {
            return Err(crate::handle::agent_not_found(&agent.id));
        }
        if !self.directory.put_to_sleep(agent.serial) && self.directory.live_handle(agent.serial).is_some() {
            let text = format!("busy: agent '{}' is at work; rename it when it rests", agent.id);
            return Err(Fault::new(busy(), text));
        }
        // Nobody wakes it meanwhile: whoever wakes it would know it by its old name.
        let super::directory::Lookup::Asleep(gate) = self.directory.lookup(agent.serial) else {
            return Err(Fault::new(busy(), format!("busy: agent '{}' is at work", agent.id)));
        };
        let _awake = gate.lock().await;
        if self.directory.live_handle(agent.serial).is_some() {
            return Err(Fault::new(busy(), format!("busy: agent '{}' is at work", agent.id)));
        }
        if !self.directory.reserve_name(agent.serial, &id) {
            return Err(name_taken(&id));
        }
        let append = Append {
            agent: agent.serial,
            // The name it has then; later records bear the new one.
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
                self.directory.release_name(&id);
                Err(if fault == StoreFault::DuplicateAgentId { name_taken(&id) } else { fault.into() })
            }
        }
    }
}

fn name_taken(id: &AgentId) -> Fault {
    Fault::new(FaultKind::Invalid, format!("Agent already exists: {id}"))
}

fn first_messages(source: &AgentHandle, count: Option<usize>) -> Result<Vec<Arc<Message>>, Fault> {
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
    Ok(all[..count].to_vec())
}
