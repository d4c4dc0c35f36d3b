//! Everything that can be done to agents, one after the other, with a daemon that is aborted once on the way: what was not
//! answered is asked for again, and the end has to be the same as without the abort.

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

/// The send that a test keeps open until it is cancelled.
const HELD_REQUEST_ID: &str = "held";
const TOOL_SCRIPT: &str =
    "!tool echo {\"text\":\"hi\"}\n!tool fs_append_file {\"path\":\"file\",\"content\":\"line\"}";
const STEERED_MESSAGE: &str = "!hold gate so far";
const INSTRUCTION: &str = "a word";

/// A message that is worth summing up.
fn long_message(turn: &str) -> String {
    format!("turn {turn}{}", " and words".repeat(40))
}

/// One course.
pub(super) struct Scenario {
    /// None while there is no daemon.
    stage: Option<Fixture>,
    builder: TestDaemonBuilder,
    failpoint: String,
    aborts: usize,
    /// What was acknowledged, where that makes a difference.
    instruction_was_accepted: bool,
    folder: TestDirectory,
    home: TestDirectory,
}

/// A send that is open; none is its answer when the daemon ends before.
struct OpenSend(Receiver<Option<Value>>);

impl Scenario {
    pub(super) fn run(point: &str) {
        let mut course = Self::new(point);
        course.create();
        course.use_tools();
        course.steer();
        course.cancel();
        course.narrow();
        course.exceed_permissions();
        course.fork_and_rename();
        course.compact();
        course.stop();
    }

    /// The first life leaves a turn open; the second fails at the point, if it can do so already.
    fn new(point: &str) -> Self {
        let (home, folder, model) = (TestDirectory::new(), TestDirectory::new(), ScriptedModel::start());
        let start = daemon_builder(&model).home(home.path());
        let stage = Fixture { daemon: start.clone().start(), model };
        stage.create("early");
        let open = stage.start_send("early", "!hold before so far", "early");
        stage.model.wait_stalled(1);
        let Fixture { daemon, model } = stage;
        daemon.kill();
        drop(open);
        model.release("before");
        let point = point.to_owned();
        let mut course = Self {
            stage: None,
            builder: start,
            failpoint: point,
            aborts: 0,
            instruction_was_accepted: false,
            folder,
            home,
        };
        match course.builder.clone().env(FAILPOINTS_VARIABLE, &course.failpoint).try_start() {
            Ok(daemon) => course.stage = Some(Fixture { daemon, model }),
            Err(failed) => course.restart(failed.status, &failed.stderr, model),
        }
        course
    }

    fn stage(&self) -> &Fixture {
        self.stage.as_ref().expect("there is a daemon but while it is started again")
    }

    /// The daemon is gone: it was aborted, once, and is started again without the point.
    fn restart_after_abort(&mut self) {
        let Fixture { daemon, model } = self.stage.take().expect("there was a daemon");
        let stopped = daemon.wait_stopped();
        self.restart(stopped.status, &stopped.stderr, model);
    }

    fn restart(&mut self, status: ExitStatus, stderr: &str, model: ScriptedModel) {
        let Self { failpoint: point, aborts, .. } = self;
        *aborts += 1;
        assert_eq!((status.signal(), *aborts), (Some(6), 1), "{point}: {status} {stderr}");
        model.release("gate");
        let stage = Fixture { daemon: self.builder.clone().start(), model };
        wait_turns_ended(&stage.daemon, &[HELD_REQUEST_ID]);
        assert_sound(stage.daemon.home());
        self.stage = Some(stage);
    }

    /// Calls, and calls again when the daemon was aborted before it answered, or says that it is busy.
    fn call(&mut self, path: &str, method: &str, params: &Value) -> Value {
        loop {
            match try_call(&self.stage().daemon, path, method, params.clone()) {
                None => self.restart_after_abort(),
                Some(response) if response["error"]["code"] == -32001 => {}
                Some(response) => return response,
            }
        }
    }

    /// A call that may have been done before the abort; then it is answered so.
    fn call_once(&mut self, method: &str, params: &Value, done_before: &str) {
        let response = self.call("/", method, params);
        let is_done = self.aborts > 0 && response["error"]["message"] == done_before;
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
        let daemon = &self.stage().daemon;
        let bytes = request_bytes(daemon, "/agent/a", 1, "send", send_params(content, request_id));
        let port = daemon.port();
        let (answered, answer) = channel();
        thread::spawn(move || {
            let ask = || {
                let mut connection = RawConnection::try_open(port).ok()?;
                connection.try_send(&bytes).ok()?;
                Some(connection.try_read_response().ok()?.json())
            };
            // Nobody waits when the test has failed.
            let _ = answered.send(ask());
        });
        OpenSend(answer)
    }

    fn create(&mut self) {
        let params = json!({
            "agent_id": "a", "preset": "trusted", "cwd": self.folder.path_str(), "initial_message": "!reply first",
        });
        self.call_once("create_agent", &params, "Agent already exists: a");
    }

    /// Every line at most once, and exactly once when somebody knows.
    fn use_tools(&mut self) {
        let answer = self.send(TOOL_SCRIPT, "tools");
        let said = answer["content"].as_str().unwrap_or_default();
        let lines = self.folder.read("file").map_or(0, |text| text.lines().count());
        let is_unknown = said.contains("Outcome unknown");
        assert!(lines == 1 || (lines == 0 && is_unknown), "{}: {lines} lines, {said}", self.failpoint);
        assert!(!is_unknown || self.aborts == 1, "{}: {said}", self.failpoint);
        assert!(said.contains("hi"), "{}: the other tool runs again: {said}", self.failpoint);
    }

    fn steer(&mut self) {
        let open = self.open_send(STEERED_MESSAGE, "steered");
        loop {
            match try_call(&self.stage().daemon, "/agent/a", "steer", json!({ "content": INSTRUCTION })) {
                None => break self.restart_after_abort(),
                Some(response) if response["result"]["steered"] == true => {
                    self.instruction_was_accepted = true;
                    break;
                }
                // The turn has not begun.
                Some(_) if self.aborts == 0 || open.0.try_recv() == Err(TryRecvError::Empty) => {}
                // It was over before there was a word.
                Some(_) => break,
            }
        }
        self.stage().model.release("gate");
        let answer = self.send(STEERED_MESSAGE, "steered");
        let said = answer["content"].as_str().unwrap_or_default();
        // A word that was kept before the abort is read with the question when that is asked again.
        let has_word = said.ends_with("echo: a word");
        assert!(has_word || said == "so far released gate", "{}: {answer}", self.failpoint);
        assert!(has_word || !self.instruction_was_accepted, "{}: {answer}", self.failpoint);
    }

    fn cancel(&mut self) {
        let mut open = self.open_send("!hold never", HELD_REQUEST_ID);
        let mut answer = None;
        loop {
            match try_call(
                &self.stage().daemon,
                "/agent/a",
                "cancel",
                json!({ "request_id": HELD_REQUEST_ID }),
            ) {
                Some(response) if response["result"]["cancelled"] == true => break,
                Some(_) => match open.0.try_recv() {
                    Ok(Some(over)) => break answer = Some(over),
                    Ok(None) => self.restart_after_abort(),
                    Err(_) => continue,
                },
                None => self.restart_after_abort(),
            }
            open = self.open_send("!hold never", HELD_REQUEST_ID);
        }
        let answer =
            answer.map_or_else(|| self.send("!hold never", HELD_REQUEST_ID), |over| over["result"].clone());
        assert_eq!(answer["cancelled"], true, "{}: {answer}", self.failpoint);
    }

    fn narrow(&mut self) {
        let response =
            self.call("/agent/a", "set_permissions", &json!({ "disable_tools": ["uuid_generate"] }));
        assert!(response.get("result").is_some(), "{}: {response}", self.failpoint);
    }

    /// What was denied is in the journal; nobody waits for that.
    fn exceed_permissions(&mut self) {
        let params = json!({ "agent_id": "early", "new_agent_id": "mine" });
        let body =
            json!({ "jsonrpc": "2.0", "id": 1, "method": "rename_agent", "params": params }).to_string();
        let daemon = &self.stage().daemon;
        let bytes = daemon.post_bytes("/", &[("X-Nexus-Agent", "a")], body.as_bytes());
        let answer = RawConnection::try_open(daemon.port()).and_then(|mut connection| {
            connection.try_send(&bytes)?;
            connection.try_read_response()
        });
        if let Ok(answer) = answer {
            assert_eq!(answer.json()["error"]["data"]["kind"], "permission_denied", "{}", answer.text());
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
        self.assert_said("c", &[]);
        let destroy = json!({ "agent_id": "c" });
        self.call_once("destroy_agent", &destroy, "");
    }

    /// Everything but the last question and its answer is summed up, once.
    fn compact(&mut self) {
        self.call_once("create_agent", &json!({ "agent_id": "long" }), "Agent already exists: long");
        for turn in ["one", "two", "three"] {
            self.send_to("long", &long_message(turn), turn);
        }
        let response = self.call("/agent/long", "compact", &json!({}));
        let was_done = self.aborts > 0 && response["result"]["reason"] == "nothing_to_compact";
        assert!(response["result"]["compacted"] == true || was_done, "{}: {response}", self.failpoint);
    }

    /// The end is what it would be without the abort, now and after one more start.
    fn stop(&mut self) {
        // Whatever was still on its way to the journal gets there, or aborts the daemon.
        self.call("/agent/a", "set_permissions", &json!({ "disable_tools": ["uuid_generate"] }));
        self.assert_end();
        let Fixture { daemon, model } = self.stage.take().expect("there is a daemon");
        let stopped = daemon.stop();
        if stopped.status.success() {
            self.stage = Some(Fixture { daemon: self.builder.clone().start(), model });
        } else {
            self.restart(stopped.status, &stopped.stderr, model);
        }
        assert_eq!(self.aborts, 1, "{} was never met", self.failpoint);
        self.assert_end();
        assert_sound(self.home.path());
    }

    fn assert_end(&self) {
        let stage = self.stage();
        assert_eq!(agent_ids(&stage.daemon), ["early", "a", "d", "long"], "{}", self.failpoint);
        let kept: Vec<String> = stage.messages("long").into_iter().map(|(_, text)| text).collect();
        let [summary, asked, answered] = &kept[..] else { panic!("{}: {kept:?}", self.failpoint) };
        assert!(summary.starts_with("[Summary of the earlier conversation: 4 messages"), "{summary}");
        assert!(*asked == long_message("three") && answered.ends_with(asked), "{}: {kept:?}", self.failpoint);
        self.assert_said("early", &["!hold before so far", "so far released before"]);
        self.assert_said("d", &["!reply first", "first"]);
        let said: Vec<String> = stage.messages("a").into_iter().map(|(_, text)| text).collect();
        let expected = [("!reply first", 1), (TOOL_SCRIPT, 1), (STEERED_MESSAGE, 1), ("!hold never", 1)];
        for (text, times) in expected {
            let found = said.iter().filter(|said| *said == text).count();
            assert_eq!(found, times, "{}: {text:?} in {said:?}", self.failpoint);
        }
        let words = said.iter().filter(|said| *said == INSTRUCTION).count();
        let fits = if self.instruction_was_accepted { words == 1 } else { words <= 1 };
        assert!(fits, "{}: {words} words in {said:?}", self.failpoint);
        let tools = stage.agent("a")["tools"].clone();
        assert!(!tools.to_string().contains("uuid"), "{}: {tools}", self.failpoint);
    }

    fn assert_said(&self, agent: &str, expected: &[&str]) {
        let texts =
            || -> Vec<String> { self.stage().messages(agent).into_iter().map(|(_, text)| text).collect() };
        wait_until(
            &format!("{}: what {agent} said: {expected:?}, not {:?}", self.failpoint, texts()),
            || texts() == expected,
        );
    }
}
