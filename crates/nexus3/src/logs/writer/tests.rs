//! Tests of overflow and write errors: senders never block, and every dropped record is reported.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::super::files::{FileLimits, LogFiles};
use super::super::queue::{LogSender, QueueLimits, channel};
use super::super::record::{AgentDirectory, LogStream};
use super::{BATCH_BYTES_MAX, LogWriter, Throttle, WriterCommand};

const LARGE_LIMITS: FileLimits = FileLimits { file_bytes_max: 1_000_000, files_max: 3, handles_max: 8 };

struct WriterFixture {
    home: TempDir,
    sender: LogSender,
    writer: LogWriter,
    reports: Arc<Mutex<Vec<String>>>,
}

impl WriterFixture {
    /// A writer that does not run yet, so that the test controls the queue.
    fn new(limits: QueueLimits) -> Self {
        let home = TempDir::new().unwrap();
        let (sender, receiver) = channel(limits);
        let reports = Arc::new(Mutex::new(Vec::new()));
        let report = {
            let reports = Arc::clone(&reports);
            Box::new(move |text: &str| reports.lock().unwrap().push(text.to_owned()))
        };
        let writer = LogWriter::new(receiver, LogFiles::new(home.path().join("logs"), LARGE_LIMITS), report);
        Self { home, sender, writer, reports }
    }

    fn send(&self, agent: &str, text: &str) {
        self.sender.send(AgentDirectory::new(agent).unwrap(), LogStream::Verbose, format!("{text}\n"));
    }

    /// Writes all records and returns the lines of each agent's file, and the reports.
    fn run(self, agents: &[&str]) -> (Vec<Vec<String>>, Vec<String>) {
        let Self { home, sender, writer, reports } = self;
        drop(sender);
        writer.run();
        let path = |agent: &str| home.path().join("logs").join(agent).join("verbose.md");
        let lines = |agent: &&str| {
            fs::read_to_string(path(agent)).unwrap_or_default().lines().map(str::to_owned).collect()
        };
        let files = agents.iter().map(lines).collect();
        (files, reports.lock().unwrap().clone())
    }
}

#[test]
fn a_full_queue_drops_records_and_marks_the_gap() {
    let fixture = WriterFixture::new(QueueLimits { records_max: 2, bytes_max: 1000 });
    for text in ["1", "2", "3", "4"] {
        fixture.send("a", text);
    }
    fixture.send("b", "5");
    let (files, reports) = fixture.run(&["a", "b"]);
    assert_eq!(files[0][..2], ["1", "2"]);
    assert!(files[0][2].ends_with("ERROR 2 lines dropped: the log queue was full"), "{files:?}");
    assert_eq!(files[0].len(), 3);
    assert!(files[1][0].ends_with("ERROR 1 lines dropped: the log queue was full"), "{files:?}");
    assert_eq!(reports, ["dropped 3 log records: the log queue was full"]);
}

#[test]
fn the_next_queued_record_carries_the_drop_count() {
    let fixture = WriterFixture::new(QueueLimits { records_max: 2, bytes_max: 1000 });
    for text in ["1", "2", "3"] {
        fixture.send("a", text);
    }
    // Frees one slot, as if the writer had dequeued a record.
    let first = fixture.writer.receiver.commands.recv().unwrap();
    fixture.send("a", "4");
    let WriterCommand::Write(record) = fixture.writer.receiver.commands.recv().unwrap() else {
        panic!("{first:?}")
    };
    assert_eq!((record.text.as_str(), record.dropped_before), ("2\n", 0));
    let WriterCommand::Write(record) = fixture.writer.receiver.commands.recv().unwrap() else {
        panic!("{first:?}")
    };
    assert_eq!((record.text.as_str(), record.dropped_before), ("4\n", 1));
    assert!(fixture.writer.receiver.take_all_dropped().by_stream.is_empty());
}

#[test]
fn the_queue_limits_its_bytes() {
    let fixture = WriterFixture::new(QueueLimits { records_max: 100, bytes_max: 10 });
    fixture.send("a", "a record larger than the queue passes when it is empty");
    fixture.send("a", "2");
    let (files, reports) = fixture.run(&["a"]);
    assert_eq!(files[0].len(), 2, "{files:?}");
    assert_eq!(reports.len(), 1);
}

#[test]
fn writing_a_record_releases_its_queue_capacity() {
    let fixture = WriterFixture::new(QueueLimits { records_max: 100, bytes_max: 20 });
    let WriterFixture { home, sender, mut writer, reports } = fixture;
    for round in 0..50 {
        let agent = AgentDirectory::new("a").unwrap();
        sender.send(agent, LogStream::Verbose, format!("round {round}\n"));
        let WriterCommand::Write(record) = writer.receiver.commands.recv().unwrap() else {
            panic!("no record")
        };
        writer.add_to_batch(record);
        writer.flush();
    }
    let path = home.path().join("logs/a/verbose.md");
    assert_eq!(fs::read_to_string(path).unwrap().lines().count(), 50);
    assert!(reports.lock().unwrap().is_empty());
}

#[test]
fn batching_keeps_the_order_within_a_stream() {
    let fixture = WriterFixture::new(QueueLimits { records_max: 1000, bytes_max: 1_000_000 });
    let long = "x".repeat(BATCH_BYTES_MAX / 3);
    for number in 0..9 {
        fixture.send(["a", "b"][number % 2], &format!("{number} {long}"));
    }
    let (files, reports) = fixture.run(&["a", "b"]);
    let numbers = |lines: &Vec<String>| lines.iter().map(|line| line[..1].to_owned()).collect::<String>();
    assert_eq!((numbers(&files[0]), numbers(&files[1])), ("02468".to_owned(), "1357".to_owned()));
    assert!(reports.is_empty(), "{reports:?}");
}

#[test]
fn batching_respects_the_file_size_limit() {
    let mut fixture = WriterFixture::new(QueueLimits { records_max: 1000, bytes_max: 1_000_000 });
    let limits = FileLimits { file_bytes_max: 100, files_max: 50, handles_max: 8 };
    fixture.writer.files = LogFiles::new(fixture.home.path().join("logs"), limits);
    for number in 0..30 {
        fixture.send("a", &format!("{number:29}"));
    }
    let WriterFixture { home, sender, writer, reports } = fixture;
    drop(sender);
    writer.run();
    let files = fs::read_dir(home.path().join("logs/a")).unwrap();
    let texts: Vec<_> = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    assert_eq!(texts.iter().map(String::len).collect::<Vec<_>>(), [90; 10]);
    assert!(reports.lock().unwrap().is_empty());
}

#[test]
fn records_sent_before_stop_are_written() {
    let fixture = WriterFixture::new(QueueLimits { records_max: 100, bytes_max: 1000 });
    fixture.send("a", "1");
    fixture.sender.stop();
    fixture.send("a", "2");
    let (files, _) = fixture.run(&["a"]);
    assert_eq!(files[0], ["1"]);
}

#[test]
fn write_errors_are_reported_once_and_then_counted() {
    let fixture = WriterFixture::new(QueueLimits { records_max: 100, bytes_max: 1000 });
    fs::write(fixture.home.path().join("logs"), "not a directory").unwrap();
    for text in ["1", "2", "3"] {
        fixture.send("a", text);
    }
    let path = fixture.home.path().join("logs/a/verbose.md");
    let (_, reports) = fixture.run(&[]);
    assert_eq!(reports.len(), 2, "{reports:?}");
    assert!(reports[0].starts_with(&format!("cannot write {}: ", path.display())), "{reports:?}");
    assert_eq!(reports[1], "could not write 2 more log records");
}

#[test]
fn an_invalid_id_is_reported_once() {
    let fixture = WriterFixture::new(QueueLimits { records_max: 100, bytes_max: 1000 });
    fixture.sender.report_invalid_id("..".to_owned());
    fixture.sender.report_invalid_id("a/b".to_owned());
    let (_, reports) = fixture.run(&[]);
    assert_eq!(reports, ["no log for agent \"..\": not a valid directory name"]);
}

#[test]
fn throttle_admits_one_message_per_interval() {
    let start = Instant::now();
    let mut throttle = Throttle::new(Duration::from_secs(60));
    let at = |seconds: u64| start + Duration::from_secs(seconds);
    let admitted: Vec<Option<u64>> =
        [0, 1, 59, 60, 61, 119, 121, 500].map(|seconds| throttle.admit(at(seconds))).to_vec();
    assert_eq!(admitted, [Some(0), None, None, Some(2), None, None, Some(2), Some(0)]);
}
