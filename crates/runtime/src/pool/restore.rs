//! Restoring agents from the store: their lineage nodes, with all ancestors, their context and their open turns.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use agent::journal::{Replay, Serial};
use agent::outside::{ModelRequest, ModelSpec, ModelStream, Provider, StoreFault, StoredAgent};
use agent::{AgentId, CountedMessage, Fault, FaultKind, Message, Window};

use super::Pool;
use super::wake::NewAgent;
use crate::actor::PendingTurn;
use crate::admission::shutting_down;
use crate::capability::CapabilityDigest;
use crate::handle::{AgentHandle, AgentRef, agent_not_found};
use crate::lineage::{LineageNode, NewLineageNode, StoredLineageNode};

impl Pool {
    /// Restores the agent from the store.
    pub(super) async fn restore_agent(self: &Arc<Self>, agent: &AgentRef) -> Result<AgentHandle, Fault> {
        if self.stop_requested.is_cancelled() && self.admission.is_closed() {
            return Err(shutting_down());
        }
        let reservation = self.reserve_live().await?;
        let (node, stored) = self
            .load_agents(&[agent.serial])
            .await?
            .remove(&agent.serial)
            .ok_or_else(|| agent_not_found(&agent.id))?;
        let records = self.outside.store.history(agent.serial).await?;
        let (messages, open_turns) = Replay::from_records(records).into_parts();
        let StoredAgent { record, mut state, .. } = stored;
        let provider = self.provider_for(record.model.as_deref());
        let window = count_window(record.system_prompt.as_deref(), messages, &provider).await;
        state.messages = window.messages().len() as u64;
        let (handle, commands) = self.assemble(NewAgent {
            node,
            capability: CapabilityDigest::from_bytes(record.capability_digest),
            created_at: record.created_at,
            created_by: record.by,
            origin: record.origin,
            on_restart: record.on_restart,
            model_requested: record.model,
            provider,
            window,
            state,
        });
        let queue = open_turns.into_iter().map(|open_turn| {
            let permit = self.admission.readmit(&handle.shared.open_turns);
            PendingTurn::from_stored(open_turn, permit)
        });
        let queue = queue.collect();
        self.start_agent(&handle, commands, queue, reservation);
        Ok(handle)
    }

    /// Returns the provider of a model. A missing model fails on use, so that the agent can still be read.
    fn provider_for(&self, model: Option<&str>) -> Arc<dyn Provider> {
        match model.map(|model| (model, self.outside.models.find(model))) {
            None => self.outside.models.default_model(),
            Some((_, Ok(provider))) => provider,
            Some((model, Err(fault))) => Arc::new(MissingModel { model: model.to_owned(), fault }),
        }
    }

    /// Returns an agent's lineage node, restoring it if needed.
    pub(super) async fn node_of(&self, serial: Serial) -> Result<Arc<LineageNode>, Fault> {
        if let Some(node) = self.directory.node(serial) {
            return Ok(node);
        }
        let not_found = || Fault::new(FaultKind::NotFound, "Agent not found");
        self.load_agents(&[serial]).await?.remove(&serial).map(|(node, _)| node).ok_or_else(not_found)
    }

    /// Loads agents from the store, and restores their lineage nodes.
    pub(super) async fn load_agents(
        &self,
        serials: &[Serial],
    ) -> Result<HashMap<Serial, (Arc<LineageNode>, StoredAgent)>, StoreFault> {
        let _restore_guard = self.restore_lock.lock().await;
        let mut wanted: BTreeSet<Serial> = serials.iter().copied().collect();
        // Held until the end: a node in memory must not be dropped during the read, because its row is not read.
        let mut nodes_held = Vec::new();
        for serial in serials {
            let mut next = Some(*serial);
            while let Some(serial) = next {
                if let Some(node) = self.directory.node(serial) {
                    nodes_held.push(node);
                    break;
                }
                wanted.insert(serial);
                next = self.directory.parent(serial);
            }
        }
        let mut rows = self.outside.store.agents(wanted.into_iter().collect()).await?;
        // Ancestors have lower serials.
        rows.sort_unstable_by_key(|row| row.serial);
        let mut loaded: HashMap<Serial, (Arc<LineageNode>, StoredAgent)> = HashMap::new();
        for row in rows {
            let node = match self.directory.node(row.serial) {
                Some(node) => node,
                None => self.restore_node(&row, &loaded)?,
            };
            loaded.insert(row.serial, (node, row));
        }
        Ok(loaded)
    }

    fn restore_node(
        &self,
        row: &StoredAgent,
        loaded: &HashMap<Serial, (Arc<LineageNode>, StoredAgent)>,
    ) -> Result<Arc<LineageNode>, StoreFault> {
        let parent = match row.record.parent {
            None => None,
            Some(parent) => {
                let found = loaded.get(&parent).map(|(node, _)| Arc::clone(node));
                // An agent restored without its parent would have no ceiling.
                Some(
                    found
                        .or_else(|| self.directory.node(parent))
                        .ok_or_else(|| missing_parent(&row.record.id))?,
                )
            }
        };
        let node = LineageNode::restore(StoredLineageNode {
            new: NewLineageNode {
                id: row.record.id.clone(),
                serial: row.serial,
                parent,
                cwd: row.record.cwd.clone(),
                granted: self.restore_permissions(
                    &row.record.permissions,
                    &row.record.cwd,
                    &row.state.identities,
                ),
            },
            ledger: row.ledger.clone(),
            descendant_count: self.directory.descendant_count(row.serial),
            is_destroyed: row.is_destroyed,
        });
        self.directory.set_node(&node);
        Ok(node)
    }
}

/// Text beyond this size is counted on a blocking thread.
const INLINE_COUNT_BYTES_MAX: usize = 256 << 10;

/// Rebuilds the context of an agent, counting the tokens of each message.
async fn count_window(
    prompt: Option<&str>,
    messages: Vec<Arc<Message>>,
    provider: &Arc<dyn Provider>,
) -> Window {
    let (prompt, provider) = (prompt.map(str::to_owned), Arc::clone(provider));
    let bytes: usize = messages.iter().map(|message| message.text.len()).sum();
    let count_all = move || {
        let count = |text: &str| provider.count(text);
        let mut window = Window::new(prompt.as_deref(), &count);
        messages.iter().for_each(|message| window.push(CountedMessage::new(Arc::clone(message), &count)));
        window
    };
    if bytes <= INLINE_COUNT_BYTES_MAX {
        return count_all();
    }
    match tokio::task::spawn_blocking(count_all).await {
        Ok(window) => window,
        // The task is never aborted, so this is a panic in the token counter.
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

fn missing_parent(id: &AgentId) -> StoreFault {
    StoreFault::Corrupt(format!("the parent of agent '{id}' is not in the store"))
}

/// Placeholder for a model that no longer exists.
struct MissingModel {
    model: String,
    fault: Fault,
}

impl Provider for MissingModel {
    fn call(&self, _: ModelRequest) -> ModelStream {
        let text = format!("the agent's model is not available: {}", self.fault.public);
        let fault = Fault::new(FaultKind::Model, text);
        Box::pin(futures_util::stream::once(std::future::ready(Err(fault))))
    }

    fn model(&self) -> Option<&str> {
        Some(&self.model)
    }

    fn spec(&self) -> &ModelSpec {
        const SPEC: ModelSpec = ModelSpec::with_window(0);
        &SPEC
    }
}
