//! Agents as the journal describes them, to compare the rows of the `agents` table with. Holds digests, because a store
//! may have very many agents.

use std::collections::HashMap;

use agent::AgentId;
use agent::journal::{AgentRecord, Record, Serial, StoredPermissions};

use crate::codec::{self, CodecFault};
use crate::digest::{Digest, digest_text};

/// The agents of a journal that were not destroyed, or have descendants.
#[derive(Default)]
pub(super) struct JournaledAgents {
    agents: HashMap<Serial, JournaledAgent>,
}

struct JournaledAgent {
    id: AgentId,
    /// Without id and permissions, which change.
    record: Digest,
    permissions: Digest,
    is_destroyed: bool,
}

impl JournaledAgents {
    /// Applies the next record of the journal.
    pub(super) fn apply(&mut self, serial: Serial, record: &Record) -> Result<(), CodecFault> {
        if let Record::Created(record) = record {
            let agent = JournaledAgent {
                id: record.id.clone(),
                record: record_digest(record)?,
                permissions: permissions_digest(&record.permissions)?,
                is_destroyed: false,
            };
            self.agents.insert(serial, agent);
        }
        let Some(agent) = self.agents.get_mut(&serial) else { return Ok(()) };
        match record {
            Record::PermissionsChanged { permissions, .. } => {
                agent.permissions = permissions_digest(permissions)?;
            }
            Record::Renamed { id, .. } => agent.id = id.clone(),
            Record::Destroyed { .. } => agent.is_destroyed = true,
            _ => {}
        }
        Ok(())
    }

    /// Returns what a row and the journal disagree on.
    pub(super) fn difference(
        &self,
        serial: Serial,
        row: &AgentRecord,
        is_destroyed: bool,
    ) -> Result<Option<&'static str>, CodecFault> {
        let Some(agent) = self.agents.get(&serial) else {
            return Ok(Some("its creation is not in the journal"));
        };
        Ok(if agent.permissions != permissions_digest(&row.permissions)? {
            Some("its permissions are not those in the journal")
        } else if agent.record != record_digest(row)? {
            Some("its record is not the one in the journal")
        } else if agent.id != row.id {
            Some("its id is not the one in the journal")
        } else if agent.is_destroyed != is_destroyed {
            Some("its row and the journal disagree on whether it was destroyed")
        } else {
            None
        })
    }
}

fn record_digest(record: &AgentRecord) -> Result<Digest, CodecFault> {
    let record = AgentRecord { id: AgentId::main(), ..record.clone() };
    codec::encode_agent(&record).map(|text| digest_text(&text))
}

fn permissions_digest(permissions: &StoredPermissions) -> Result<Digest, CodecFault> {
    codec::encode_permissions(permissions).map(|text| digest_text(&text))
}
