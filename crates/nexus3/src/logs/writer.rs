//! The one thread that writes log files. A fault of the disk or a queue that ran over is told on standard error,
//! rarely enough not to become a flood itself, and never stops anything.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::files::LogFiles;
use super::queue::{LogReceiver, LogRecord, WriterCommand};
use super::record::StreamKey;

const FAULT_REPORT_INTERVAL: Duration = Duration::from_secs(60);
const DROP_REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// How long a record may wait for others: a thread that is woken for each of them costs more than writing them.
const BATCH_DELAY: Duration = Duration::from_millis(20);

/// What is taken together, before it is written even while more comes.
const BATCH_BYTES_MAX: usize = 64 * 1024;

/// How the writer speaks to whoever watches the daemon.
pub(crate) type Report = Box<dyn FnMut(&str) + Send>;

/// Writes what the inbox holds until it is told to stop.
pub(crate) struct LogWriter {
    receiver: LogReceiver,
    files: LogFiles,
    /// What is taken and not written yet: records of one stream go out together.
    batches: HashMap<StreamKey, StreamBatch>,
    batched_bytes: usize,
    report: Report,
    fault_throttle: Throttle,
    invalid_id_throttle: Throttle,
    drop_throttle: Throttle,
    /// Dropped records that standard error has not been told of.
    unreported_drops: u64,
}

/// Records of one stream, in their order.
#[derive(Debug, Default)]
struct StreamBatch {
    text: String,
    /// Where each of them ends.
    ends: Vec<usize>,
    /// The room they have in the queue until they are written.
    reserved_bytes: usize,
}

impl LogWriter {
    pub(crate) fn new(inbox: LogReceiver, files: LogFiles, report: Report) -> Self {
        Self {
            receiver: inbox,
            files,
            batches: HashMap::new(),
            batched_bytes: 0,
            report,
            fault_throttle: Throttle::new(FAULT_REPORT_INTERVAL),
            invalid_id_throttle: Throttle::new(FAULT_REPORT_INTERVAL),
            drop_throttle: Throttle::new(DROP_REPORT_INTERVAL),
            unreported_drops: 0,
        }
    }

    pub(crate) fn spawn(self) -> io::Result<JoinHandle<()>> {
        thread::Builder::new().name("logs".to_owned()).spawn(move || self.run())
    }

    pub(crate) fn run(mut self) {
        while let Some(job) = self.next_command() {
            match job {
                WriterCommand::Write(record) => self.add_to_batch(record),
                WriterCommand::InvalidAgentId(id) => self.report_invalid_id(&id),
                WriterCommand::Stop => break,
            }
            self.report_drops();
        }
        self.finish();
    }

    fn next_command(&mut self) -> Option<WriterCommand> {
        loop {
            match self.receiver.commands.try_recv() {
                Ok(job) => return Some(job),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => self.add_gap_markers(),
            }
            self.flush();
            self.report_drops();
            if self.unreported_drops == 0 {
                let first = self.receiver.commands.recv().ok()?;
                if matches!(first, WriterCommand::Write(_)) {
                    thread::park_timeout(BATCH_DELAY);
                }
                return Some(first);
            }
            match self.receiver.commands.recv_timeout(DROP_REPORT_INTERVAL) {
                Ok(job) => return Some(job),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn add_to_batch(&mut self, record: LogRecord) {
        let LogRecord { key, text, dropped_before: lost_before } = record;
        let room = text.len();
        // In one piece: a queue that runs over is no time for a second write.
        let text = if lost_before == 0 { text } else { key.stream.render_gap(lost_before) + &text };
        self.batched_bytes += text.len();
        self.unreported_drops += lost_before;
        let taken = self.batches.entry(key).or_default();
        taken.text.push_str(&text);
        taken.ends.push(taken.text.len());
        taken.reserved_bytes += room;
        if self.batched_bytes > BATCH_BYTES_MAX {
            self.flush();
        }
    }

    /// Writes what was taken.
    fn flush(&mut self) {
        for (key, StreamBatch { text, ends, reserved_bytes: room }) in std::mem::take(&mut self.batches) {
            if let Err(unwritten) = self.files.append_all(&key, text.as_bytes(), &ends) {
                // Some of the rest may still fit a disk that is full.
                let mut start = unwritten.written_bytes;
                for end in ends.into_iter().filter(|end| *end > unwritten.written_bytes) {
                    self.append(&key, &text[start..end]);
                    start = end;
                }
            }
            self.receiver.release(room);
        }
        self.batched_bytes = 0;
    }

    fn append(&mut self, key: &StreamKey, record: &str) {
        if let Err(fault) = self.files.append(key, record.as_bytes()) {
            let path = self.files.path(key);
            if let Some(earlier) = self.fault_throttle.admit(Instant::now()) {
                (self.report)(&format!(
                    "cannot write {}: {fault}{}",
                    path.display(),
                    suppressed_suffix(earlier)
                ));
            }
        }
    }

    /// Marks the gaps of streams in which nothing followed that could have carried the mark.
    fn add_gap_markers(&mut self) {
        let lost = self.receiver.take_all_dropped();
        self.unreported_drops += lost.other_streams;
        for (key, lost_before) in lost.by_stream {
            self.add_to_batch(LogRecord { key, text: String::new(), dropped_before: lost_before });
        }
    }

    fn report_invalid_id(&mut self, id: &str) {
        if let Some(earlier) = self.invalid_id_throttle.admit(Instant::now()) {
            let earlier = suppressed_suffix(earlier);
            (self.report)(&format!("no log for agent \"{id}\": not a directory's name{earlier}"));
        }
    }

    fn report_drops(&mut self) {
        if self.unreported_drops > 0 && self.drop_throttle.admit(Instant::now()).is_some() {
            self.report_drops_now();
        }
    }

    fn report_drops_now(&mut self) {
        (self.report)(&format!(
            "log records dropped: {} (the writer could not keep up)",
            self.unreported_drops
        ));
        self.unreported_drops = 0;
    }

    fn finish(&mut self) {
        self.add_gap_markers();
        self.flush();
        if self.unreported_drops > 0 {
            self.report_drops_now();
        }
        let unwritten = self.fault_throttle.take_suppressed();
        if unwritten > 0 {
            (self.report)(&format!("log records not written since: {unwritten}"));
        }
    }
}

fn suppressed_suffix(held_back: u64) -> String {
    if held_back == 0 { String::new() } else { format!(" (held back since last told: {held_back})") }
}

/// Lets one message through per span of time and counts the others.
#[derive(Debug)]
pub(crate) struct Throttle {
    interval: Duration,
    last: Option<Instant>,
    suppressed: u64,
}

impl Throttle {
    pub(crate) fn new(every: Duration) -> Self {
        Self { interval: every, last: None, suppressed: 0 }
    }

    /// How many were held back before this one, or nothing when it has to be held back too.
    pub(crate) fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < self.interval) {
            self.suppressed += 1;
            return None;
        }
        self.last = Some(now);
        Some(self.take_suppressed())
    }

    pub(crate) fn take_suppressed(&mut self) -> u64 {
        std::mem::take(&mut self.suppressed)
    }
}
