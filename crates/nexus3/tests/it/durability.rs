//! Durability: acknowledged work survives kills, stops, full disks and suspended processes, damaged files are detected,
//! and event streams have no gaps. This file holds the journal reader and the restart helpers of these tests.

mod clock_changes;
mod damaged_files;
mod events;
mod failpoints;
mod full_disk;
mod lifecycle;
mod maintenance;
mod restarts;
mod sleep;
mod suspended_process;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{NextEvent, RawConnection, StoppedDaemon, TestDaemon, TestDaemonBuilder, TestEventStream, run};

use crate::support::pending_calls::request_bytes;
use crate::support::{Fixture, WAIT_MAX, agent_path};

/// Time within which all open turns must end after a start.
const TURNS_END_MAX: Duration = Duration::from_secs(5);

/// A sequence number beyond the end of any test's journal.
const SEQUENCE_BEYOND_END: u64 = 1 << 50;

/// Environment variable that sets the failpoints of a daemon.
const FAILPOINTS_VARIABLE: &str = "NEXUS3_FAILPOINTS";

impl Fixture {
    /// Starts a daemon with these failpoints.
    fn with_failpoints(failpoints: &str) -> Self {
        let model = testkit::ScriptedModel::start();
        let daemon = crate::support::daemon_builder(&model).env(FAILPOINTS_VARIABLE, failpoints).start();
        Self { daemon, model }
    }

    /// Kills the daemon and starts it again with the same home.
    fn kill_and_start(self) -> Self {
        self.restart_with(TestDaemon::kill, |builder| builder)
    }

    /// Waits until the daemon has aborted at a failpoint, and starts it again without failpoints.
    fn restart_after_abort(self) -> Self {
        let aborted = |daemon: TestDaemon| {
            let stopped = daemon.wait_stopped();
            assert_aborted(&stopped);
            stopped
        };
        self.restart_with(aborted, |builder| builder.without_env(FAILPOINTS_VARIABLE))
    }

    fn restart_with(
        self,
        end: impl FnOnce(TestDaemon) -> StoppedDaemon,
        change: impl FnOnce(TestDaemonBuilder) -> TestDaemonBuilder,
    ) -> Self {
        let Self { daemon, model } = self;
        Self { daemon: end(daemon).start_with(change), model }
    }

    /// Sends a message with a request id and returns the whole response.
    fn send_with_request_id(&self, agent: &str, content: &str, request_id: &str) -> Value {
        self.daemon.call(&agent_path(agent), "send", send_params(content, request_id))
    }

    /// Sends a message to a daemon that aborts before it responds.
    fn send_expecting_abort(&self, agent: &str, content: &str, request_id: &str) {
        let response = try_call(&self.daemon, &agent_path(agent), "send", send_params(content, request_id));
        assert_eq!(response, None, "the daemon should have aborted");
    }
}

fn assert_aborted(stopped: &StoppedDaemon) {
    use std::os::unix::process::ExitStatusExt as _;
    assert_eq!(stopped.status.signal(), Some(6), "{} {}", stopped.status, stopped.stderr);
}

/// Parameters of a `send` call.
fn send_params(content: &str, request_id: &str) -> Value {
    json!({ "content": content, "request_id": request_id })
}

/// Calls a method of a daemon that may exit meanwhile. Returns `None` if the daemon exits before it responds.
fn try_call(daemon: &TestDaemon, path: &str, method: &str, params: Value) -> Option<Value> {
    let mut connection = RawConnection::try_open(daemon.port()).ok()?;
    connection.try_send(&request_bytes(daemon, path, 1, method, params)).ok()?;
    let response = connection.try_read_response().ok()?;
    assert_eq!(response.status, 200, "{method} on {path}: {}", response.text());
    Some(response.json())
}

/// Arguments for curl to call a method.
fn curl_args(daemon: &TestDaemon, path: &str, method: &str, params: &Value) -> Vec<String> {
    let body = json!({ "jsonrpc": "2.0", "method": method, "params": params, "id": 1 });
    let token = daemon.token().expect("a daemon writes a token");
    let bearer = format!("Authorization: Bearer {token}");
    let url = format!("{}{path}", daemon.base_url());
    ["-sS", &url, "-H", &bearer, "-d", &body.to_string()].map(str::to_owned).to_vec()
}

/// Calls a method with curl and returns the whole response.
fn curl(daemon: &TestDaemon, path: &str, method: &str, params: &Value) -> Value {
    let args = curl_args(daemon, path, method, params);
    let finished = run("curl", &args.iter().map(String::as_str).collect::<Vec<_>>(), &[], daemon.home());
    assert_eq!(finished.code, 0, "{method} on {path}: {}", finished.stderr);
    serde_json::from_str(&finished.stdout).unwrap_or_else(|fault| panic!("{fault}: {}", finished.stdout))
}

/// Reader of a daemon's journal, from the first entry on.
struct JournalReader {
    stream: TestEventStream,
    /// Sequence number of the last entry when the reader was opened.
    last_sequence: u64,
    entries: Vec<Value>,
    opened_at: Instant,
}

impl JournalReader {
    fn open(daemon: &TestDaemon) -> Self {
        // A position beyond the end is answered with a `gap` event that holds the end of the journal.
        let mut stream = daemon.events("/events?deltas=false", Some(SEQUENCE_BEYOND_END));
        let gap = stream.next_event(WAIT_MAX);
        assert_eq!(gap.kind, "gap");
        let last = gap.json()["last"].as_u64().expect("a gap event has the last sequence number");
        Self { stream, last_sequence: last, entries: Vec::new(), opened_at: Instant::now() }
    }

    /// Reads all entries that the journal has now.
    fn read_all(daemon: &TestDaemon) -> Vec<Value> {
        let mut journal = Self::open(daemon);
        while !journal.is_caught_up() {
            assert!(journal.read_next(WAIT_MAX), "the journal ends after {} entries", journal.entries.len());
        }
        journal.entries
    }

    /// Returns whether all entries were read that existed when the reader was opened.
    fn is_caught_up(&self) -> bool {
        self.entries.len() as u64 >= self.last_sequence
    }

    /// Reads one entry. Returns false if none arrives within this time.
    fn read_next(&mut self, within: Duration) -> bool {
        match self.stream.wait_event(within).expect("the event stream is readable") {
            NextEvent::Event(event) => {
                let entry = event.json();
                let expected = self.entries.len() as u64 + 1;
                assert_eq!(event.sequence(), Some(expected), "an entry is missing or repeated: {entry}");
                assert_eq!(
                    (entry["sequence"].as_u64(), entry["kind"].as_str()),
                    (Some(expected), Some(&*event.kind))
                );
                self.entries.push(entry);
                true
            }
            NextEvent::TimedOut => false,
            NextEvent::Ended => panic!("the event stream ended"),
        }
    }

    /// Request ids of the turns that are open after the entries read so far.
    fn open_turns(&self) -> BTreeSet<String> {
        let mut open = BTreeSet::new();
        for entry in &self.entries {
            let request_id = entry["request_id"].as_str().unwrap_or_default().to_owned();
            match entry["kind"].as_str().unwrap_or_default() {
                "turn_accepted" | "turn_reopened" => {
                    open.insert(request_id);
                }
                "turn_ended" => {
                    open.remove(&request_id);
                }
                _ => {}
            }
        }
        open
    }
}

/// Waits until all turns have ended except these, which a test holds open, and returns the journal. Panics after 5 s.
fn wait_turns_ended(daemon: &TestDaemon, except: &[&str]) -> Vec<Value> {
    let mut journal = JournalReader::open(daemon);
    loop {
        let mut open = journal.open_turns();
        open.retain(|request_id| !except.contains(&request_id.as_str()));
        if journal.is_caught_up() && open.is_empty() {
            return journal.entries;
        }
        let remaining = TURNS_END_MAX.saturating_sub(journal.opened_at.elapsed());
        assert!(
            journal.read_next(remaining),
            "still open after {TURNS_END_MAX:?}: {open:?} {}",
            daemon.stderr()
        );
    }
}

/// Returns the entries of one kind.
fn entries_of_kind<'a>(entries: &'a [Value], kind: &str) -> Vec<&'a Value> {
    entries.iter().filter(|entry| entry["kind"] == kind).collect()
}

/// Asserts that `nexus3 check` and `nexus3 audit verify` find no problem in the store.
fn assert_sound(home: &std::path::Path) {
    for command in [&["check"][..], &["audit", "verify"]] {
        let finished = run(crate::support::BIN, command, &[], home);
        assert_eq!(finished.code, 0, "{command:?}: {}{}", finished.stdout, finished.stderr);
    }
}
