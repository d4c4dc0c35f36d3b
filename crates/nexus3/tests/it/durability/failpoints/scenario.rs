//! Scenario of all operations on agents, with a daemon that aborts once on the way. It repeats calls that got no
//! response, and asserts that the final state is the same as without the abort.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

use serde_json::{Value, json};
use testkit::{RawConnection, ScriptedModel, TestDaemonBuilder};

use crate::durability::{FAILPOINTS_VARIABLE, assert_sound, send_params, try_call, wait_turns_ended};
use crate::support::folder::TestDirectory;
use crate::support::pending_calls::request_bytes;
use crate::support::{Fixture, agent_ids, agent_path, daemon_builder, wait_until};

/// Request id of the send that stays open until the scenario cancels it.
const HELD_REQUEST_ID: &str = "held";
/// Request id of the send whose tool call asks.
const ASKED_REQUEST_ID: &str = "asked";
const ASKED_SCRIPT: &str = "!tool fs_append_file {\"path\":\"asked\",\"content\":\"line\"}";
const TOOL_SCRIPT: &str =
    "!tool echo {\"text\":\"hi\"}\n!tool fs_append_file {\"path\":\"file\",\"content\":\"line\"}";
const STEERED_MESSAGE: &str = "!hold gate so far";
const INSTRUCTION: &str = "an instruction";

/// A message that is long enough for compaction.
fn long_message(turn: &str) -> String {
    format!("turn {turn}{}", " and words".repeat(40))
}

/// One run of the scenario with one failpoint.
pub(super) struct Scenario {
    /// `None` while no daemon runs.
    fixture: Option<Fixture>,
    builder: TestDaemonBuilder,
    failpoint: String,
    aborts: usize,
    /// Whether the daemon acknowledged `steer`: only then must the message be in the conversation.
    instruction_was_accepted: bool,
    folder: TestDirectory,
    home: TestDirectory,
}

/// A send in progress. Receives `None` if the daemon exits before it responds.
struct OpenSend(Receiver<Option<Value>>);

impl Scenario {
    pub(super) fn run(point: &str) {
        let mut scenario = Self::new(point);
        scenario.create();
        scenario.use_tools();
        scenario.undo();
        scenario.approve();
        scenario.steer();
        scenario.cancel();
        scenario.narrow();
        scenario.exceed_permissions();
        scenario.fork_and_rename();
        scenario.compact();
        scenario.stop();
    }

    /// Starts a daemon and kills it with an open turn, then starts it with the failpoint, where it may abort already.
    fn new(point: &str) -> Self {
        let (home, folder, model) = (TestDirectory::new(), TestDirectory::new(), ScriptedModel::start());
        let builder = daemon_builder(&model).home(home.path());
        let fixture = Fixture { daemon: builder.clone().start(), model };
        fixture.create("early");
        let pending = fixture.start_send("early", "!hold before so far", "early");
        fixture.model.wait_stalled(1);
        let Fixture { daemon, model } = fixture;
        daemon.kill();
        drop(pending);
        model.release("before");
        let point = point.to_owned();
        let mut scenario = Self {
            fixture: None,
            builder,
            failpoint: point,
            aborts: 0,
            instruction_was_accepted: false,
            folder,
            home,
        };
        match scenario.builder.clone().env(FAILPOINTS_VARIABLE, &scenario.failpoint).try_start() {
            Ok(daemon) => scenario.fixture = Some(Fixture { daemon, model }),
            Err(failed) => scenario.restart(failed.status, &failed.stderr, model),
        }
        scenario
    }

    fn fixture(&self) -> &Fixture {
        self.fixture.as_ref().expect("a daemon runs except during a restart")
    }

    /// Waits for the daemon to abort, which happens once, and starts it again without the failpoint.
    fn restart_after_abort(&mut self) {
        let Fixture { daemon, model } = self.fixture.take().expect("a daemon was running");
        let stopped = daemon.wait_stopped();
        self.restart(stopped.status, &stopped.stderr, model);
    }

    fn restart(&mut self, status: ExitStatus, stderr: &str, model: ScriptedModel) {
        let Self { failpoint: point, aborts, .. } = self;
        *aborts += 1;
        assert_eq!((status.signal(), *aborts), (Some(6), 1), "{point}: {status} {stderr}");
        model.release("gate");
        let fixture = Fixture { daemon: self.builder.clone().start(), model };
        wait_turns_ended(&fixture.daemon, &[HELD_REQUEST_ID, ASKED_REQUEST_ID]);
        assert_sound(fixture.daemon.home());
        self.fixture = Some(fixture);
    }

    /// Calls a method, and repeats the call when the daemon aborts before it responds or responds `busy`.
    fn call(&mut self, path: &str, method: &str, params: &Value) -> Value {
        loop {
            match try_call(&self.fixture().daemon, path, method, params.clone()) {
                None => self.restart_after_abort(),
                Some(response) if response["error"]["code"] == -32001 => {}
                Some(response) => return response,
            }
        }
    }

    /// Calls a method that may have been executed before the abort; the repeated call then gets this error.
    fn call_once(&mut self, method: &str, params: &Value, error_if_done: &str) {
        let response = self.call("/", method, params);
        let is_done = self.aborts > 0 && response["error"]["message"] == error_if_done;
        assert!(response.get("result").is_some() || is_done, "{}: {method}: {response}", self.failpoint);
    }

    fn send(&mut self, content: &str, request_id: &str) -> Value {
        self.send_to("a", content, request_id)
    }

    fn send_to(&mut self, agent: &str, content: &str, request_id: &str) -> Value {
        let response = self.call(&agent_path(agent), "send", &send_params(content, request_id));
        assert!(response.get("result").is_some(), "{}: {request_id}: {response}", self.failpoint);
        response["result"].clone()
    }

    fn open_send(&self, content: &str, request_id: &str) -> OpenSend {
        self.open_send_to("a", content, request_id)
    }

    fn open_send_to(&self, agent: &str, content: &str, request_id: &str) -> OpenSend {
        let daemon = &self.fixture().daemon;
        let bytes = request_bytes(daemon, &agent_path(agent), 1, "send", send_params(content, request_id));
        let port = daemon.port();
        let (sender, receiver) = channel();
        thread::spawn(move || {
            let request = || {
                let mut connection = RawConnection::try_open(port).ok()?;
                connection.try_send(&bytes).ok()?;
                Some(connection.try_read_response().ok()?.json())
            };
            // The receiver is gone if the test has failed.
            let _ = sender.send(request());
        });
        OpenSend(receiver)
    }

    fn create(&mut self) {
        let params = json!({
            "agent_id": "a", "preset": "trusted", "cwd": self.folder.path_str(), "initial_message": "!reply first",
        });
        self.call_once("create_agent", &params, "Agent already exists: a");
    }

    /// Appends a line to a file: at most once, and exactly once unless the outcome is reported as unknown.
    fn use_tools(&mut self) {
        let result = self.send(TOOL_SCRIPT, "tools");
        let content = result["content"].as_str().unwrap_or_default();
        let lines = self.folder.read("file").map_or(0, |text| text.lines().count());
        let is_unknown = content.contains("Outcome unknown");
        assert!(lines == 1 || (lines == 0 && is_unknown), "{}: {lines} lines, {content}", self.failpoint);
        assert!(!is_unknown || self.aborts == 1, "{}: {content}", self.failpoint);
        assert!(content.contains("hi"), "{}: the pure tool should run again: {content}", self.failpoint);
    }

    /// Allows a call that asks: it runs at most once, and exactly once unless the outcome is reported as unknown.
    fn approve(&mut self) {
        let params = json!({
            "agent_id": "asker", "preset": "trusted", "cwd": self.folder.path_str(), "ask": ["fs.append_file"],
        });
        self.call_once("create_agent", &params, "Agent already exists: asker");
        let mut pending = self.open_send_to("asker", ASKED_SCRIPT, ASKED_REQUEST_ID);
        while pending.0.try_recv() != Ok(None) && self.folder.read("asked").is_none() {
            let list = self.call("/", "list_approvals", &json!({}));
            if let Some(id) = list["result"]["approvals"][0]["approval_id"].as_str() {
                let answer =
                    self.call("/", "answer_approval", &json!({ "approval_id": id, "answer": "allow" }));
                let text = answer["error"]["message"].as_str().unwrap_or_default();
                // A repeated answer finds the request answered, or the turn ended.
                let is_done =
                    self.aborts > 0 && (text.contains("answered already") || text.contains("not found"));
                assert!(answer.get("result").is_some() || is_done, "{}: {answer}", self.failpoint);
                break;
            }
            if self.aborts > 0 {
                // The send itself may be lost with the daemon; a repeated one joins its turn.
                pending = self.open_send_to("asker", ASKED_SCRIPT, ASKED_REQUEST_ID);
            }
        }
        let result = self.send_to("asker", ASKED_SCRIPT, ASKED_REQUEST_ID);
        let content = result["content"].as_str().unwrap_or_default();
        let lines = self.folder.read("asked").map_or(0, |text| text.lines().count());
        let is_unknown = content.contains("Outcome unknown");
        assert!(lines == 1 || (lines == 0 && is_unknown), "{}: {lines} lines, {content}", self.failpoint);
        self.call_once("destroy_agent", &json!({ "agent_id": "asker" }), "");
    }

    /// Undoes the append: the file was not there before, whether the abort came before or after it.
    fn undo(&mut self) {
        let response = self.call("/", "undo_turn", &json!({ "agent_id": "a" }));
        let message = response["error"]["message"].as_str().unwrap_or_default();
        let was_done =
            message.contains("is undone already") || message == "no turn changed files with file tools";
        let is_repeated = self.aborts > 0 && was_done;
        assert!(response.get("result").is_some() || is_repeated, "{}: {response}", self.failpoint);
        assert_eq!(self.folder.read("file"), None, "{}", self.failpoint);
    }

    fn steer(&mut self) {
        let pending = self.open_send(STEERED_MESSAGE, "steered");
        loop {
            match try_call(&self.fixture().daemon, "/agent/a", "steer", json!({ "content": INSTRUCTION })) {
                None => break self.restart_after_abort(),
                Some(response) if response["result"]["steered"] == true => {
                    self.instruction_was_accepted = true;
                    break;
                }
                // The turn has not begun.
                Some(_) if self.aborts == 0 || pending.0.try_recv() == Err(TryRecvError::Empty) => {}
                // The turn ended before it could be steered.
                Some(_) => break,
            }
        }
        self.fixture().model.release("gate");
        let result = self.send(STEERED_MESSAGE, "steered");
        let content = result["content"].as_str().unwrap_or_default();
        // An instruction that was committed before the abort is part of the repeated model call.
        let has_instruction = content.ends_with(&format!("echo: {INSTRUCTION}"));
        assert!(has_instruction || content == "so far released gate", "{}: {result}", self.failpoint);
        assert!(has_instruction || !self.instruction_was_accepted, "{}: {result}", self.failpoint);
    }

    fn cancel(&mut self) {
        let mut pending = self.open_send("!hold never", HELD_REQUEST_ID);
        let mut early_response = None;
        loop {
            match try_call(
                &self.fixture().daemon,
                "/agent/a",
                "cancel",
                json!({ "request_id": HELD_REQUEST_ID }),
            ) {
                Some(response) if response["result"]["cancelled"] == true => break,
                Some(_) => match pending.0.try_recv() {
                    Ok(Some(response)) => break early_response = Some(response),
                    Ok(None) => self.restart_after_abort(),
                    Err(_) => continue,
                },
                None => self.restart_after_abort(),
            }
            pending = self.open_send("!hold never", HELD_REQUEST_ID);
        }
        let result = early_response
            .map_or_else(|| self.send("!hold never", HELD_REQUEST_ID), |response| response["result"].clone());
        assert_eq!(result["cancelled"], true, "{}: {result}", self.failpoint);
    }

    fn narrow(&mut self) {
        let response =
            self.call("/agent/a", "set_permissions", &json!({ "disable_tools": ["uuid_generate"] }));
        assert!(response.get("result").is_some(), "{}: {response}", self.failpoint);
    }

    /// Makes a call that is denied. The daemon responds without waiting for the commit of the denial.
    fn exceed_permissions(&mut self) {
        let params = json!({ "agent_id": "early", "new_agent_id": "mine" });
        let body =
            json!({ "jsonrpc": "2.0", "id": 1, "method": "rename_agent", "params": params }).to_string();
        let daemon = &self.fixture().daemon;
        let bytes = daemon.post_bytes("/", &[("X-Nexus-Agent", "a")], body.as_bytes());
        let response = RawConnection::try_open(daemon.port()).and_then(|mut connection| {
            connection.try_send(&bytes)?;
            connection.try_read_response()
        });
        if let Ok(response) = response {
            assert_eq!(response.json()["error"]["data"]["kind"], "permission_denied", "{}", response.text());
        }
    }

    fn fork_and_rename(&mut self) {
        let fork = json!({ "agent_id": "a", "new_agent_id": "b", "messages": 2 });
        self.call_once("fork_agent", &fork, "Agent already exists: b");
        self.call("/agent/b", "shutdown", &json!({}));
        let rename = json!({ "agent_id": "b", "new_agent_id": "c" });
        self.call_once("rename_agent", &rename, "Agent not found: b");
        let export = self.call("/", "export_agent", &json!({ "agent_id": "c" }));
        let import = json!({ "session": export["result"]["session"], "agent_id": "d" });
        self.call_once("import_agent", &import, "Agent already exists: d");
        let rollback = json!({ "agent_id": "c", "messages": 0 });
        self.call_once("rollback_agent", &rollback, "");
        self.assert_texts("c", &[]);
        let destroy = json!({ "agent_id": "c" });
        self.call_once("destroy_agent", &destroy, "");
    }

    /// Compacts all turns but the last, once.
    fn compact(&mut self) {
        self.call_once("create_agent", &json!({ "agent_id": "long" }), "Agent already exists: long");
        for turn in ["one", "two", "three"] {
            self.send_to("long", &long_message(turn), turn);
        }
        let response = self.call("/agent/long", "compact", &json!({}));
        let was_done = self.aborts > 0 && response["result"]["reason"] == "nothing_to_compact";
        assert!(response["result"]["compacted"] == true || was_done, "{}: {response}", self.failpoint);
    }

    /// Asserts that the final state is the same as without the abort, before and after one more restart.
    fn stop(&mut self) {
        // Queued records are committed before this call returns, or abort the daemon.
        self.call("/agent/a", "set_permissions", &json!({ "disable_tools": ["uuid_generate"] }));
        self.assert_final_state();
        let Fixture { daemon, model } = self.fixture.take().expect("a daemon runs");
        let stopped = daemon.stop();
        if stopped.status.success() {
            self.fixture = Some(Fixture { daemon: self.builder.clone().start(), model });
        } else {
            self.restart(stopped.status, &stopped.stderr, model);
        }
        assert_eq!(self.aborts, 1, "{} was never reached", self.failpoint);
        self.assert_final_state();
        assert_sound(self.home.path());
    }

    fn assert_final_state(&self) {
        let fixture = self.fixture();
        assert_eq!(agent_ids(&fixture.daemon), ["early", "a", "d", "long"], "{}", self.failpoint);
        let texts: Vec<String> = fixture.messages("long").into_iter().map(|(_, text)| text).collect();
        let [summary, message, reply] = &texts[..] else { panic!("{}: {texts:?}", self.failpoint) };
        assert!(summary.starts_with("[Summary of the earlier conversation: 4 messages"), "{summary}");
        assert!(
            *message == long_message("three") && reply.ends_with(message),
            "{}: {texts:?}",
            self.failpoint
        );
        self.assert_texts("early", &["!hold before so far", "so far released before"]);
        self.assert_texts("d", &["!reply first", "first"]);
        let texts: Vec<String> = fixture.messages("a").into_iter().map(|(_, text)| text).collect();
        let expected = [("!reply first", 1), (TOOL_SCRIPT, 1), (STEERED_MESSAGE, 1), ("!hold never", 1)];
        for (text, times) in expected {
            let found = texts.iter().filter(|found| *found == text).count();
            assert_eq!(found, times, "{}: {text:?} in {texts:?}", self.failpoint);
        }
        let instructions = texts.iter().filter(|text| *text == INSTRUCTION).count();
        let fits = if self.instruction_was_accepted { instructions == 1 } else { instructions <= 1 };
        assert!(fits, "{}: {instructions} instructions in {texts:?}", self.failpoint);
        let tools = fixture.agent("a")["tools"].clone();
        assert!(!tools.to_string().contains("uuid"), "{}: {tools}", self.failpoint);
    }

    fn assert_texts(&self, agent: &str, expected: &[&str]) {
        let texts =
            || -> Vec<String> { self.fixture().messages(agent).into_iter().map(|(_, text)| text).collect() };
        wait_until(
            &format!("{}: the texts of {agent} to be {expected:?}, not {:?}", self.failpoint, texts()),
            || texts() == expected,
        );
    }
}
