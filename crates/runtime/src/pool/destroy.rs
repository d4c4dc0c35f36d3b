//! Ending agents: first it is kept that they are gone, then they go.

use std::sync::Arc;

use agent::Fault;
use agent::journal::{Record, Serial};
use agent::outside::{Append, Doing, StoreFault};

use super::{Children, Pool};
use crate::handle::AgentHandle;
use crate::kin::Kin;

impl Pool {
    /// Whoever left, with the handles of those that were live. Nobody when the agent is not there.
    pub(super) async fn destroy(
        self: &Arc<Self>,
        serial: Serial,
        children: Children,
        by: &str,
    ) -> Result<Vec<Option<AgentHandle>>, Fault> {
        let _alone = self.tree.write().await;
        let leaving = self.directory.leaving(serial, children);
        if leaving.is_empty() {
            return Ok(Vec::new());
        }
        let kins = self.kins_of(&leaving).await?;
        let at = self.outside.clock.now();
        let gone = |kin: &Arc<Kin>| Append {
            agent: kin.serial,
            name: Some(kin.id()),
            at,
            records: vec![Record::Destroyed { by: by.to_owned() }],
            state: None,
            ledgers: Vec::new(),
        };
        // Those below first: whoever is above is forgotten with the last of them.
        self.outside.store.append(kins.iter().rev().map(gone).collect()).await?;
        let mut left = Vec::new();
        for kin in kins.iter().rev() {
            let handle = self.directory.remove(kin);
            handle.iter().for_each(AgentHandle::begin_end);
            left.push(handle);
        }
        // They are gone whether or not this is kept; it is kept with the next thing that happens above.
        if let Err(fault) = self.keep_ledgers_above(&kins[0]).await {
            tracing::warn!("what was given back could not be kept: {fault}");
        }
        Ok(left)
    }

    async fn kins_of(&self, serials: &[Serial]) -> Result<Vec<Arc<Kin>>, Fault> {
        let here = |serial: &Serial| self.directory.kin(*serial);
        if let Some(kins) = serials.iter().map(here).collect() {
            return Ok(kins);
        }
        let loaded = self.load(serials).await?;
        Ok(serials.iter().filter_map(|serial| loaded.get(serial)).map(|(kin, _)| Arc::clone(kin)).collect())
    }

    /// What was set aside for those who left has gone back to whoever is above.
    pub(crate) fn keep_ledgers_above(&self, kin: &Kin) -> Doing<'static, Result<(), StoreFault>> {
        let append = kin.parent.as_ref().map(|parent| Append {
            agent: parent.serial,
            name: Some(parent.id()),
            at: self.outside.clock.now(),
            records: Vec::new(),
            state: None,
            ledgers: parent.ledgers_to_keep(),
        });
        let appends: Vec<Append> = append.into_iter().filter(|append| !append.ledgers.is_empty()).collect();
        match appends.is_empty() {
            true => Box::pin(std::future::ready(Ok(()))),
            false => self.outside.store.append(appends),
        }
    }
}
