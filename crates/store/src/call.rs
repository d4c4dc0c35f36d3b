//! One call of `append`, made ready on the caller's own thread: what is to be written is written down as text, so that
//! whoever keeps it has only to put it in its place.

use agent::journal::Record;
use agent::outside::{Append, StoreFault};

use crate::body::{self, BodyFault};
use crate::digest::{self, Content, Digest, RequestKey};

/// All that is kept together.
pub(crate) struct Call {
    pub(crate) parts: Vec<Part>,
    /// Bytes of all its texts.
    pub(crate) bytes: usize,
}

/// What one agent gives to a call.
pub(crate) struct Part {
    pub(crate) append: Append,
    /// One for each record.
    pub(crate) lines: Vec<Line>,
    pub(crate) state: Option<String>,
    /// One for each ledger.
    pub(crate) ledgers: Vec<String>,
}

/// A record as it is written down, and what else it changes.
pub(crate) struct Line {
    pub(crate) body: String,
    pub(crate) content: Digest,
    pub(crate) change: Change,
}

/// What a record changes beside the journal.
pub(crate) enum Change {
    Nothing,
    Create { record: String, permissions: String },
    Rights(String),
    Rename,
    Destroy,
    Accept { key: RequestKey, content: Digest },
    End(RequestKey),
    Reopen(RequestKey),
}

impl Call {
    /// Writes everything down.
    ///
    /// # Errors
    /// When a number is too large to be written down.
    pub(crate) fn prepare(appends: Vec<Append>) -> Result<Self, StoreFault> {
        check_numbers(&appends)?;
        let parts = appends.into_iter().map(Part::prepare).collect::<Result<Vec<_>, _>>();
        let parts =
            parts.map_err(|fault| StoreFault::Corrupt(format!("it cannot be written down: {fault}")))?;
        let bytes = parts.iter().map(Part::bytes).sum();
        Ok(Self { parts, bytes })
    }

    /// Whether it may be refused after something of it was written, so that this has to be taken back. Changes are
    /// made before entries, so the first change of the only part never is.
    pub(crate) fn may_fail_late(&self) -> bool {
        let [part] = self.parts.as_slice() else { return !self.parts.is_empty() };
        let changes = part.lines.iter().filter(|line| !matches!(line.change, Change::Nothing));
        changes.skip(1).any(|line| match line.change {
            Change::Nothing | Change::Rights(_) | Change::Destroy => false,
            Change::Create { .. }
            | Change::Rename
            | Change::Accept { .. }
            | Change::End(_)
            | Change::Reopen(_) => true,
        })
    }

    /// How many records it has.
    pub(crate) fn records(&self) -> usize {
        self.parts.iter().map(|part| part.lines.len()).sum()
    }
}

impl Part {
    fn prepare(append: Append) -> Result<Self, BodyFault> {
        let lines =
            append.records.iter().map(|record| Line::prepare(&append, record)).collect::<Result<_, _>>()?;
        let state = append.state.as_ref().map(body::write_state).transpose()?;
        let ledgers = append.ledgers.iter().map(|(_, ledger)| body::write_ledger(ledger));
        let ledgers = ledgers.collect::<Result<_, _>>()?;
        Ok(Self { append, lines, state, ledgers })
    }

    fn bytes(&self) -> usize {
        self.lines.iter().map(|line| line.body.len()).sum()
    }
}

/// SQLite's numbers have a sign: what is a column of its own has to fit.
pub(crate) fn check_numbers(appends: &[Append]) -> Result<(), StoreFault> {
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
pub(crate) fn needs_its_agent(record: &Record) -> bool {
    !matches!(record, Record::Denied { .. } | Record::Created(_))
}

/// Whether the daemon itself may have such a record.
pub(crate) fn is_of_the_daemon(record: &Record) -> bool {
    matches!(record, Record::Denied { .. } | Record::DaemonStarted { .. } | Record::DaemonStopped)
}

impl Line {
    fn prepare(append: &Append, record: &Record) -> Result<Self, BodyFault> {
        let change = match record {
            Record::Created(record) => Change::Create {
                record: body::write_agent(record)?,
                permissions: body::write_rights(&record.permissions)?,
            },
            Record::PermissionsChanged { permissions, .. } => Change::Rights(body::write_rights(permissions)?),
            Record::Renamed { .. } => Change::Rename,
            Record::Destroyed { .. } => Change::Destroy,
            Record::TurnAccepted(accepted) => Change::Accept {
                key: digest::request_key(&accepted.request_id),
                content: digest::of_content(&accepted.message),
            },
            Record::TurnEnded { request_id, .. } => Change::End(digest::request_key(request_id)),
            Record::TurnReopened { request_id, .. } => Change::Reopen(digest::request_key(request_id)),
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
            | Record::DaemonStopped => Change::Nothing,
        };
        let body = body::write_record(record)?;
        let name = append.agent_id.as_ref().map_or("", agent::AgentId::as_str);
        let content =
            Content { agent: append.agent, at: append.at.0, name, kind: record.kind(), body: &body };
        Ok(Self { content: content.digest(), body, change })
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

    pub(crate) fn serial_given_before(serial: Serial) -> StoreFault {
        StoreFault::Corrupt(format!("the serial {serial} was given before"))
    }

    pub(crate) fn not_of_the_daemon(kind: &str) -> StoreFault {
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
