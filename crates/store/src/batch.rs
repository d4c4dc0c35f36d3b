//! Batches of appends, encoded on the caller's thread so that the writer thread only has to insert rows. Also holds the
//! validation and the refusals that the SQLite and the memory store share.

use agent::journal::{AgentRecord, Record, Serial};
use agent::outside::{Append, StoreFault};

use crate::codec::{self, CodecFault};
use crate::digest::{self, Digest, EntryContent, RequestKey};

/// An encoded `append` call, committed as a whole or not at all.
pub(crate) struct PreparedBatch {
    pub(crate) appends: Vec<PreparedAppend>,
    /// Total size of the encoded records.
    pub(crate) bytes: usize,
}

/// One agent's part of a batch.
pub(crate) struct PreparedAppend {
    pub(crate) append: Append,
    /// One for each record.
    pub(crate) encoded_records: Vec<EncodedRecord>,
    pub(crate) state: Option<String>,
    /// One for each ledger.
    pub(crate) ledgers: Vec<String>,
}

/// A journal record as JSON text, with its digest and the row update it implies.
pub(crate) struct EncodedRecord {
    pub(crate) body: String,
    pub(crate) content_digest: Digest,
    pub(crate) row_update: RowUpdate,
}

/// The change a record makes to the `agents` or `turns` table, beside its journal entry.
pub(crate) enum RowUpdate {
    Unchanged,
    Create { record: String, permissions: String },
    SetPermissions(String),
    Rename,
    Destroy,
    AcceptTurn { key: RequestKey, content_digest: Digest },
    EndTurn(RequestKey),
    ReopenTurn(RequestKey),
    UndoTurn,
}

impl PreparedBatch {
    /// Encodes all appends.
    ///
    /// # Errors
    /// When a number does not fit a SQLite integer, or a record cannot be encoded.
    pub(crate) fn prepare(appends: Vec<Append>) -> Result<Self, StoreFault> {
        check_integer_range(&appends)?;
        let prepared = appends.into_iter().map(PreparedAppend::prepare).collect::<Result<Vec<_>, _>>();
        let prepared =
            prepared.map_err(|fault| StoreFault::Corrupt(format!("record cannot be encoded: {fault}")))?;
        let bytes = prepared.iter().map(PreparedAppend::bytes).sum();
        Ok(Self { appends: prepared, bytes })
    }

    /// Whether the batch can be refused after some of its rows were written, so that it needs a savepoint to roll back
    /// to. Row updates run before the entries are inserted, so a refusal by the first row update of the first append
    /// comes before any row is written.
    pub(crate) fn needs_savepoint(&self) -> bool {
        let [append] = self.appends.as_slice() else { return !self.appends.is_empty() };
        let records = append.encoded_records.iter();
        let updates = records.filter(|record| !matches!(record.row_update, RowUpdate::Unchanged));
        updates.skip(1).any(|record| match record.row_update {
            RowUpdate::Unchanged
            | RowUpdate::SetPermissions(_)
            | RowUpdate::Destroy
            | RowUpdate::UndoTurn => false,
            RowUpdate::Create { .. }
            | RowUpdate::Rename
            | RowUpdate::AcceptTurn { .. }
            | RowUpdate::EndTurn(_)
            | RowUpdate::ReopenTurn(_) => true,
        })
    }

    /// Number of records in all appends.
    pub(crate) fn record_count(&self) -> usize {
        self.appends.iter().map(|append| append.encoded_records.len()).sum()
    }
}

impl PreparedAppend {
    fn prepare(append: Append) -> Result<Self, CodecFault> {
        let encoded_records = append
            .records
            .iter()
            .map(|record| EncodedRecord::encode(&append, record))
            .collect::<Result<_, _>>()?;
        let state = append.state.as_ref().map(codec::encode_state).transpose()?;
        let ledgers = append.ledgers.iter().map(|(_, ledger)| codec::encode_ledger(ledger));
        let ledgers = ledgers.collect::<Result<_, _>>()?;
        Ok(Self { append, encoded_records, state, ledgers })
    }

    fn bytes(&self) -> usize {
        self.encoded_records.iter().map(|record| record.body.len()).sum()
    }
}

/// Checks that every number stored in a column of its own fits SQLite's signed 64-bit integers.
pub(crate) fn check_integer_range(appends: &[Append]) -> Result<(), StoreFault> {
    let numbers = appends.iter().flat_map(|append| {
        let turns = append.records.iter().map(|record| match record {
            Record::TurnAccepted(accepted) => accepted.turn,
            Record::TurnUndone { turn, .. } => *turn,
            Record::Created(record) => record.parent.unwrap_or_default(),
            _ => 0,
        });
        let ledgers = append.ledgers.iter().map(|(serial, ledger)| *serial.max(&ledger.version));
        turns.chain(ledgers).chain([append.agent])
    });
    match numbers.max() {
        Some(number) if i64::try_from(number).is_err() => Err(refusal::too_large(number)),
        _ => Ok(()),
    }
}

/// Whether the record needs a live agent. A denial is recorded even after its agent was destroyed, and a created agent
/// does not exist before its record.
pub(crate) fn requires_live_agent(record: &Record) -> bool {
    !matches!(record, Record::Denied { .. } | Record::Created(_))
}

/// Returns the parent that a record names although it is not older than the agent. Serials ascend, so that parents never
/// form a cycle.
pub(crate) fn later_parent(agent: Serial, record: &AgentRecord) -> Option<Serial> {
    record.parent.filter(|parent| *parent >= agent)
}

/// Whether the record may belong to the daemon instead of an agent.
pub(crate) fn is_daemon_record(record: &Record) -> bool {
    matches!(record, Record::Denied { .. } | Record::DaemonStarted { .. } | Record::DaemonStopped)
}

impl EncodedRecord {
    fn encode(append: &Append, record: &Record) -> Result<Self, CodecFault> {
        let row_update = match record {
            Record::Created(record) => RowUpdate::Create {
                record: codec::encode_agent(record)?,
                permissions: codec::encode_permissions(&record.permissions)?,
            },
            Record::PermissionsChanged { permissions, .. } => {
                RowUpdate::SetPermissions(codec::encode_permissions(permissions)?)
            }
            Record::Renamed { .. } => RowUpdate::Rename,
            Record::Destroyed { .. } => RowUpdate::Destroy,
            Record::TurnAccepted(accepted) => RowUpdate::AcceptTurn {
                key: digest::request_key(&accepted.request_id),
                content_digest: digest::digest_content(&accepted.message),
            },
            Record::TurnEnded { request_id, .. } => RowUpdate::EndTurn(digest::request_key(request_id)),
            Record::TurnReopened { request_id, .. } => RowUpdate::ReopenTurn(digest::request_key(request_id)),
            Record::TurnUndone { .. } => RowUpdate::UndoTurn,
            Record::Finished { .. }
            | Record::TurnBegun { .. }
            | Record::MessageAdded(_)
            | Record::Steered { .. }
            | Record::CallBegun { .. }
            | Record::CallDone { .. }
            | Record::ApprovalRequested(_)
            | Record::ApprovalAnswered(_)
            | Record::RolledBack { .. }
            | Record::Compacted(_)
            | Record::Denied { .. }
            | Record::DaemonStarted { .. }
            | Record::DaemonStopped => RowUpdate::Unchanged,
        };
        let body = codec::encode_record(record)?;
        let agent_id = append.agent_id.as_ref().map_or("", agent::AgentId::as_str);
        let content =
            EntryContent { agent: append.agent, at: append.at.0, agent_id, kind: record.kind(), body: &body };
        Ok(Self { content_digest: content.digest(), body, row_update })
    }
}

/// Refusals that both stores return with equal texts.
pub(crate) mod refusal {
    use agent::journal::Serial;
    use agent::outside::StoreFault;

    pub(crate) fn no_agent() -> StoreFault {
        StoreFault::NotFound
    }

    pub(crate) fn no_parent(serial: Serial) -> StoreFault {
        StoreFault::Corrupt(format!("parent agent {serial} does not exist"))
    }

    pub(crate) fn later_parent(serial: Serial) -> StoreFault {
        StoreFault::Corrupt(format!("parent agent {serial} was not created before its child"))
    }

    pub(crate) fn serial_reused(serial: Serial) -> StoreFault {
        StoreFault::Corrupt(format!("agent serial {serial} was used before"))
    }

    pub(crate) fn invalid_for_daemon(kind: &str) -> StoreFault {
        StoreFault::Corrupt(format!("{kind} cannot belong to the daemon"))
    }

    pub(crate) fn no_open_turn() -> StoreFault {
        StoreFault::Corrupt("no open turn with this request id".to_owned())
    }

    pub(crate) fn no_turn() -> StoreFault {
        StoreFault::Corrupt("no turn with this request id".to_owned())
    }

    pub(crate) fn too_large(number: u64) -> StoreFault {
        StoreFault::Corrupt(format!("number {number} exceeds a signed 64-bit integer"))
    }

    pub(crate) fn closed() -> StoreFault {
        StoreFault::Closed
    }
}
