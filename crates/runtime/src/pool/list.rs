//! Listing of agents, live or asleep. Listing does not wake agents.

use std::collections::HashMap;
use std::sync::Arc;

use agent::Fault;
use agent::journal::Serial;
use agent::outside::StoredAgent;

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

/// Sleeping agents loaded from the store per batch.
const LOAD_BATCH_MAX: usize = 1024;

impl PoolHandle {
    /// Lists all agents in creation order.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn list(&self) -> Result<Vec<AgentStatus>, Fault> {
        self.list_page(ListScope::All, 0, usize::MAX).await.map(|(_, agents)| agents)
    }

    /// Returns a page of agents in creation order, and the total number.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn list_page(
        &self,
        scope: ListScope<'_>,
        offset: usize,
        limit: usize,
    ) -> Result<(usize, Vec<AgentStatus>), Fault> {
        let under = match scope {
            ListScope::All => None,
            ListScope::Subtree(top) => Some(top.serial),
        };
        let (total, page) = self.pool.directory.page(under, offset, limit);
        Ok((total, self.pool.statuses(page).await?))
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
    pub async fn children(&self, agent: &AgentHandle) -> Result<Vec<AgentStatus>, Fault> {
        self.pool.statuses(self.pool.directory.children(agent.node().serial)).await
    }
}

impl Pool {
    async fn statuses(&self, listed: Vec<ListedAgent>) -> Result<Vec<AgentStatus>, Fault> {
        let mut statuses = Vec::with_capacity(listed.len());
        for batch in listed.chunks(LOAD_BATCH_MAX) {
            let asleep: Vec<Serial> =
                batch.iter().filter(|agent| agent.live.is_none()).map(|agent| agent.serial).collect();
            let loaded = if asleep.is_empty() { HashMap::new() } else { self.load_agents(&asleep).await? };
            for agent in batch {
                // Neither live nor stored: destroyed meanwhile.
                match (&agent.live, loaded.get(&agent.serial)) {
                    (Some(live), _) => statuses.push(live.status(agent.child_count)),
                    (None, Some((node, stored))) => {
                        statuses.push(self.stored_status(node, stored, agent.child_count));
                    }
                    (None, None) => {}
                }
            }
        }
        Ok(statuses)
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
