//! The bounded way from the threads that log to the one that writes. Whoever logs never waits: what does not fit is
//! dropped and counted, and the count travels with the next record that fits.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::record::{AgentDirectory, LogStream, StreamKey};

/// Streams whose losses are counted one by one; those of further streams are only counted together.
const STREAMS_COUNTED_MAX: usize = 4_096;

/// How much may wait to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueLimits {
    pub(crate) records_max: usize,
    pub(crate) bytes_max: usize,
}

/// What the writer is asked to do.
#[derive(Debug)]
pub(crate) enum WriterCommand {
    Write(LogRecord),
    /// An id that is no directory's name, escaped.
    InvalidAgentId(String),
    Stop,
}

/// One record on its way.
#[derive(Debug)]
pub(crate) struct LogRecord {
    pub(crate) key: StreamKey,
    pub(crate) text: String,
    /// Records of the same stream that were dropped just before this one.
    pub(crate) dropped_before: u64,
}

/// The logging side.
#[derive(Debug, Clone)]
pub(crate) struct LogSender {
    commands: SyncSender<WriterCommand>,
    shared: Arc<Shared>,
}

/// The writer's side.
#[derive(Debug)]
pub(crate) struct LogReceiver {
    pub(crate) commands: Receiver<WriterCommand>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    bytes: AtomicUsize,
    bytes_max: usize,
    /// Spares the lock as long as nothing is lost, which is nearly always.
    has_dropped: AtomicBool,
    dropped: Mutex<DroppedCounts>,
}

/// What was dropped and not yet told.
#[derive(Debug, Default)]
pub(crate) struct DroppedCounts {
    pub(crate) by_stream: HashMap<StreamKey, u64>,
    pub(crate) other_streams: u64,
}

pub(crate) fn channel(limits: QueueLimits) -> (LogSender, LogReceiver) {
    let (sender, receiver) = sync_channel(limits.records_max);
    let shared = Arc::new(Shared {
        bytes: AtomicUsize::new(0),
        bytes_max: limits.bytes_max,
        has_dropped: AtomicBool::new(false),
        dropped: Mutex::default(),
    });
    (LogSender { commands: sender, shared: Arc::clone(&shared) }, LogReceiver { commands: receiver, shared })
}

impl LogSender {
    /// Hands a record over, or drops it when there is no room.
    pub(crate) fn send(&self, agent: AgentDirectory, stream: LogStream, text: String) {
        let key = StreamKey { agent, stream };
        let lost_before = self.shared.take_dropped(&key);
        let bytes = text.len();
        if !self.shared.reserve(bytes) {
            return self.shared.add_dropped(key, lost_before + 1);
        }
        match self.commands.try_send(WriterCommand::Write(LogRecord {
            key,
            text,
            dropped_before: lost_before,
        })) {
            Err(TrySendError::Full(WriterCommand::Write(record))) => {
                self.shared.release(bytes);
                self.shared.add_dropped(record.key, lost_before + 1);
            }
            // A writer that has stopped needs no account of what comes after.
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }

    /// Tells the writer of an id that cannot be a directory; under pressure this is the first thing to go.
    pub(crate) fn report_invalid_id(&self, id: String) {
        let _ = self.commands.try_send(WriterCommand::InvalidAgentId(id));
    }

    /// Asks the writer to stop after everything sent so far. Waits for room.
    pub(crate) fn stop(&self) {
        // Fails only when the writer is gone already.
        let _ = self.commands.send(WriterCommand::Stop);
    }
}

impl LogReceiver {
    /// Gives back the room of records that are written.
    pub(crate) fn release(&self, bytes: usize) {
        self.shared.release(bytes);
    }

    /// Everything dropped that no later record has told of.
    pub(crate) fn take_all_dropped(&self) -> DroppedCounts {
        if !self.shared.has_dropped.load(Ordering::Acquire) {
            return DroppedCounts::default();
        }
        let mut lost = self.shared.lock_dropped();
        self.shared.has_dropped.store(false, Ordering::Release);
        std::mem::take(&mut *lost)
    }
}

impl Shared {
    fn reserve(&self, bytes: usize) -> bool {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        // A record larger than the whole queue still goes through when it is alone.
        let fits = before == 0 || before.saturating_add(bytes) <= self.bytes_max;
        if !fits {
            self.release(bytes);
        }
        fits
    }

    fn release(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn take_dropped(&self, key: &StreamKey) -> u64 {
        if !self.has_dropped.load(Ordering::Acquire) {
            return 0;
        }
        self.lock_dropped().by_stream.remove(key).unwrap_or(0)
    }

    fn add_dropped(&self, key: StreamKey, count: u64) {
        let mut lost = self.lock_dropped();
        if lost.by_stream.len() < STREAMS_COUNTED_MAX || lost.by_stream.contains_key(&key) {
            *lost.by_stream.entry(key).or_insert(0) += count;
        } else {
            lost.other_streams += count;
        }
        self.has_dropped.store(true, Ordering::Release);
    }

    fn lock_dropped(&self) -> MutexGuard<'_, DroppedCounts> {
        // Counters are whole after every statement, so a panic elsewhere leaves nothing half done.
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
