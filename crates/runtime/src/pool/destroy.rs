//! Ending agents: first it is kept that they are gone, then they go.

use std::sync::Arc;

use agent::Fault;
use agent::journal::{Record, Serial};
use agent::outside::Append;

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
        self.keep_ledgers_above(&kins[0]);
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
    pub(crate) fn keep_ledgers_above(&self, kin: &Kin) {
        let Some(parent) = &kin.parent else { return };
        let (ledgers, at) = (parent.ledgers_to_keep(), self.outside.clock.now());
        if ledgers.is_empty() {
            return;
        }
        let name = Some(parent.id());
        let append = Append { agent: parent.serial, name, at, records: Vec::new(), state: None, ledgers };
        drop(self.outside.store.append(vec![append]));
    }
}
