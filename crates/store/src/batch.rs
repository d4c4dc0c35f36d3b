//! One call of `append`, made ready on the caller's own thread: what is to be written is written down as text, so that
//! whoever keeps it has only to put it in its place.

use agent::journal::Record;
use agent::outside::{Append, StoreFault};

use crate::codec::{self, CodecFault};
use crate::digest::{self, Digest, EntryContent, RequestKey};

/// All that is kept together.
pub(crate) struct PreparedBatch {
    pub(crate) appends: Vec<PreparedAppend>,
    /// Bytes of all its texts.
    pub(crate) bytes: usize,
}

/// What one agent gives to a call.
pub(crate) struct PreparedAppend {
    pub(crate) append: Append,
    /// One for each record.
    pub(crate) encoded_records: Vec<EncodedRecord>,
    pub(crate) state: Option<String>,
    /// One for each ledger.
    pub(crate) ledgers: Vec<String>,
}

/// A record as it is written down, and what else it changes.
pub(crate) struct EncodedRecord {
    pub(crate) body: String,
    pub(crate) content_digest: Digest,
    pub(crate) row_update: RowUpdate,
}

/// What a record changes beside the journal.
pub(crate) enum RowUpdate {
    Unchanged,
    Create { record: String, permissions: String },
    SetPermissions(String),
    Rename,
    Destroy,
    AcceptTurn { key: RequestKey, content_digest: Digest },
    EndTurn(RequestKey),
    ReopenTurn(RequestKey),
}

impl PreparedBatch {
    /// Writes everything down.
    ///
    /// # Errors
    /// When a number is too large to be written down.
    pub(crate) fn prepare(appends: Vec<Append>) -> Result<Self, StoreFault> {
        check_integer_range(&appends)?;
        let parts = appends.into_iter().map(PreparedAppend::prepare).collect::<Result<Vec<_>, _>>();
        let parts =
            parts.map_err(|fault| StoreFault::Corrupt(format!("it cannot be written down: {fault}")))?;
        let bytes = parts.iter().map(PreparedAppend::bytes).sum();
        Ok(Self { appends: parts, bytes })
    }

    /// Whether it may be refused after something of it was written, so that this has to be taken back. Changes are
    /// made before entries, so the first change of the only part never is.
    pub(crate) fn needs_savepoint(&self) -> bool {
        let [part] = self.appends.as_slice() else { return !self.appends.is_empty() };
        let changes =
            part.encoded_records.iter().filter(|line| !matches!(line.row_update, RowUpdate::Unchanged));
        changes.skip(1).any(|line| match line.row_update {
            RowUpdate::Unchanged | RowUpdate::SetPermissions(_) | RowUpdate::Destroy => false,
            RowUpdate::Create { .. }
            | RowUpdate::Rename
            | RowUpdate::AcceptTurn { .. }
            | RowUpdate::EndTurn(_)
            | RowUpdate::ReopenTurn(_) => true,
        })
    }

    /// How many records it has.
    pub(crate) fn record_count(&self) -> usize {
        self.appends.iter().map(|part| part.encoded_records.len()).sum()
    }
}

impl PreparedAppend {
    fn prepare(append: Append) -> Result<Self, CodecFault> {
        let lines = append
            .records
            .iter()
            .map(|record| EncodedRecord::encode(&append, record))
            .collect::<Result<_, _>>()?;
        let state = append.state.as_ref().map(codec::encode_state).transpose()?;
        let ledgers = append.ledgers.iter().map(|(_, ledger)| codec::encode_ledger(ledger));
        let ledgers = ledgers.collect::<Result<_, _>>()?;
        Ok(Self { append, encoded_records: lines, state, ledgers })
    }

    fn bytes(&self) -> usize {
        self.encoded_records.iter().map(|line| line.body.len()).sum()
    }
}

/// SQLite's numbers have a sign: what is a column of its own has to fit.
pub(crate) fn check_integer_range(appends: &[Append]) -> Result<(), StoreFault> {
    let numbers = appends.iter().flat_map(|append| {
        let turns = append.records.iter().map(|record| match record {
            Record::TurnAccepted(accepted) => accepted.turn,
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

/// Whether the agent has to be there for this to happen to it. A denial may come after the agent has gone, and is kept
/// all the same; whoever is created is not there yet.
pub(crate) fn requires_live_agent(record: &Record) -> bool {
    !matches!(record, Record::Denied { .. } | Record::Created(_))
}

/// Whether the daemon itself may have such a record.
pub(crate) fn is_daemon_record(record: &Record) -> bool {
    matches!(record, Record::Denied { .. } | Record::DaemonStarted { .. } | Record::DaemonStopped)
}

impl EncodedRecord {
    fn encode(append: &Append, record: &Record) -> Result<Self, CodecFault> {
        let change = match record {
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
            Record::Finished { .. }
            | Record::TurnBegun { .. }
            | Record::MessageAdded(_)
            | Record::Steered { .. }
            | Record::CallBegun { .. }
            | Record::CallDone { .. }
            | Record::RolledBack { .. }
            | Record::Compacted(_)
            | Record::Denied { .. }
            | Record::DaemonStarted { .. }
            | Record::DaemonStopped => RowUpdate::Unchanged,
        };
        let body = codec::encode_record(record)?;
        let name = append.agent_id.as_ref().map_or("", agent::AgentId::as_str);
        let content =
            EntryContent { agent: append.agent, at: append.at.0, name, kind: record.kind(), body: &body };
        Ok(Self { content_digest: content.digest(), body, row_update: change })
    }
}

/// The refusals that both stores give, in the same words.
pub(crate) mod refusal {
    use agent::journal::Serial;
    use agent::outside::StoreFault;

    pub(crate) fn no_agent() -> StoreFault {
        StoreFault::NotFound
    }

    pub(crate) fn no_parent(serial: Serial) -> StoreFault {
        StoreFault::Corrupt(format!("there is no parent {serial}"))
    }

    pub(crate) fn serial_reused(serial: Serial) -> StoreFault {
        StoreFault::Corrupt(format!("the serial {serial} was given before"))
    }

    pub(crate) fn invalid_for_daemon(kind: &str) -> StoreFault {
        StoreFault::Corrupt(format!("the daemon itself has no {kind}"))
    }

    pub(crate) fn no_open_turn() -> StoreFault {
        StoreFault::Corrupt("there is no open turn of that name".to_owned())
    }

    pub(crate) fn no_turn() -> StoreFault {
        StoreFault::Corrupt("there is no turn of that name".to_owned())
    }

    pub(crate) fn too_large(number: u64) -> StoreFault {
        StoreFault::Corrupt(format!("{number} is too large a number"))
    }

    pub(crate) fn closed() -> StoreFault {
        StoreFault::Failed("the store is closed".to_owned())
    }
}
