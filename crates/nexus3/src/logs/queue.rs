//! The bounded way from the threads that log to the one that writes. Whoever logs never waits: what does not fit is
//! dropped and counted, and the count travels with the next record that fits.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::record::{AgentDirectory, Stream, StreamKey};

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
pub(crate) enum Job {
    Write(Record),
    /// An id that is no directory's name, escaped.
    Refused(String),
    Stop,
}

/// One record on its way.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) key: StreamKey,
    pub(crate) text: String,
    /// Records of the same stream that were dropped just before this one.
    pub(crate) lost_before: u64,
}

/// The logging side.
#[derive(Debug, Clone)]
pub(crate) struct Outbox {
    jobs: SyncSender<Job>,
    shared: Arc<Shared>,
}

/// The writer's side.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) jobs: Receiver<Job>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    bytes: AtomicUsize,
    bytes_max: usize,
    /// Spares the lock as long as nothing is lost, which is nearly always.
    any_lost: AtomicBool,
    lost: Mutex<Lost>,
}

/// What was dropped and not yet told.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    pub(crate) by_stream: HashMap<StreamKey, u64>,
    pub(crate) elsewhere: u64,
}

pub(crate) fn queue(limits: QueueLimits) -> (Outbox, Inbox) {
    let (sender, receiver) = sync_channel(limits.records_max);
    let shared = Arc::new(Shared {
        bytes: AtomicUsize::new(0),
        bytes_max: limits.bytes_max,
        any_lost: AtomicBool::new(false),
        lost: Mutex::default(),
    });
    (Outbox { jobs: sender, shared: Arc::clone(&shared) }, Inbox { jobs: receiver, shared })
}

impl Outbox {
    /// Hands a record over, or drops it when there is no room.
    pub(crate) fn send(&self, agent: AgentDirectory, stream: Stream, text: String) {
        let key = StreamKey { agent, stream };
        let lost_before = self.shared.take_lost(&key);
        let bytes = text.len();
        if !self.shared.reserve(bytes) {
            return self.shared.add_lost(key, lost_before + 1);
        }
        match self.jobs.try_send(Job::Write(Record { key, text, lost_before })) {
            Err(TrySendError::Full(Job::Write(record))) => {
                self.shared.release(bytes);
                self.shared.add_lost(record.key, lost_before + 1);
            }
            // A writer that has stopped needs no account of what comes after.
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }

    /// Tells the writer of an id that cannot be a directory; under pressure this is the first thing to go.
    pub(crate) fn refuse(&self, id: String) {
        let _ = self.jobs.try_send(Job::Refused(id));
    }

    /// Asks the writer to stop after everything sent so far. Waits for room.
    pub(crate) fn stop(&self) {
        // Fails only when the writer is gone already.
        let _ = self.jobs.send(Job::Stop);
    }
}

impl Inbox {
    /// Gives back the room of records that are written.
    pub(crate) fn release(&self, bytes: usize) {
        self.shared.release(bytes);
    }

    /// Everything dropped that no later record has told of.
    pub(crate) fn take_all_lost(&self) -> Lost {
        if !self.shared.any_lost.load(Ordering::Acquire) {
            return Lost::default();
        }
        let mut lost = self.shared.lock_lost();
        self.shared.any_lost.store(false, Ordering::Release);
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

    fn take_lost(&self, key: &StreamKey) -> u64 {
        if !self.any_lost.load(Ordering::Acquire) {
            return 0;
        }
        self.lock_lost().by_stream.remove(key).unwrap_or(0)
    }

    fn add_lost(&self, key: StreamKey, count: u64) {
        let mut lost = self.lock_lost();
        if lost.by_stream.len() < STREAMS_COUNTED_MAX || lost.by_stream.contains_key(&key) {
            *lost.by_stream.entry(key).or_insert(0) += count;
        } else {
            lost.elsewhere += count;
        }
        self.any_lost.store(true, Ordering::Release);
    }

    fn lock_lost(&self) -> MutexGuard<'_, Lost> {
        // Counters are whole after every statement, so a panic elsewhere leaves nothing half done.
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
