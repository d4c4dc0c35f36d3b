//! `nexus3 ask`: one question and its response, from the running daemon or from one that the command starts.

use std::net::TcpListener;
use std::path::Path;

use rustix::process::Signal;
use serde_json::json;
use testkit::{CommandOutput, ScriptedModel, run};

use crate::support::program::Program;
use crate::support::{BIN, Fixture, agent_path};

fn ask(fixture: &Fixture, arguments: &[&str]) -> CommandOutput {
    let port = fixture.daemon.port().to_string();
    run(BIN, &[&["ask", "-p", &port], arguments].concat(), &[], fixture.daemon.home())
}

#[test]
fn running_daemon_responds_and_no_agent_remains() {
    let fixture = Fixture::start();
    let finished = ask(&fixture, &["hello"]);
    assert_eq!((finished.code, finished.stdout.as_str(), finished.stderr.as_str()), (0, "echo: hello\n", ""));
    assert_eq!(fixture.daemon.call_result("/", "list_agents", json!({}))["agents"], json!([]));
}

#[test]
fn empty_question_is_wrong_usage() {
    let fixture = Fixture::start();
    for question in ["", " \n", "-"] {
        let finished = ask(&fixture, &[question]);
        assert_eq!((finished.code, finished.stdout.as_str()), (2, ""), "{question:?}");
        assert!(finished.stderr.contains("the question is empty"), "{question:?}: {}", finished.stderr);
    }
}

#[test]
fn named_agent_remembers_earlier_questions() {
    let fixture = Fixture::start();
    for question in ["one", "two"] {
        let finished = ask(&fixture, &[question, "--agent", "weather"]);
        assert_eq!((finished.code, finished.stdout), (0, format!("echo: {question}\n")));
    }
    let messages = fixture.daemon.call_result(&agent_path("weather"), "get_messages", json!({}));
    assert_eq!(messages["total"], 4);
    let finished = ask(&fixture, &["three", "--agent", "weather", "--model", "openai/other"]);
    assert_eq!(finished.code, 1);
    assert!(finished.stderr.contains("uses the model openai/"), "{}", finished.stderr);
}

#[test]
fn unknown_model_is_reported_and_leaves_no_agent() {
    let fixture = Fixture::start();
    let finished = ask(&fixture, &["hello", "--model", "nonsense"]);
    assert_eq!((finished.code, finished.stdout.as_str()), (1, ""));
    assert!(finished.stderr.contains("nonsense"), "{}", finished.stderr);
    assert_eq!(fixture.daemon.call_result("/", "list_agents", json!({}))["agents"], json!([]));
}

#[test]
fn response_is_printed_once_across_compaction() {
    let model = "openai/scripted";
    let fixture = Fixture::with_config(&format!(
        "model = \"small\"\n[models.small]\nmodel = \"{model}\"\nwindow_tokens = 4096\n"
    ));
    let filler = "words that fill the window ".repeat(60);
    for turn in 0..12 {
        let question = format!("turn {turn}: {filler}");
        let finished = ask(&fixture, &[&question, "--agent", "a", "--model", "small"]);
        assert_eq!((finished.code, finished.stdout), (0, format!("echo: {question}\n")), "turn {turn}");
    }
    let first =
        fixture.daemon.call_result(&agent_path("a"), "get_messages", json!({}))["messages"][0]["content"]
            .take();
    assert!(first.as_str().is_some_and(|text| text.starts_with("[Summary of")), "{first}");
}

#[test]
fn each_stop_signal_cancels_the_question() {
    let fixture = Fixture::start();
    let port = fixture.daemon.port().to_string();
    for (index, signal) in [Signal::INT, Signal::TERM, Signal::HUP].into_iter().enumerate() {
        let arguments = ["ask", "!stall so far", "-p", &port];
        let command = Program::start(&arguments, &[], fixture.daemon.home(), b"");
        fixture.model.wait_requests(index + 1);
        fixture.model.wait_stalled(1);
        command.signal(signal);
        let finished = command.finish();
        assert_eq!(finished.code, 1, "{signal:?}: {finished:?}");
        assert!(finished.stderr.contains("interrupted; cancelling "), "{signal:?}: {finished:?}");
        fixture.model.wait_aborted(index + 1);
    }
}

#[test]
fn ignored_hangup_does_not_cancel_the_question() {
    let fixture = Fixture::start();
    let (home, port) = (fixture.daemon.home().display().to_string(), fixture.daemon.port());
    let line = format!("trap '' HUP; exec env -i {BIN} --home {home} ask '!hold gate' -p {port}");
    let command = Program::shell(&line);
    fixture.model.wait_stalled(1);
    command.signal(Signal::HUP);
    fixture.model.release("gate");
    let finished = command.finish();
    assert_eq!((finished.code, finished.stdout.as_str()), (0, " released gate\n"), "{finished:?}");
}

/// A daemon that is no child of the test; it is stopped on drop, even if the test fails.
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
    listener.local_addr().expect("a listener has an address").port().to_string()
}

#[test]
fn ask_starts_a_daemon_that_the_next_ask_uses() {
    let (home, model) = (tempfile::tempdir().expect("a temporary directory"), ScriptedModel::start());
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
    assert_eq!(started.rpc(&["detect"]).code, 0, "the daemon is still running");
    assert_eq!(started.rpc(&["shutdown"]).code, 0);
}

#[test]
fn failed_daemon_start_reports_the_reason() {
    let home = tempfile::tempdir().expect("a temporary directory");
    std::fs::create_dir(home.path().join("nexus3.db")).expect("a directory in place of the store");
    let environment = [("NEXUS3_MODEL", "openai/scripted"), ("OPENAI_API_KEY", "none")];
    let finished = run(BIN, &["ask", "hello", "-p", &free_port()], &environment, home.path());
    assert_eq!((finished.code, finished.stdout.as_str()), (1, ""), "{}", finished.stderr);
    let stderr = &finished.stderr;
    assert!(stderr.contains("did not start") && stderr.contains("nexus3.db"), "{stderr}");
}

#[test]
fn another_service_on_the_port_is_reported() {
    let (home, model) = (tempfile::tempdir().expect("a temporary directory"), ScriptedModel::start());
    let port = model.port().to_string();
    let finished = run(BIN, &["ask", "hello", "-p", &port], &[], home.path());
    assert_eq!((finished.code, finished.stdout.as_str()), (1, ""));
    assert!(finished.stderr.contains("choose another port with -p PORT"), "{}", finished.stderr);
}
