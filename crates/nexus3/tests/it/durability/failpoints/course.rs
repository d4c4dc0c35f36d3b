//! Everything that can be done to agents, one after the other, with a daemon that is aborted once on the way: what was not
//! answered is asked for again, and the end has to be the same as without the abort.

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

use serde_json::{Value, json};
use testkit::{RawConnection, ScriptedModel, TestDaemonBuilder};

use crate::durability::{FAILPOINTS, assert_sound, attempt, send_params, wait_settled};
use crate::support::calls::request;
use crate::support::folder::Folder;
use crate::support::{Stage, builder, listed, path, until};

/// The send that a test keeps open until it is cancelled.
const HELD: &str = "held";
const TOOLS: &str =
    "!tool echo {\"text\":\"hi\"}\n!tool fs_append_file {\"path\":\"file\",\"content\":\"line\"}";
const STEERED: &str = "!hold gate so far";
const WORD: &str = "a word";

/// A message that is worth summing up.
fn long(turn: &str) -> String {
    format!("turn {turn}{}", " and words".repeat(40))
}

/// One course.
pub(super) struct Course {
    /// None while there is no daemon.
    stage: Option<Stage>,
    start: TestDaemonBuilder,
    point: String,
    aborts: usize,
    /// What was acknowledged, where that makes a difference.
    word_was_taken: bool,
    folder: Folder,
    home: Folder,
}

/// A send that is open; none is its answer when the daemon ends before.
struct OpenSend(Receiver<Option<Value>>);

impl Course {
    pub(super) fn run(point: &str) {
        let mut course = Self::begin(point);
        course.create();
        course.use_tools();
        course.steer();
        course.cancel();
        course.narrow();
        course.want_too_much();
        course.go_through_names();
        course.compact();
        course.stop();
    }

    /// The first life leaves a turn open; the second fails at the point, if it can do so already.
    fn begin(point: &str) -> Self {
        let (home, folder, model) = (Folder::new(), Folder::new(), ScriptedModel::start());
        let start = builder(&model).home(home.path());
        let stage = Stage { daemon: start.clone().start(), model };
        stage.create("early");
        let open = stage.start_send("early", "!hold before so far", "early");
        stage.model.wait_stalled(1);
        let Stage { daemon, model } = stage;
        daemon.kill();
        drop(open);
        model.release("before");
        let point = point.to_owned();
        let mut course = Self { stage: None, start, point, aborts: 0, word_was_taken: false, folder, home };
        match course.start.clone().env(FAILPOINTS, &course.point).try_start() {
            Ok(daemon) => course.stage = Some(Stage { daemon, model }),
            Err(failed) => course.start_again(failed.status, &failed.stderr, model),
        }
        course
    }

    fn stage(&self) -> &Stage {
        self.stage.as_ref().expect("there is a daemon but while it is started again")
    }

    /// The daemon is gone: it was aborted, once, and is started again without the point.
    fn mend(&mut self) {
        let Stage { daemon, model } = self.stage.take().expect("there was a daemon");
        let stopped = daemon.wait_stopped();
        self.start_again(stopped.status, &stopped.stderr, model);
    }

    fn start_again(&mut self, status: ExitStatus, stderr: &str, model: ScriptedModel) {
        let Self { point, aborts, .. } = self;
        *aborts += 1;
        assert_eq!((status.signal(), *aborts), (Some(6), 1), "{point}: {status} {stderr}");
        model.release("gate");
        let stage = Stage { daemon: self.start.clone().start(), model };
        wait_settled(&stage.daemon, &[HELD]);
        assert_sound(stage.daemon.home());
        self.stage = Some(stage);
    }

    /// Calls, and calls again when the daemon was aborted before it answered, or says that it is busy.
    fn call(&mut self, path: &str, method: &str, params: &Value) -> Value {
        loop {
            match attempt(&self.stage().daemon, path, method, params.clone()) {
                None => self.mend(),
                Some(response) if response["error"]["code"] == -32001 => {}
                Some(response) => return response,
            }
        }
    }

    /// A call that may have been done before the abort; then it is answered so.
    fn call_once(&mut self, method: &str, params: &Value, done_before: &str) {
        let response = self.call("/", method, params);
        let is_done = self.aborts > 0 && response["error"]["message"] == done_before;
        assert!(response.get("result").is_some() || is_done, "{}: {method}: {response}", self.point);
    }

    fn send(&mut self, content: &str, request_id: &str) -> Value {
        self.send_to("a", content, request_id)
    }

    fn send_to(&mut self, agent: &str, content: &str, request_id: &str) -> Value {
        let response = self.call(&path(agent), "send", &send_params(content, request_id));
        assert!(response.get("result").is_some(), "{}: {request_id}: {response}", self.point);
        response["result"].clone()
    }

    fn open_send(&self, content: &str, request_id: &str) -> OpenSend {
        let daemon = &self.stage().daemon;
        let bytes = request(daemon, "/agent/a", 1, "send", send_params(content, request_id));
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
            "agent_id": "a", "preset": "trusted", "cwd": self.folder.text(), "initial_message": "!reply first",
        });
        self.call_once("create_agent", &params, "Agent already exists: a");
    }

    /// Every line at most once, and exactly once when somebody knows.
    fn use_tools(&mut self) {
        let answer = self.send(TOOLS, "tools");
        let said = answer["content"].as_str().unwrap_or_default();
        let lines = self.folder.read("file").map_or(0, |text| text.lines().count());
        let is_unknown = said.contains("Outcome unknown");
        assert!(lines == 1 || (lines == 0 && is_unknown), "{}: {lines} lines, {said}", self.point);
        assert!(!is_unknown || self.aborts == 1, "{}: {said}", self.point);
        assert!(said.contains("hi"), "{}: the other tool runs again: {said}", self.point);
    }

    fn steer(&mut self) {
        let open = self.open_send(STEERED, "steered");
        loop {
            match attempt(&self.stage().daemon, "/agent/a", "steer", json!({ "content": WORD })) {
                None => break self.mend(),
                Some(response) if response["result"]["steered"] == true => {
                    self.word_was_taken = true;
                    break;
                }
                // The turn has not begun.
                Some(_) if self.aborts == 0 || open.0.try_recv() == Err(TryRecvError::Empty) => {}
                // It was over before there was a word.
                Some(_) => break,
            }
        }
        self.stage().model.release("gate");
        let answer = self.send(STEERED, "steered");
        let said = answer["content"].as_str().unwrap_or_default();
        // A word that was kept before the abort is read with the question when that is asked again.
        let has_word = said.ends_with("echo: a word");
        assert!(has_word || said == "so far released gate", "{}: {answer}", self.point);
        assert!(has_word || !self.word_was_taken, "{}: {answer}", self.point);
    }

    fn cancel(&mut self) {
        let mut open = self.open_send("!hold never", HELD);
        let mut answer = None;
        loop {
            match attempt(&self.stage().daemon, "/agent/a", "cancel", json!({ "request_id": HELD })) {
                Some(response) if response["result"]["cancelled"] == true => break,
                Some(_) => match open.0.try_recv() {
                    Ok(Some(over)) => break answer = Some(over),
                    Ok(None) => self.mend(),
                    Err(_) => continue,
                },
                None => self.mend(),
            }
            open = self.open_send("!hold never", HELD);
        }
        let answer = answer.map_or_else(|| self.send("!hold never", HELD), |over| over["result"].clone());
        assert_eq!(answer["cancelled"], true, "{}: {answer}", self.point);
    }

    fn narrow(&mut self) {
        let response =
            self.call("/agent/a", "set_permissions", &json!({ "disable_tools": ["uuid_generate"] }));
        assert!(response.get("result").is_some(), "{}: {response}", self.point);
    }

    /// What was denied is in the journal; nobody waits for that.
    fn want_too_much(&mut self) {
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

    fn go_through_names(&mut self) {
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
            self.send_to("long", &long(turn), turn);
        }
        let response = self.call("/agent/long", "compact", &json!({}));
        let was_done = self.aborts > 0 && response["result"]["reason"] == "nothing_to_compact";
        assert!(response["result"]["compacted"] == true || was_done, "{}: {response}", self.point);
    }

    /// The end is what it would be without the abort, now and after one more start.
    fn stop(&mut self) {
        // Whatever was still on its way to the journal gets there, or aborts the daemon.
        self.call("/agent/a", "set_permissions", &json!({ "disable_tools": ["uuid_generate"] }));
        self.assert_end();
        let Stage { daemon, model } = self.stage.take().expect("there is a daemon");
        let stopped = daemon.stop();
        if stopped.status.success() {
            self.stage = Some(Stage { daemon: self.start.clone().start(), model });
        } else {
            self.start_again(stopped.status, &stopped.stderr, model);
        }
        assert_eq!(self.aborts, 1, "{} was never met", self.point);
        self.assert_end();
        assert_sound(self.home.path());
    }

    fn assert_end(&self) {
        let stage = self.stage();
        assert_eq!(listed(&stage.daemon), ["early", "a", "d", "long"], "{}", self.point);
        let kept: Vec<String> = stage.messages("long").into_iter().map(|(_, text)| text).collect();
        let [summary, asked, answered] = &kept[..] else { panic!("{}: {kept:?}", self.point) };
        assert!(summary.starts_with("[Summary of the earlier conversation: 4 messages"), "{summary}");
        assert!(*asked == long("three") && answered.ends_with(asked), "{}: {kept:?}", self.point);
        self.assert_said("early", &["!hold before so far", "so far released before"]);
        self.assert_said("d", &["!reply first", "first"]);
        let said: Vec<String> = stage.messages("a").into_iter().map(|(_, text)| text).collect();
        let expected = [("!reply first", 1), (TOOLS, 1), (STEERED, 1), ("!hold never", 1)];
        for (text, times) in expected {
            let found = said.iter().filter(|said| *said == text).count();
            assert_eq!(found, times, "{}: {text:?} in {said:?}", self.point);
        }
        let words = said.iter().filter(|said| *said == WORD).count();
        let fits = if self.word_was_taken { words == 1 } else { words <= 1 };
        assert!(fits, "{}: {words} words in {said:?}", self.point);
        let tools = stage.agent("a")["tools"].clone();
        assert!(!tools.to_string().contains("uuid"), "{}: {tools}", self.point);
    }

    fn assert_said(&self, agent: &str, expected: &[&str]) {
        let texts =
            || -> Vec<String> { self.stage().messages(agent).into_iter().map(|(_, text)| text).collect() };
        until(&format!("{}: what {agent} said: {expected:?}, not {:?}", self.point, texts()), || {
            texts() == expected
        });
    }
}
