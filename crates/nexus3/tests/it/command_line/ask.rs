//! `nexus3 ask`: one question, one answer, with the daemon that is there or one that is started for it.

use std::net::TcpListener;
use std::path::Path;

use rustix::process::Signal;
use serde_json::json;
use testkit::{CommandOutput, ScriptedModel, run};

use crate::support::program::Program;
use crate::support::{BIN, Fixture, agent_path};

fn ask(stage: &Fixture, arguments: &[&str]) -> CommandOutput {
    let port = stage.daemon.port().to_string();
    run(BIN, &[&["ask", "-p", &port], arguments].concat(), &[], stage.daemon.home())
}

#[test]
fn a_question_is_answered_by_the_running_daemon_and_nothing_is_kept() {
    let stage = Fixture::start();
    let finished = ask(&stage, &["hello"]);
    assert_eq!((finished.code, finished.stdout.as_str(), finished.stderr.as_str()), (0, "echo: hello\n", ""));
    assert_eq!(stage.daemon.call_result("/", "list_agents", json!({}))["agents"], json!([]));
}

#[test]
fn an_empty_question_is_not_asked() {
    let stage = Fixture::start();
    for question in ["", " \n", "-"] {
        let finished = ask(&stage, &[question]);
        assert_eq!((finished.code, finished.stdout.as_str()), (2, ""), "{question:?}");
        assert!(finished.stderr.contains("the question is empty"), "{question:?}: {}", finished.stderr);
    }
}

#[test]
fn a_named_agent_remembers_what_it_was_asked() {
    let stage = Fixture::start();
    for question in ["one", "two"] {
        let finished = ask(&stage, &[question, "--agent", "weather"]);
        assert_eq!((finished.code, finished.stdout), (0, format!("echo: {question}\n")));
    }
    let messages = stage.daemon.call_result(&agent_path("weather"), "get_messages", json!({}));
    assert_eq!(messages["total"], 4);
    let finished = ask(&stage, &["three", "--agent", "weather", "--model", "openai/other"]);
    assert_eq!(finished.code, 1);
    assert!(finished.stderr.contains("uses the model openai/"), "{}", finished.stderr);
}

#[test]
fn a_model_that_is_not_there_is_said_and_leaves_no_agent() {
    let stage = Fixture::start();
    let finished = ask(&stage, &["hello", "--model", "nonsense"]);
    assert_eq!((finished.code, finished.stdout.as_str()), (1, ""));
    assert!(finished.stderr.contains("nonsense"), "{}", finished.stderr);
    assert_eq!(stage.daemon.call_result("/", "list_agents", json!({}))["agents"], json!([]));
}

#[test]
fn an_answer_is_printed_once_also_when_the_context_was_made_shorter() {
    let model = "openai/scripted";
    let stage = Fixture::with_config(&format!(
        "model = \"small\"\n[models.small]\nmodel = \"{model}\"\nwindow_tokens = 4096\n"
    ));
    let filler = "words that fill the window ".repeat(60);
    for turn in 0..12 {
        let question = format!("turn {turn}: {filler}");
        let finished = ask(&stage, &[&question, "--agent", "a", "--model", "small"]);
        assert_eq!((finished.code, finished.stdout), (0, format!("echo: {question}\n")), "turn {turn}");
    }
    let first =
        stage.daemon.call_result(&agent_path("a"), "get_messages", json!({}))["messages"][0]["content"]
            .take();
    assert!(first.as_str().is_some_and(|text| text.starts_with("[Summary of")), "{first}");
}

#[test]
fn every_signal_to_stop_cancels_the_question() {
    let stage = Fixture::start();
    let port = stage.daemon.port().to_string();
    for (place, signal) in [Signal::INT, Signal::TERM, Signal::HUP].into_iter().enumerate() {
        let arguments = ["ask", "!stall so far", "-p", &port];
        let command = Program::start(&arguments, &[], stage.daemon.home(), b"");
        stage.model.wait_requests(place + 1);
        stage.model.wait_stalled(1);
        command.signal(signal);
        let finished = command.finish();
        assert_eq!(finished.code, 1, "{signal:?}: {finished:?}");
        assert!(finished.stderr.contains("interrupted; cancelling "), "{signal:?}: {finished:?}");
        stage.model.wait_aborted(place + 1);
    }
}

#[test]
fn a_question_that_is_to_outlive_its_terminal_does() {
    let stage = Fixture::start();
    let (home, port) = (stage.daemon.home().display().to_string(), stage.daemon.port());
    let line = format!("trap '' HUP; exec env -i {BIN} --home {home} ask '!hold gate' -p {port}");
    let command = Program::shell(&line);
    stage.model.wait_stalled(1);
    command.signal(Signal::HUP);
    stage.model.release("gate");
    let finished = command.finish();
    assert_eq!((finished.code, finished.stdout.as_str()), (0, " released gate\n"), "{finished:?}");
}

/// A daemon that nobody holds; it is stopped at the end, whatever became of the test.
struct BackgroundDaemon<'a> {
    home: &'a Path,
    port: String,
}

impl BackgroundDaemon<'_> {
    fn rpc(&self, arguments: &[&str]) -> CommandOutput {
        run(BIN, &[&["rpc", "-p", &self.port], arguments].concat(), &[], self.home)
    }
}

impl Drop for BackgroundDaemon<'_> {
    fn drop(&mut self) {
        let _ = self.rpc(&["shutdown"]);
    }
}

fn free_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it has an address").port().to_string()
}

#[test]
fn a_daemon_is_started_when_there_is_none_and_the_next_question_finds_it() {
    let (home, model) = (tempfile::tempdir().expect("a folder"), ScriptedModel::start());
    let started = BackgroundDaemon { home: home.path(), port: free_port() };
    let environment = [
        ("OPENAI_BASE_URL", model.base_url()),
        ("OPENAI_API_KEY", model.key().unwrap_or("none")),
        ("NEXUS3_MODEL", "openai/scripted"),
    ];
    for question in ["hello", "again"] {
        let finished = run(BIN, &["ask", question, "-p", &started.port], &environment, home.path());
        assert_eq!(
            (finished.code, finished.stdout),
            (0, format!("echo: {question}\n")),
            "{}",
            finished.stderr
        );
    }
    assert_eq!(started.rpc(&["detect"]).code, 0, "it is still there");
    assert_eq!(started.rpc(&["shutdown"]).code, 0);
}

#[test]
fn a_daemon_that_does_not_start_says_why() {
    let home = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(home.path().join("nexus3.db")).expect("a folder where the store should be");
    let environment = [("NEXUS3_MODEL", "openai/scripted"), ("OPENAI_API_KEY", "none")];
    let finished = run(BIN, &["ask", "hello", "-p", &free_port()], &environment, home.path());
    assert_eq!((finished.code, finished.stdout.as_str()), (1, ""), "{}", finished.stderr);
    let said = &finished.stderr;
    assert!(said.contains("did not start") && said.contains("nexus3.db"), "{said}");
}

#[test]
fn whatever_else_uses_the_port_is_left_alone() {
    let (home, model) = (tempfile::tempdir().expect("a folder"), ScriptedModel::start());
    let port = model.port().to_string();
    let finished = run(BIN, &["ask", "hello", "-p", &port], &[], home.path());
    assert_eq!((finished.code, finished.stdout.as_str()), (1, ""));
    assert!(finished.stderr.contains("choose another one with -p PORT"), "{}", finished.stderr);
}
