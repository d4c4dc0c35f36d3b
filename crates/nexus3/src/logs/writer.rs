//! The one thread that writes log files. A fault of the disk or a queue that ran over is told on standard error,
//! rarely enough not to become a flood itself, and never stops anything.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::files::Files;
use super::queue::{Inbox, Job, Record};
use super::record::StreamKey;

const FAULT_EVERY: Duration = Duration::from_secs(60);
const LOST_EVERY: Duration = Duration::from_secs(1);

/// How long a record may wait for others: a thread that is woken for each of them costs more than writing them.
const GATHER: Duration = Duration::from_millis(20);

/// What is taken together, before it is written even while more comes.
const TAKEN_BYTES_MAX: usize = 64 * 1024;

/// How the writer speaks to whoever watches the daemon.
pub(crate) type Report = Box<dyn FnMut(&str) + Send>;

/// Writes what the inbox holds until it is told to stop.
pub(crate) struct Writer {
    inbox: Inbox,
    files: Files,
    /// What is taken and not written yet: records of one stream go out together.
    taken: HashMap<StreamKey, Taken>,
    taken_bytes: usize,
    report: Report,
    faults: Throttle,
    refusals: Throttle,
    losses: Throttle,
    /// Dropped records that standard error has not been told of.
    lost_untold: u64,
}

/// Records of one stream, in their order.
#[derive(Debug, Default)]
struct Taken {
    text: String,
    /// Where each of them ends.
    ends: Vec<usize>,
    /// The room they have in the queue until they are written.
    room: usize,
}

impl Writer {
    pub(crate) fn new(inbox: Inbox, files: Files, report: Report) -> Self {
        Self {
            inbox,
            files,
            taken: HashMap::new(),
            taken_bytes: 0,
            report,
            faults: Throttle::new(FAULT_EVERY),
            refusals: Throttle::new(FAULT_EVERY),
            losses: Throttle::new(LOST_EVERY),
            lost_untold: 0,
        }
    }

    pub(crate) fn spawn(self) -> io::Result<JoinHandle<()>> {
        thread::Builder::new().name("logs".to_owned()).spawn(move || self.run())
    }

    pub(crate) fn run(mut self) {
        while let Some(job) = self.next() {
            match job {
                Job::Write(record) => self.take(record),
                Job::Refused(id) => self.refused(&id),
                Job::Stop => break,
            }
            self.tell_losses();
        }
        self.finish();
    }

    fn next(&mut self) -> Option<Job> {
        loop {
            match self.inbox.jobs.try_recv() {
                Ok(job) => return Some(job),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => self.note_gaps(),
            }
            self.write();
            self.tell_losses();
            if self.lost_untold == 0 {
                let first = self.inbox.jobs.recv().ok()?;
                if matches!(first, Job::Write(_)) {
                    thread::park_timeout(GATHER);
                }
                return Some(first);
            }
            match self.inbox.jobs.recv_timeout(LOST_EVERY) {
                Ok(job) => return Some(job),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn take(&mut self, record: Record) {
        let Record { key, text, lost_before } = record;
        let room = text.len();
        // In one piece: a queue that runs over is no time for a second write.
        let text = if lost_before == 0 { text } else { key.stream.render_gap(lost_before) + &text };
        self.taken_bytes += text.len();
        self.lost_untold += lost_before;
        let taken = self.taken.entry(key).or_default();
        taken.text.push_str(&text);
        taken.ends.push(taken.text.len());
        taken.room += room;
        if self.taken_bytes > TAKEN_BYTES_MAX {
            self.write();
        }
    }

    /// Writes what was taken.
    fn write(&mut self) {
        for (key, Taken { text, ends, room }) in std::mem::take(&mut self.taken) {
            if let Err(unwritten) = self.files.append_all(&key, text.as_bytes(), &ends) {
                // Some of the rest may still fit a disk that is full.
                let mut start = unwritten.written;
                for end in ends.into_iter().filter(|end| *end > unwritten.written) {
                    self.append(&key, &text[start..end]);
                    start = end;
                }
            }
            self.inbox.release(room);
        }
        self.taken_bytes = 0;
    }

    fn append(&mut self, key: &StreamKey, record: &str) {
        if let Err(fault) = self.files.append(key, record.as_bytes()) {
            let path = self.files.path(key);
            if let Some(earlier) = self.faults.admit(Instant::now()) {
                (self.report)(&format!("cannot write {}: {fault}{}", path.display(), and_earlier(earlier)));
            }
        }
    }

    /// Marks the gaps of streams in which nothing followed that could have carried the mark.
    fn note_gaps(&mut self) {
        let lost = self.inbox.take_all_lost();
        self.lost_untold += lost.elsewhere;
        for (key, lost_before) in lost.by_stream {
            self.take(Record { key, text: String::new(), lost_before });
        }
    }

    fn refused(&mut self, id: &str) {
        if let Some(earlier) = self.refusals.admit(Instant::now()) {
            let earlier = and_earlier(earlier);
            (self.report)(&format!("no log for agent \"{id}\": not a directory's name{earlier}"));
        }
    }

    fn tell_losses(&mut self) {
        if self.lost_untold > 0 && self.losses.admit(Instant::now()).is_some() {
            self.tell_losses_now();
        }
    }

    fn tell_losses_now(&mut self) {
        (self.report)(&format!("log records dropped: {} (the writer could not keep up)", self.lost_untold));
        self.lost_untold = 0;
    }

    fn finish(&mut self) {
        self.note_gaps();
        self.write();
        if self.lost_untold > 0 {
            self.tell_losses_now();
        }
        let unwritten = self.faults.take_held_back();
        if unwritten > 0 {
            (self.report)(&format!("log records not written since: {unwritten}"));
        }
    }
}

fn and_earlier(held_back: u64) -> String {
    if held_back == 0 { String::new() } else { format!(" (held back since last told: {held_back})") }
}

/// Lets one message through per span of time and counts the others.
#[derive(Debug)]
pub(crate) struct Throttle {
    every: Duration,
    last: Option<Instant>,
    held_back: u64,
}

impl Throttle {
    pub(crate) fn new(every: Duration) -> Self {
        Self { every, last: None, held_back: 0 }
    }

    /// How many were held back before this one, or nothing when it has to be held back too.
    pub(crate) fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < self.every) {
            self.held_back += 1;
            return None;
        }
        self.last = Some(now);
        Some(self.take_held_back())
    }

    pub(crate) fn take_held_back(&mut self) -> u64 {
        std::mem::take(&mut self.held_back)
    }
}
