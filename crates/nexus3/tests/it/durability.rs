//! Nothing that was acknowledged is lost: daemons that are killed, stopped, starved, paused and damaged, what they know
//! then, and what whoever watches them is told.

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

/// When all turns have to be settled after a start.
const TURNS_END_MAX: Duration = Duration::from_secs(5);

/// A place that no journal of a test has.
const SEQUENCE_BEYOND_END: u64 = 1 << 50;

/// Says where to fail.
const FAILPOINTS_VARIABLE: &str = "NEXUS3_FAILPOINTS";

impl Fixture {
    /// With places to fail at.
    fn with_failpoints(failpoints: &str) -> Self {
        let model = testkit::ScriptedModel::start();
        let daemon = crate::support::daemon_builder(&model).env(FAILPOINTS_VARIABLE, failpoints).start();
        Self { daemon, model }
    }

    /// Kills the daemon and starts it again on the same home.
    fn kill_and_start(self) -> Self {
        self.restart_with(TestDaemon::kill, |builder| builder)
    }

    /// Waits until the daemon has ended at a place to fail, and starts it again without one.
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

    /// Sends by name; the whole response.
    fn send_with_request_id(&self, agent: &str, content: &str, request_id: &str) -> Value {
        self.daemon.call(&agent_path(agent), "send", send_params(content, request_id))
    }

    /// Sends to a daemon that ends before it answers.
    fn send_expecting_abort(&self, agent: &str, content: &str, request_id: &str) {
        let answer = try_call(&self.daemon, &agent_path(agent), "send", send_params(content, request_id));
        assert_eq!(answer, None, "the daemon should have ended");
    }
}

fn assert_aborted(stopped: &StoppedDaemon) {
    use std::os::unix::process::ExitStatusExt as _;
    assert_eq!(stopped.status.signal(), Some(6), "{} {}", stopped.status, stopped.stderr);
}

/// The parameters of a send.
fn send_params(content: &str, request_id: &str) -> Value {
    json!({ "content": content, "request_id": request_id })
}

/// Calls a method of a daemon that may end meanwhile: the response, or none when there will be none.
fn try_call(daemon: &TestDaemon, path: &str, method: &str, params: Value) -> Option<Value> {
    let mut connection = RawConnection::try_open(daemon.port()).ok()?;
    connection.try_send(&request_bytes(daemon, path, 1, method, params)).ok()?;
    let answer = connection.try_read_response().ok()?;
    assert_eq!(answer.status, 200, "{method} on {path}: {}", answer.text());
    Some(answer.json())
}

/// The arguments that have curl call a method.
fn curl_args(daemon: &TestDaemon, path: &str, method: &str, params: &Value) -> Vec<String> {
    let body = json!({ "jsonrpc": "2.0", "method": method, "params": params, "id": 1 });
    let token = daemon.token().expect("a daemon writes a token");
    let bearer = format!("Authorization: Bearer {token}");
    let url = format!("{}{path}", daemon.base_url());
    ["-sS", &url, "-H", &bearer, "-d", &body.to_string()].map(str::to_owned).to_vec()
}

/// Calls a method by curl; the whole response.
fn curl(daemon: &TestDaemon, path: &str, method: &str, params: &Value) -> Value {
    let args = curl_args(daemon, path, method, params);
    let finished = run("curl", &args.iter().map(String::as_str).collect::<Vec<_>>(), &[], daemon.home());
    assert_eq!(finished.code, 0, "{method} on {path}: {}", finished.stderr);
    serde_json::from_str(&finished.stdout).unwrap_or_else(|fault| panic!("{fault}: {}", finished.stdout))
}

/// A whole journal as it is read from its first entry on.
struct JournalReader {
    stream: TestEventStream,
    /// The last entry there was when it was opened.
    last_sequence: u64,
    entries: Vec<Value>,
    opened_at: Instant,
}

impl JournalReader {
    fn open(daemon: &TestDaemon) -> Self {
        // A place beyond the end is answered by where the end is.
        let mut stream = daemon.events("/events?deltas=false", Some(SEQUENCE_BEYOND_END));
        let gap = stream.next_event(WAIT_MAX);
        assert_eq!(gap.kind, "gap");
        let last = gap.json()["last"].as_u64().expect("a gap says where the journal ends");
        Self { stream, last_sequence: last, entries: Vec::new(), opened_at: Instant::now() }
    }

    /// All that is in a daemon's journal by now.
    fn read_all(daemon: &TestDaemon) -> Vec<Value> {
        let mut journal = Self::open(daemon);
        while !journal.is_caught_up() {
            assert!(journal.read_next(WAIT_MAX), "the journal ends at {}", journal.entries.len());
        }
        journal.entries
    }

    /// Whether everything was read that was there at first.
    fn is_caught_up(&self) -> bool {
        self.entries.len() as u64 >= self.last_sequence
    }

    /// Reads one more; false when there is none in that time.
    fn read_next(&mut self, within: Duration) -> bool {
        match self.stream.wait_event(within).expect("a stream of events") {
            NextEvent::Event(event) => {
                let entry = event.json();
                let place = self.entries.len() as u64 + 1;
                assert_eq!(event.sequence(), Some(place), "no hole and no repeat: {entry}");
                assert_eq!(
                    (entry["sequence"].as_u64(), entry["kind"].as_str()),
                    (Some(place), Some(&*event.kind))
                );
                self.entries.push(entry);
                true
            }
            NextEvent::TimedOut => false,
            NextEvent::Ended => panic!("the events end"),
        }
    }

    /// The sends that are open, as far as it was read.
    fn open_turns(&self) -> BTreeSet<String> {
        let mut open = BTreeSet::new();
        for entry in &self.entries {
            let send = entry["request_id"].as_str().unwrap_or_default().to_owned();
            match entry["kind"].as_str().unwrap_or_default() {
                "turn_accepted" | "turn_reopened" => {
                    open.insert(send);
                }
                "turn_ended" => {
                    open.remove(&send);
                }
                _ => {}
            }
        }
        open
    }
}

/// Waits until every turn is settled but these, which a test keeps open; panics after 5 s.
fn wait_turns_ended(daemon: &TestDaemon, but: &[&str]) -> Vec<Value> {
    let mut journal = JournalReader::open(daemon);
    loop {
        let mut open = journal.open_turns();
        open.retain(|send| !but.contains(&send.as_str()));
        if journal.is_caught_up() && open.is_empty() {
            return journal.entries;
        }
        let left = TURNS_END_MAX.saturating_sub(journal.opened_at.elapsed());
        assert!(journal.read_next(left), "still open after {TURNS_END_MAX:?}: {open:?} {}", daemon.stderr());
    }
}

/// The entries of one kind.
fn entries_of_kind<'a>(entries: &'a [Value], kind: &str) -> Vec<&'a Value> {
    entries.iter().filter(|entry| entry["kind"] == kind).collect()
}

/// `nexus3 check` and `nexus3 audit verify` find nothing wrong with the daemon's store.
fn assert_sound(home: &std::path::Path) {
    for command in [&["check"][..], &["audit", "verify"]] {
        let finished = run(crate::support::BIN, command, &[], home);
        assert_eq!(finished.code, 0, "{command:?}: {}{}", finished.stdout, finished.stderr);
    }
}
