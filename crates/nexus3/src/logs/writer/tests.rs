//! Overflow and faults: nothing waits, nothing is lost without being told.

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
    /// A writer that does not run yet, so that the queue fills as the test says.
    fn new(limits: QueueLimits) -> Self {
        let home = TempDir::new().unwrap();
        let (outbox, inbox) = channel(limits);
        let told = Arc::new(Mutex::new(Vec::new()));
        let report = {
            let told = Arc::clone(&told);
            Box::new(move |text: &str| told.lock().unwrap().push(text.to_owned()))
        };
        let writer = LogWriter::new(inbox, LogFiles::new(home.path().join("logs"), LARGE_LIMITS), report);
        Self { home, sender: outbox, writer, reports: told }
    }

    fn send(&self, agent: &str, text: &str) {
        self.sender.send(AgentDirectory::new(agent).unwrap(), LogStream::Verbose, format!("{text}\n"));
    }

    /// Writes everything and returns the lines of each agent's file, and what was told.
    fn run(self, agents: &[&str]) -> (Vec<Vec<String>>, Vec<String>) {
        let Self { home, sender: outbox, writer, reports: told } = self;
        drop(outbox);
        writer.run();
        let path = |agent: &str| home.path().join("logs").join(agent).join("verbose.md");
        let lines = |agent: &&str| {
            fs::read_to_string(path(agent)).unwrap_or_default().lines().map(str::to_owned).collect()
        };
        let files = agents.iter().map(lines).collect();
        (files, told.lock().unwrap().clone())
    }
}

#[test]
fn a_full_queue_drops_and_says_so_where_it_happened() {
    let bench = WriterFixture::new(QueueLimits { records_max: 2, bytes_max: 1000 });
    for text in ["1", "2", "3", "4"] {
        bench.send("a", text);
    }
    bench.send("b", "5");
    let (files, told) = bench.run(&["a", "b"]);
    assert_eq!(files[0][..2], ["1", "2"]);
    assert!(files[0][2].ends_with("ERROR lines missing here: 2 (the log could not keep up)"), "{files:?}");
    assert_eq!(files[0].len(), 3);
    assert!(files[1][0].ends_with("ERROR lines missing here: 1 (the log could not keep up)"), "{files:?}");
    assert_eq!(told, ["log records dropped: 3 (the writer could not keep up)"]);
}

#[test]
fn the_next_record_that_fits_carries_the_count() {
    let bench = WriterFixture::new(QueueLimits { records_max: 2, bytes_max: 1000 });
    for text in ["1", "2", "3"] {
        bench.send("a", text);
    }
    // Room for one more, as when the writer has taken a record.
    let first = bench.writer.receiver.commands.recv().unwrap();
    bench.send("a", "4");
    let WriterCommand::Write(record) = bench.writer.receiver.commands.recv().unwrap() else {
        panic!("{first:?}")
    };
    assert_eq!((record.text.as_str(), record.dropped_before), ("2\n", 0));
    let WriterCommand::Write(record) = bench.writer.receiver.commands.recv().unwrap() else {
        panic!("{first:?}")
    };
    assert_eq!((record.text.as_str(), record.dropped_before), ("4\n", 1));
    assert!(bench.writer.receiver.take_all_dropped().by_stream.is_empty());
}

#[test]
fn waiting_bytes_are_bounded_too() {
    let bench = WriterFixture::new(QueueLimits { records_max: 100, bytes_max: 10 });
    bench.send("a", "a record longer than all the room passes alone");
    bench.send("a", "2");
    let (files, told) = bench.run(&["a"]);
    assert_eq!(files[0].len(), 2, "{files:?}");
    assert_eq!(told.len(), 1);
}

#[test]
fn room_is_given_back_when_a_record_is_written() {
    let bench = WriterFixture::new(QueueLimits { records_max: 100, bytes_max: 20 });
    let WriterFixture { home, sender: outbox, mut writer, reports: told } = bench;
    for round in 0..50 {
        let agent = AgentDirectory::new("a").unwrap();
        outbox.send(agent, LogStream::Verbose, format!("round {round}\n"));
        let WriterCommand::Write(record) = writer.receiver.commands.recv().unwrap() else {
            panic!("no record")
        };
        writer.add_to_batch(record);
        writer.flush();
    }
    let path = home.path().join("logs/a/verbose.md");
    assert_eq!(fs::read_to_string(path).unwrap().lines().count(), 50);
    assert!(told.lock().unwrap().is_empty());
}

#[test]
fn records_keep_their_order_in_a_stream_however_many_are_taken_together() {
    let bench = WriterFixture::new(QueueLimits { records_max: 1000, bytes_max: 1_000_000 });
    let long = "x".repeat(BATCH_BYTES_MAX / 3);
    for number in 0..9 {
        bench.send(["a", "b"][number % 2], &format!("{number} {long}"));
    }
    let (files, told) = bench.run(&["a", "b"]);
    let numbers = |lines: &Vec<String>| lines.iter().map(|line| line[..1].to_owned()).collect::<String>();
    assert_eq!((numbers(&files[0]), numbers(&files[1])), ("02468".to_owned(), "1357".to_owned()));
    assert!(told.is_empty(), "{told:?}");
}

#[test]
fn no_file_grows_beyond_its_limit_because_records_came_together() {
    let mut bench = WriterFixture::new(QueueLimits { records_max: 1000, bytes_max: 1_000_000 });
    let limits = FileLimits { file_bytes_max: 100, files_max: 50, handles_max: 8 };
    bench.writer.files = LogFiles::new(bench.home.path().join("logs"), limits);
    for number in 0..30 {
        bench.send("a", &format!("{number:29}"));
    }
    let WriterFixture { home, sender: outbox, writer, reports: told } = bench;
    drop(outbox);
    writer.run();
    let files = fs::read_dir(home.path().join("logs/a")).unwrap();
    let texts: Vec<_> = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    assert_eq!(texts.iter().map(String::len).collect::<Vec<_>>(), [90; 10]);
    assert!(told.lock().unwrap().is_empty());
}

#[test]
fn what_was_sent_before_the_stop_is_written() {
    let bench = WriterFixture::new(QueueLimits { records_max: 100, bytes_max: 1000 });
    bench.send("a", "1");
    bench.sender.stop();
    bench.send("a", "2");
    let (files, _) = bench.run(&["a"]);
    assert_eq!(files[0], ["1"]);
}

#[test]
fn a_disk_fault_is_told_once_and_the_rest_is_counted() {
    let bench = WriterFixture::new(QueueLimits { records_max: 100, bytes_max: 1000 });
    fs::write(bench.home.path().join("logs"), "in the way").unwrap();
    for text in ["1", "2", "3"] {
        bench.send("a", text);
    }
    let path = bench.home.path().join("logs/a/verbose.md");
    let (_, told) = bench.run(&[]);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with(&format!("cannot write {}: ", path.display())), "{told:?}");
    assert_eq!(told[1], "log records not written since: 2");
}

#[test]
fn a_refused_id_is_told_once() {
    let bench = WriterFixture::new(QueueLimits { records_max: 100, bytes_max: 1000 });
    bench.sender.report_invalid_id("..".to_owned());
    bench.sender.report_invalid_id("a/b".to_owned());
    let (_, told) = bench.run(&[]);
    assert_eq!(told, ["no log for agent \"..\": not a directory's name"]);
}

#[test]
fn a_throttle_admits_one_in_each_span_of_time() {
    let start = Instant::now();
    let mut throttle = Throttle::new(Duration::from_secs(60));
    let at = |seconds: u64| start + Duration::from_secs(seconds);
    let admitted: Vec<Option<u64>> =
        [0, 1, 59, 60, 61, 119, 121, 500].map(|seconds| throttle.admit(at(seconds))).to_vec();
    assert_eq!(admitted, [Some(0), None, None, Some(2), None, None, Some(2), Some(0)]);
}
