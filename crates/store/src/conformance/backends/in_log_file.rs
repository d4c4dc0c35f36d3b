//! A third backend, for tests only: a file with one line per request, executed again by a memory store at each opening.
//! It shows what a new backend needs: a `Store`, and a line in the list of backends.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use agent::RequestId;
use agent::journal::{Record, Serial};
use agent::outside::{
    Append, BoxFuture, ChangeWrite, CommitListener, EntryRange, FileChange, FileChangeStore, FileState,
    IndexRow, JournalBounds, JournalEntry, KeyRange, KeyValueStore, Namespace, NewChanges, Store, StoreFault,
    StoredAgent, StoredTurn, StoredValue, Timestamp, TurnChanges, ValueChange, ValueWrite,
};
use agent::permission::FilePath;
use serde::{Deserialize, Serialize};

use super::Backend;
use crate::codec;
use crate::conformance::folder;
use crate::memory::MemoryStore;

struct InLogFile {
    folder: tempfile::TempDir,
}

pub(crate) fn new() -> Box<dyn Backend> {
    Box::new(InLogFile { folder: folder() })
}

impl Backend for InLogFile {
    fn open(&self) -> Arc<dyn Store> {
        Arc::new(LogFileStore::open(&self.folder.path().join("requests.log")))
    }
}

/// A store that logs each write request before a memory store executes it. A request that was refused is refused again
/// when the log is executed.
struct LogFileStore {
    memory: Arc<MemoryStore>,
    /// None after the close.
    log: Mutex<Option<File>>,
}

/// A line of the log.
#[derive(Serialize, Deserialize)]
enum Request {
    Append(Vec<LoggedAppend>),
    PruneTurns(i64),
    WriteValue(LoggedWrite),
    RecordChanges(LoggedChanges),
}

#[derive(Serialize, Deserialize)]
struct LoggedAppend {
    agent: Serial,
    agent_id: Option<String>,
    at: i64,
    /// Kinds and bodies.
    records: Vec<(String, String)>,
    state: Option<String>,
    ledgers: Vec<(Serial, String)>,
}

impl LoggedAppend {
    fn encode(append: &Append) -> Self {
        let record = |record: &Record| (record.kind().to_owned(), codec::encode_record(record).unwrap());
        let ledgers = append.ledgers.iter();
        Self {
            agent: append.agent,
            agent_id: append.agent_id.as_ref().map(|id| id.as_str().to_owned()),
            at: append.at.0,
            records: append.records.iter().map(record).collect(),
            state: append.state.as_ref().map(|state| codec::encode_state(state).unwrap()),
            ledgers: ledgers.map(|(serial, one)| (*serial, codec::encode_ledger(one).unwrap())).collect(),
        }
    }

    fn decode(self) -> Append {
        let records = self.records.iter();
        let ledgers = self.ledgers.iter();
        Append {
            agent: self.agent,
            agent_id: self.agent_id.map(|id| codec::decode_agent_id(&id).unwrap()),
            at: Timestamp(self.at),
            records: records.map(|(kind, body)| codec::decode_record(kind, body).unwrap()).collect(),
            state: self.state.map(|state| codec::decode_state(&state).unwrap()),
            ledgers: ledgers.map(|(serial, one)| (*serial, codec::decode_ledger(one).unwrap())).collect(),
        }
    }
}

/// A write: the serial of the tree's root, the key, the time, and the JSON text and expiry if it stores a value.
#[derive(Serialize, Deserialize)]
struct LoggedWrite(Option<Serial>, String, i64, Option<(String, Option<i64>)>);

impl LoggedWrite {
    fn encode(write: &ValueWrite) -> Self {
        let root = match write.namespace {
            Namespace::User => None,
            Namespace::Tree(root) => Some(root),
        };
        let change = match &write.change {
            ValueChange::Store { json, expires_at } => {
                Some((json.clone(), expires_at.map(|expiry| expiry.0)))
            }
            ValueChange::Delete => None,
        };
        Self(root, write.key.clone(), write.at.0, change)
    }

    fn decode(self) -> ValueWrite {
        let Self(root, key, at, change) = self;
        let change = match change {
            Some((json, expires_at)) => ValueChange::Store { json, expires_at: expires_at.map(Timestamp) },
            None => ValueChange::Delete,
        };
        let namespace = root.map_or(Namespace::User, Namespace::Tree);
        ValueWrite { namespace, key, at: Timestamp(at), change }
    }
}

/// The agent and the turn of file changes, and the changes or why there are none.
#[derive(Serialize, Deserialize)]
struct LoggedChanges(Serial, u64, Result<Vec<LoggedChange>, String>);

/// A change: its path, the mode, content and link target before, and the digests.
#[derive(Serialize, Deserialize)]
struct LoggedChange(String, (Option<u32>, Option<Vec<u8>>, Option<String>), [[u8; 32]; 2]);

impl LoggedChanges {
    fn encode(write: &ChangeWrite) -> Self {
        let encode = |change: &FileChange| {
            let before = match &change.before {
                FileState::Absent => (None, None, None),
                FileState::Directory { mode } => (Some(*mode), None, None),
                FileState::File { mode, content } => (Some(*mode), Some(content.clone()), None),
                FileState::Link { target } => (None, None, Some(target.clone())),
            };
            LoggedChange(change.path.to_string(), before, [change.last_before, change.after])
        };
        let changes = match &write.changes {
            NewChanges::Recorded(changes) => Ok(changes.iter().map(encode).collect()),
            NewChanges::NotUndoable(why) => Err(why.clone()),
        };
        Self(write.agent, write.turn, changes)
    }

    fn decode(self) -> ChangeWrite {
        let Self(agent, turn, changes) = self;
        let decode = |LoggedChange(path, before, [last_before, after])| {
            let path = FilePath::resolve(&path, &FilePath::root()).unwrap();
            let before = match before {
                (Some(mode), Some(content), _) => FileState::File { mode, content },
                (Some(mode), None, _) => FileState::Directory { mode },
                (None, _, Some(target)) => FileState::Link { target },
                (None, _, None) => FileState::Absent,
            };
            FileChange { path, before, last_before, after }
        };
        let changes = match changes {
            Ok(changes) => NewChanges::Recorded(changes.into_iter().map(decode).collect()),
            Err(why) => NewChanges::NotUndoable(why),
        };
        ChangeWrite { agent, turn, changes }
    }
}

impl LogFileStore {
    fn open(path: &Path) -> Self {
        let memory = crate::memory();
        for line in std::fs::read_to_string(path).unwrap_or_default().lines() {
            // The memory store executes a request at once; its future only has the result.
            match serde_json::from_str(line).unwrap() {
                Request::Append(appends) => {
                    drop(memory.append(appends.into_iter().map(LoggedAppend::decode).collect()));
                }
                Request::PruneTurns(before) => drop(memory.prune_turns(Timestamp(before))),
                Request::WriteValue(write) => drop(memory.write_value(write.decode())),
                Request::RecordChanges(write) => drop(memory.record_changes(write.decode())),
            }
        }
        let log = OpenOptions::new().append(true).create(true).open(path).unwrap();
        Self { memory, log: Mutex::new(Some(log)) }
    }

    /// Logs a request; returns the lock, under which it is to be executed.
    fn log(&self, request: &Request) -> MutexGuard<'_, Option<File>> {
        let mut log = self.log.lock().unwrap();
        if let Some(file) = &mut *log {
            writeln!(file, "{}", serde_json::to_string(request).unwrap()).unwrap();
        }
        log
    }
}

impl KeyValueStore for LogFileStore {
    fn write_value(&self, write: ValueWrite) -> BoxFuture<'static, Result<bool, StoreFault>> {
        let _log = self.log(&Request::WriteValue(LoggedWrite::encode(&write)));
        self.memory.write_value(write)
    }

    fn value(
        &self,
        namespace: Namespace,
        key: String,
        at: Timestamp,
    ) -> BoxFuture<'_, Result<Option<StoredValue>, StoreFault>> {
        self.memory.value(namespace, key, at)
    }

    fn keys(&self, range: KeyRange) -> BoxFuture<'_, Result<Vec<String>, StoreFault>> {
        self.memory.keys(range)
    }
}

impl FileChangeStore for LogFileStore {
    fn record_changes(&self, write: ChangeWrite) -> BoxFuture<'static, Result<(), StoreFault>> {
        let _log = self.log(&Request::RecordChanges(LoggedChanges::encode(&write)));
        self.memory.record_changes(write)
    }

    fn turn_changes(
        &self,
        agent: Serial,
        turn: Option<u64>,
    ) -> BoxFuture<'_, Result<Option<TurnChanges>, StoreFault>> {
        self.memory.turn_changes(agent, turn)
    }
}

impl Store for LogFileStore {
    fn append(&self, appends: Vec<Append>) -> BoxFuture<'static, Result<(), StoreFault>> {
        let _log = self.log(&Request::Append(appends.iter().map(LoggedAppend::encode).collect()));
        self.memory.append(appends)
    }

    fn index(&self) -> BoxFuture<'_, Result<Vec<IndexRow>, StoreFault>> {
        self.memory.index()
    }

    fn last_serial(&self) -> BoxFuture<'_, Result<Serial, StoreFault>> {
        self.memory.last_serial()
    }

    fn agents(&self, serials: Vec<Serial>) -> BoxFuture<'_, Result<Vec<StoredAgent>, StoreFault>> {
        self.memory.agents(serials)
    }

    fn history(&self, agent: Serial) -> BoxFuture<'_, Result<Vec<Record>, StoreFault>> {
        self.memory.history(agent)
    }

    fn agents_with_open_turns(&self) -> BoxFuture<'_, Result<Vec<Serial>, StoreFault>> {
        self.memory.agents_with_open_turns()
    }

    fn turn(
        &self,
        agent: Serial,
        request_id: RequestId,
    ) -> BoxFuture<'_, Result<Option<StoredTurn>, StoreFault>> {
        self.memory.turn(agent, request_id)
    }

    fn read(&self, range: EntryRange) -> BoxFuture<'_, Result<Vec<Arc<JournalEntry>>, StoreFault>> {
        self.memory.read(range)
    }

    fn bounds(&self) -> BoxFuture<'_, Result<JournalBounds, StoreFault>> {
        self.memory.bounds()
    }

    fn prune_turns(&self, before: Timestamp) -> BoxFuture<'static, Result<u64, StoreFault>> {
        let _log = self.log(&Request::PruneTurns(before.0));
        self.memory.prune_turns(before)
    }

    fn set_listener(&self, listener: Arc<dyn CommitListener>) {
        self.memory.set_listener(listener);
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        *self.log.lock().unwrap() = None;
        self.memory.close()
    }
}
