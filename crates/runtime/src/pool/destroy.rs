//! Ending agents: first it is kept that they are gone, then they go.

use std::sync::Arc;

use agent::Fault;
use agent::journal::{Record, Serial};
use agent::outside::{Append, BoxFuture, StoreFault};

use super::{ChildPolicy, Pool};
use crate::handle::AgentHandle;
use crate::lineage::{LineageNode, Release};

impl Pool {
    /// Whoever left, with the handles of those that were live. Nobody when the agent is not there.
    pub(super) async fn destroy(
        self: &Arc<Self>,
        serial: Serial,
        children: ChildPolicy,
        by: &str,
    ) -> Result<Vec<Option<AgentHandle>>, Fault> {
        let _alone = self.tree_lock.write().await;
        let leaving = self.directory.destroy_set(serial, children);
        if leaving.is_empty() {
            return Ok(Vec::new());
        }
        let kins = self.nodes_of(&leaving).await?;
        // Those below first: whoever is above is forgotten with the last of them.
        let dismissals: Vec<Release<'_>> = kins.iter().rev().map(|kin| kin.release()).collect();
        if let Err(fault) = self.persist_destroyed(&kins, by).await {
            dismissals.into_iter().rev().for_each(Release::roll_back);
            return Err(fault.into());
        }
        dismissals.into_iter().for_each(Release::confirm);
        let leave = |kin: &Arc<LineageNode>| {
            let handle = self.directory.remove(kin.serial);
            handle.iter().for_each(AgentHandle::request_end);
            self.output_cache.remove_agent(kin.serial);
            handle
        };
        Ok(kins.iter().rev().map(leave).collect())
    }

    /// Keeps that they are gone, and with it what was set aside for them and has gone back to whoever is above.
    fn persist_destroyed(
        &self,
        kins: &[Arc<LineageNode>],
        by: &str,
    ) -> BoxFuture<'static, Result<(), StoreFault>> {
        let at = self.outside.clock.now();
        let gone = |kin: &Arc<LineageNode>| Append {
            agent: kin.serial,
            agent_id: Some(kin.id()),
            at,
            records: vec![Record::Destroyed { by: by.to_owned() }],
            state: None,
            ledgers: Vec::new(),
        };
        let mut appends: Vec<Append> = kins.iter().rev().map(gone).collect();
        if let (Some(append), Some(parent)) = (appends.last_mut(), &kins[0].parent) {
            append.ledgers = parent.take_changed_ledgers();
        }
        self.outside.store.append(appends)
    }

    async fn nodes_of(&self, serials: &[Serial]) -> Result<Vec<Arc<LineageNode>>, Fault> {
        let here = |serial: &Serial| self.directory.node(*serial);
        if let Some(kins) = serials.iter().map(here).collect() {
            return Ok(kins);
        }
        let loaded = self.load_agents(serials).await?;
        Ok(serials.iter().filter_map(|serial| loaded.get(serial)).map(|(kin, _)| Arc::clone(kin)).collect())
    }

    /// What a turn used while its agent went was paid by whoever is above.
    pub(crate) fn persist_ancestor_ledgers(
        &self,
        kin: &LineageNode,
    ) -> BoxFuture<'static, Result<(), StoreFault>> {
        let append = kin.parent.as_ref().map(|parent| Append {
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
