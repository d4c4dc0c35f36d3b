//! Listing of agents, live or asleep. Listing does not wake agents.

use std::collections::HashMap;
use std::sync::Arc;

use agent::journal::Serial;
use agent::outside::{StoreFault, StoredAgent};
use agent::{AgentId, Fault};

use super::directory::ListedAgent;
use super::{Pool, PoolHandle};
use crate::handle::{AgentHandle, AgentRef};
use crate::lineage::LineageNode;
use crate::published::{AgentLiveness, AgentStatus};

/// Scope of a listing.
#[derive(Debug, Clone, Copy)]
pub enum ListScope<'a> {
    /// All agents.
    All,
    /// One agent and its descendants.
    Subtree(&'a AgentRef),
}

/// A page of agents in creation order.
#[derive(Debug, Clone)]
pub struct AgentPage {
    /// Number of agents on all pages.
    pub total: usize,
    /// The agents of the page.
    pub agents: Vec<AgentStatus>,
    /// Agents of the page that cannot be loaded.
    pub damaged: Vec<DamagedAgent>,
}

/// An agent whose stored rows, or those of an ancestor, are damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedAgent {
    /// Agent id.
    pub id: AgentId,
    /// Why it cannot be loaded.
    pub fault: Fault,
}

/// Sleeping agents loaded from the store per batch.
const LOAD_BATCH_MAX: usize = 1024;

type LoadedAgents = HashMap<Serial, (Arc<LineageNode>, StoredAgent)>;

impl PoolHandle {
    /// Lists all agents in creation order, except damaged ones.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn list(&self) -> Result<Vec<AgentStatus>, Fault> {
        self.list_page(ListScope::All, 0, usize::MAX).await.map(|page| page.agents)
    }

    /// Returns a page of agents in creation order.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn list_page(
        &self,
        scope: ListScope<'_>,
        offset: usize,
        limit: usize,
    ) -> Result<AgentPage, Fault> {
        let under = match scope {
            ListScope::All => None,
            ListScope::Subtree(top) => Some(top.serial),
        };
        let (total, page) = self.pool.directory.page(under, offset, limit);
        self.pool.agent_page(total, page).await
    }

    /// Returns the status of a live agent.
    #[must_use]
    pub fn status(&self, agent: &AgentHandle) -> AgentStatus {
        agent.shared.status(self.pool.directory.child_count(agent.node().serial))
    }

    /// Lists an agent's children in creation order.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn children(&self, agent: &AgentHandle) -> Result<AgentPage, Fault> {
        let children = self.pool.directory.children(agent.node().serial);
        self.pool.agent_page(children.len(), children).await
    }

    /// Returns the ids of an agent's children in creation order.
    #[must_use]
    pub fn child_ids(&self, agent: &AgentHandle) -> Vec<AgentId> {
        let children = self.pool.directory.children(agent.node().serial);
        children.into_iter().map(|child| child.id).collect()
    }
}

impl Pool {
    async fn agent_page(&self, total: usize, listed: Vec<ListedAgent>) -> Result<AgentPage, Fault> {
        let mut page = AgentPage { total, agents: Vec::with_capacity(listed.len()), damaged: Vec::new() };
        for batch in listed.chunks(LOAD_BATCH_MAX) {
            let loaded = self.load_batch(batch, &mut page.damaged).await?;
            for agent in batch {
                match (&agent.live, loaded.get(&agent.serial)) {
                    (Some(live), _) => page.agents.push(live.status(agent.child_count)),
                    (None, Some((node, stored))) => {
                        page.agents.push(self.stored_status(node, stored, agent.child_count));
                    }
                    // Damaged, or destroyed meanwhile.
                    (None, None) => {}
                }
            }
        }
        Ok(page)
    }

    /// Loads the agents of a batch that are asleep. If one is damaged, loads them one by one, so that the others can be
    /// listed.
    async fn load_batch(
        &self,
        batch: &[ListedAgent],
        damaged: &mut Vec<DamagedAgent>,
    ) -> Result<LoadedAgents, StoreFault> {
        let asleep = batch.iter().filter(|agent| agent.live.is_none());
        let serials: Vec<Serial> = asleep.clone().map(|agent| agent.serial).collect();
        if serials.is_empty() {
            return Ok(LoadedAgents::new());
        }
        match self.load_agents(&serials).await {
            Err(StoreFault::Corrupt(_)) => {}
            loaded => return loaded,
        }
        let mut loaded = LoadedAgents::new();
        for agent in asleep {
            match self.load_agents(&[agent.serial]).await {
                Ok(one) => loaded.extend(one),
                Err(fault @ StoreFault::Corrupt(_)) => {
                    tracing::error!(agent = %agent.id, "agent cannot be loaded: {fault}; run nexus3 check");
                    damaged.push(DamagedAgent { id: agent.id.clone(), fault: fault.into() });
                }
                Err(fault) => return Err(fault),
            }
        }
        Ok(loaded)
    }

    fn stored_status(
        &self,
        node: &Arc<LineageNode>,
        stored: &StoredAgent,
        child_count: usize,
    ) -> AgentStatus {
        let StoredAgent { record, state, .. } = stored;
        let granted = node.granted();
        let model = record.model.as_deref().map(Arc::from);
        AgentStatus {
            id: record.id.clone(),
            created_at: record.created_at,
            message_count: usize::try_from(state.messages).unwrap_or(usize::MAX),
            should_shutdown: state.should_shutdown,
            halted: state.halted,
            is_working: false,
            open_turns: 0,
            model: model.or_else(|| self.outside.models.default_model().model().map(Arc::from)),
            last_action_at: state.last_action_at,
            parent: node.parent.as_ref().map(|parent| parent.id()),
            child_count,
            depth: node.depth,
            preset: granted.preset,
            level: granted.level,
            cwd: record.cwd.clone(),
            write_directories: node.write_directories().roots().to_vec(),
            state: AgentLiveness::Asleep,
            on_restart: record.on_restart,
            origin: record.origin.clone(),
        }
    }
}
