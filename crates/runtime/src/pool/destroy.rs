//! Destruction of agents: commits it first, then removes the agents and ends their tasks.

use std::sync::Arc;

use agent::journal::{Record, Serial};
use agent::outside::{Append, BoxFuture, StoreFault};
use agent::{Fault, PrincipalId};

use super::{ChildPolicy, Pool};
use crate::handle::AgentHandle;
use crate::lineage::{LineageNode, Release};

impl Pool {
    /// Destroys an agent and, with `Cascade`, its descendants. Returns one item per destroyed agent, with its handle
    /// if it was live; empty when the agent does not exist.
    pub(super) async fn destroy(
        self: &Arc<Self>,
        serial: Serial,
        children: ChildPolicy,
        by: &PrincipalId,
    ) -> Result<Vec<Option<AgentHandle>>, Fault> {
        let Some(tree_lock) = self.directory.tree_lock(serial) else { return Ok(Vec::new()) };
        let _tree_guard = tree_lock.write().await;
        let serials = self.directory.destroy_set(serial, children);
        if serials.is_empty() {
            return Ok(Vec::new());
        }
        let nodes = self.nodes_of(&serials).await?;
        // Descendants first: a node is closed after its last descendant.
        let releases: Vec<Release<'_>> = nodes.iter().rev().map(|node| node.release()).collect();
        if let Err(fault) = self.persist_destroyed(&nodes, by).await {
            releases.into_iter().rev().for_each(Release::roll_back);
            return Err(fault.into());
        }
        releases.into_iter().for_each(Release::confirm);
        let remove = |node: &Arc<LineageNode>| {
            let handle = self.directory.remove(node.serial);
            handle.iter().for_each(AgentHandle::request_end);
            self.output_cache.remove_agent(node.serial);
            self.outside.tools.agent_ended(node.serial);
            handle
        };
        Ok(nodes.iter().rev().map(remove).collect())
    }

    /// Commits the destruction together with the refunds to the ancestors.
    fn persist_destroyed(
        &self,
        nodes: &[Arc<LineageNode>],
        by: &PrincipalId,
    ) -> BoxFuture<'static, Result<(), StoreFault>> {
        let at = self.outside.clock.now();
        let destroyed = |node: &Arc<LineageNode>| Append {
            agent: node.serial,
            agent_id: Some(node.id()),
            at,
            records: vec![Record::Destroyed { by: by.clone() }],
            state: None,
            ledgers: Vec::new(),
        };
        let mut appends: Vec<Append> = nodes.iter().rev().map(destroyed).collect();
        if let (Some(append), Some(parent)) = (appends.last_mut(), &nodes[0].parent) {
            append.ledgers = parent.take_changed_ledgers();
        }
        self.outside.store.append(appends)
    }

    async fn nodes_of(&self, serials: &[Serial]) -> Result<Vec<Arc<LineageNode>>, Fault> {
        let live_node = |serial: &Serial| self.directory.node(*serial);
        if let Some(nodes) = serials.iter().map(live_node).collect() {
            return Ok(nodes);
        }
        let loaded = self.load_agents(serials).await?;
        Ok(serials.iter().filter_map(|serial| loaded.get(serial)).map(|(node, _)| Arc::clone(node)).collect())
    }

    /// Persists the ledgers of the ancestors, which were debited for usage during the destruction.
    pub(crate) fn persist_ancestor_ledgers(
        &self,
        node: &LineageNode,
    ) -> BoxFuture<'static, Result<(), StoreFault>> {
        let append = node.parent.as_ref().map(|parent| Append {
            agent: parent.serial,
            agent_id: Some(parent.id()),
            at: self.outside.clock.now(),
            records: Vec::new(),
            state: None,
            ledgers: parent.take_changed_ledgers(),
        });
        let appends: Vec<Append> = append.into_iter().filter(|append| !append.ledgers.is_empty()).collect();
        match appends.is_empty() {
            true => Box::pin(std::future::ready(Ok(()))),
            false => self.outside.store.append(appends),
        }
    }
}
