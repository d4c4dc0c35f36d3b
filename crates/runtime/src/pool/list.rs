//! Lists of agents, live or asleep. A list wakes nobody.

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

/// Which agents to list.
#[derive(Debug, Clone, Copy)]
pub enum ListScope<'a> {
    /// All of them.
    All,
    /// One of them, and everybody below it.
    Subtree(&'a AgentRef),
}

/// Agents that sleep, read at once.
const LOAD_BATCH_MAX: usize = 1024;

impl PoolHandle {
    /// All agents in the order they were created.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn list(&self) -> Result<Vec<AgentStatus>, Fault> {
        self.list_page(ListScope::All, 0, usize::MAX).await.map(|(_, agents)| agents)
    }

    /// Some of the agents in the order they were created, and how many there are.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn list_page(
        &self,
        among: ListScope<'_>,
        offset: usize,
        limit: usize,
    ) -> Result<(usize, Vec<AgentStatus>), Fault> {
        let under = match among {
            ListScope::All => None,
            ListScope::Subtree(top) => Some(top.serial),
        };
        let (total, page) = self.pool.directory.page(under, offset, limit);
        Ok((total, self.pool.statuses(page).await?))
    }

    /// One live agent as it is in a list.
    #[must_use]
    pub fn status(&self, agent: &AgentHandle) -> AgentStatus {
        agent.shared.status(self.pool.directory.child_count(agent.node().serial))
    }

    /// An agent's children in the order they were created.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn children(&self, agent: &AgentHandle) -> Result<Vec<AgentStatus>, Fault> {
        self.pool.statuses(self.pool.directory.children(agent.node().serial)).await
    }
}

impl Pool {
    async fn statuses(&self, listed: Vec<ListedAgent>) -> Result<Vec<AgentStatus>, Fault> {
        let mut summaries = Vec::with_capacity(listed.len());
        for some in listed.chunks(LOAD_BATCH_MAX) {
            let asleep: Vec<Serial> =
                some.iter().filter(|one| one.live.is_none()).map(|one| one.serial).collect();
            let loaded = if asleep.is_empty() { HashMap::new() } else { self.load_agents(&asleep).await? };
            for one in some {
                // Whoever is in neither was destroyed meanwhile.
                match (&one.live, loaded.get(&one.serial)) {
                    (Some(live), _) => summaries.push(live.status(one.child_count)),
                    (None, Some((kin, stored))) => {
                        summaries.push(self.stored_status(kin, stored, one.child_count));
                    }
                    (None, None) => {}
                }
            }
        }
        Ok(summaries)
    }

    fn stored_status(&self, kin: &Arc<LineageNode>, stored: &StoredAgent, child_count: usize) -> AgentStatus {
        let StoredAgent { record, state, .. } = stored;
        let standing = kin.granted();
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
            parent: kin.parent.as_ref().map(|parent| parent.id()),
            child_count,
            depth: kin.depth,
            preset: standing.preset,
            level: standing.level,
            cwd: record.cwd.clone(),
            write_folders: kin.write_folders().roots().to_vec(),
            state: AgentLiveness::Asleep,
            on_restart: record.on_restart,
            origin: record.origin.clone(),
        }
    }
}
