//! The thread that writes log files. It reports write errors and dropped records on standard error, rate-limited, and
//! never stops because of them.

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

/// Delay to collect a batch: waking the thread for each record costs more than writing it.
const BATCH_DELAY: Duration = Duration::from_millis(20);

/// Batch size at which the writer flushes even while more records arrive.
const BATCH_BYTES_MAX: usize = 64 * 1024;

/// Callback for the writer's own messages to the operator.
pub(crate) type Report = Box<dyn FnMut(&str) + Send>;

/// Writes the queued records until it receives `Stop`.
pub(crate) struct LogWriter {
    receiver: LogReceiver,
    files: LogFiles,
    /// Dequeued records that are not written yet, by stream: one write per stream and batch.
    batches: HashMap<StreamKey, StreamBatch>,
    batched_bytes: usize,
    report: Report,
    fault_throttle: Throttle,
    invalid_id_throttle: Throttle,
    drop_throttle: Throttle,
    /// Dropped records not yet reported on standard error.
    unreported_drops: u64,
}

/// Records of one stream, in order.
#[derive(Debug, Default)]
struct StreamBatch {
    text: String,
    /// End offset of each record.
    ends: Vec<usize>,
    /// Queue capacity that they hold until they are written.
    reserved_bytes: usize,
}

impl LogWriter {
    pub(crate) fn new(receiver: LogReceiver, files: LogFiles, report: Report) -> Self {
        Self {
            receiver,
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
        while let Some(command) = self.next_command() {
            match command {
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
                Ok(command) => return Some(command),
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
                Ok(command) => return Some(command),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn add_to_batch(&mut self, record: LogRecord) {
        let LogRecord { key, text, dropped_before } = record;
        let reserved_bytes = text.len();
        // Marker and record form one write: an overloaded writer must not write twice.
        let text = if dropped_before == 0 { text } else { key.stream.render_gap(dropped_before) + &text };
        self.batched_bytes += text.len();
        self.unreported_drops += dropped_before;
        let batch = self.batches.entry(key).or_default();
        batch.text.push_str(&text);
        batch.ends.push(batch.text.len());
        batch.reserved_bytes += reserved_bytes;
        if self.batched_bytes > BATCH_BYTES_MAX {
            self.flush();
        }
    }

    /// Writes all batches.
    fn flush(&mut self) {
        for (key, StreamBatch { text, ends, reserved_bytes }) in std::mem::take(&mut self.batches) {
            if let Err(failed) = self.files.append_all(&key, text.as_bytes(), &ends) {
                // Smaller records may still fit on a full disk.
                let mut start = failed.written_bytes;
                for end in ends.into_iter().filter(|end| *end > failed.written_bytes) {
                    self.append(&key, &text[start..end]);
                    start = end;
                }
            }
            self.receiver.release(reserved_bytes);
        }
        self.batched_bytes = 0;
    }

    fn append(&mut self, key: &StreamKey, record: &str) {
        if let Err(fault) = self.files.append(key, record.as_bytes()) {
            let path = self.files.path(key);
            if let Some(suppressed) = self.fault_throttle.admit(Instant::now()) {
                (self.report)(&format!(
                    "cannot write {}: {fault}{}",
                    path.display(),
                    suppressed_suffix(suppressed)
                ));
            }
        }
    }

    /// Adds markers for drops that no later record of the stream has carried.
    fn add_gap_markers(&mut self) {
        let dropped = self.receiver.take_all_dropped();
        self.unreported_drops += dropped.other_streams;
        for (key, dropped_before) in dropped.by_stream {
            self.add_to_batch(LogRecord { key, text: String::new(), dropped_before });
        }
    }

    fn report_invalid_id(&mut self, id: &str) {
        if let Some(suppressed) = self.invalid_id_throttle.admit(Instant::now()) {
            let suffix = suppressed_suffix(suppressed);
            (self.report)(&format!("no log for agent \"{id}\": not a valid directory name{suffix}"));
        }
    }

    fn report_drops(&mut self) {
        if self.unreported_drops > 0 && self.drop_throttle.admit(Instant::now()).is_some() {
            self.report_drops_now();
        }
    }

    fn report_drops_now(&mut self) {
        (self.report)(&format!("dropped {} log records: the log queue was full", self.unreported_drops));
        self.unreported_drops = 0;
    }

    fn finish(&mut self) {
        self.add_gap_markers();
        self.flush();
        if self.unreported_drops > 0 {
            self.report_drops_now();
        }
        let suppressed = self.fault_throttle.take_suppressed();
        if suppressed > 0 {
            (self.report)(&format!("could not write {suppressed} more log records"));
        }
    }
}

fn suppressed_suffix(suppressed: u64) -> String {
    if suppressed == 0 { String::new() } else { format!(" ({suppressed} similar messages suppressed)") }
}

/// Rate limiter: admits one message per interval and counts the others.
#[derive(Debug)]
pub(crate) struct Throttle {
    interval: Duration,
    last: Option<Instant>,
    suppressed: u64,
}

impl Throttle {
    pub(crate) fn new(interval: Duration) -> Self {
        Self { interval, last: None, suppressed: 0 }
    }

    /// Returns the number of messages suppressed before this one, or `None` when this one is suppressed too.
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
