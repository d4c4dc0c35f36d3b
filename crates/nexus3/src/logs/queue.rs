//! Bounded queue from the logging threads to the writer's thread. A logging thread never blocks: records that do not
//! fit are dropped and counted, and the next record that fits carries the count.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::record::{AgentDirectory, LogStream, StreamKey};

/// Streams with a drop counter of their own; drops of further streams share one counter.
const STREAMS_COUNTED_MAX: usize = 4_096;

/// Capacity of the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueLimits {
    pub(crate) records_max: usize,
    pub(crate) bytes_max: usize,
}

/// Command to the writer.
#[derive(Debug)]
pub(crate) enum WriterCommand {
    Write(LogRecord),
    /// An agent id, escaped, that is not a valid directory name.
    InvalidAgentId(String),
    Stop,
}

/// One queued record.
#[derive(Debug)]
pub(crate) struct LogRecord {
    pub(crate) key: StreamKey,
    pub(crate) text: String,
    /// Number of records of the same stream dropped just before this one.
    pub(crate) dropped_before: u64,
}

/// Sending half, for the logging threads.
#[derive(Debug, Clone)]
pub(crate) struct LogSender {
    commands: SyncSender<WriterCommand>,
    shared: Arc<Shared>,
}

/// Receiving half, for the writer.
#[derive(Debug)]
pub(crate) struct LogReceiver {
    pub(crate) commands: Receiver<WriterCommand>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    bytes: AtomicUsize,
    bytes_max: usize,
    /// Avoids the lock while nothing is dropped, which is nearly always.
    has_dropped: AtomicBool,
    dropped: Mutex<DroppedCounts>,
}

/// Counts of dropped records that no later record has carried yet.
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
    /// Enqueues a record, or drops and counts it when the queue is full.
    pub(crate) fn send(&self, agent: AgentDirectory, stream: LogStream, text: String) {
        let key = StreamKey { agent, stream };
        let dropped_before = self.shared.take_dropped(&key);
        let bytes = text.len();
        if !self.shared.reserve(bytes) {
            return self.shared.add_dropped(key, dropped_before + 1);
        }
        match self.commands.try_send(WriterCommand::Write(LogRecord { key, text, dropped_before })) {
            Err(TrySendError::Full(WriterCommand::Write(record))) => {
                self.shared.release(bytes);
                self.shared.add_dropped(record.key, dropped_before + 1);
            }
            // After the writer has stopped, drops are not counted.
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }

    /// Reports an agent id that is not a valid directory name; discarded when the queue is full.
    pub(crate) fn report_invalid_id(&self, id: String) {
        let _ = self.commands.try_send(WriterCommand::InvalidAgentId(id));
    }

    /// Stops the writer after all records sent so far. Blocks while the queue is full.
    pub(crate) fn stop(&self) {
        // Fails only when the writer has already ended.
        let _ = self.commands.send(WriterCommand::Stop);
    }
}

impl LogReceiver {
    /// Releases the capacity of records that were written.
    pub(crate) fn release(&self, bytes: usize) {
        self.shared.release(bytes);
    }

    /// Takes all drop counts that no later record has carried.
    pub(crate) fn take_all_dropped(&self) -> DroppedCounts {
        if !self.shared.has_dropped.load(Ordering::Acquire) {
            return DroppedCounts::default();
        }
        let mut dropped = self.shared.lock_dropped();
        self.shared.has_dropped.store(false, Ordering::Release);
        std::mem::take(&mut *dropped)
    }
}

impl Shared {
    fn reserve(&self, bytes: usize) -> bool {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        // A record larger than the whole capacity passes when the queue is empty.
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
        let mut dropped = self.lock_dropped();
        if dropped.by_stream.len() < STREAMS_COUNTED_MAX || dropped.by_stream.contains_key(&key) {
            *dropped.by_stream.entry(key).or_insert(0) += count;
        } else {
            dropped.other_streams += count;
        }
        self.has_dropped.store(true, Ordering::Release);
    }

    fn lock_dropped(&self) -> MutexGuard<'_, DroppedCounts> {
        // The counters are consistent after every statement, so a poisoned lock is safe to use.
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
