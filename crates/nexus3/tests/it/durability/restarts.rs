//! A daemon that ends in the middle of things, by a kill or in order, and is started again.

mod state_after_restart;

use serde_json::{Value, json};
use testkit::TestDaemon;

use super::{
    JournalReader, assert_aborted, assert_sound, curl, curl_args, entries_of_kind, send_params,
    wait_turns_ended,
};
use crate::support::program::Program;
use crate::support::{Fixture, agent_path, wait_until};

fn as_messages(lines: &[(&str, &str)]) -> Vec<(String, String)> {
    lines.iter().map(|(role, text)| ((*role).to_owned(), (*text).to_owned())).collect()
}

/// Sends until the answer is not that the turn was interrupted: who comes while it is being marked hears that.
fn send_duplicate(stage: &Fixture, agent: &str, content: &str, request_id: &str) -> Value {
    let mut answer = Value::Null;
    wait_until("an answer", || {
        answer = stage.send_with_request_id(agent, content, request_id);
        answer["error"]["data"]["kind"] != "interrupted"
    });
    answer
}

#[test]
fn a_send_that_a_kill_cut_off_is_repeated_by_curl_and_is_one_question_and_one_answer() {
    let stage = Fixture::start();
    stage.create("worker");
    let params = send_params("!hold gate paid", "bill-17");
    let args = curl_args(&stage.daemon, "/agent/worker", "send", &params);
    let quoted: Vec<String> = args.iter().map(|arg| format!("'{arg}'")).collect();
    let cut_off = Program::shell(&format!("curl {}", quoted.join(" ")));
    stage.model.wait_stalled(1);
    let stage = stage.kill_and_start();
    let cut_off = cut_off.finish();
    assert_eq!((cut_off.code, cut_off.stdout.as_str()), (52, ""), "curl got no answer: {}", cut_off.stderr);
    stage.model.wait_called("!hold gate paid", 0, 2);
    stage.model.release("gate");
    let again = curl(&stage.daemon, "/agent/worker", "send", &params);
    assert_eq!(again["result"]["content"], "paid released gate", "{again}");
    let paid = as_messages(&[("user", "!hold gate paid"), ("assistant", "paid released gate")]);
    assert_eq!(stage.messages("worker"), paid);
    assert_eq!(curl(&stage.daemon, "/agent/worker", "send", &params), again, "an answer is an answer");
    let stage = stage.kill_and_start();
    assert_eq!(curl(&stage.daemon, "/agent/worker", "send", &params), again, "in every life");
    assert_eq!(stage.messages("worker"), paid);
    assert_eq!(
        stage.model.call_counts("!hold gate paid", 0).requests,
        2,
        "once before the kill and once after it"
    );
    let other = curl(&stage.daemon, "/agent/worker", "send", &send_params("something else", "bill-17"));
    let text = "request_id was used before with other content: bill-17";
    assert_eq!((&other["error"]["code"], &other["error"]["message"]), (&json!(-32602), &json!(text)));
    assert_sound(stage.daemon.home());
}

#[test]
fn an_answer_that_was_kept_and_not_told_is_told_and_not_asked_for_again() {
    let stage = Fixture::with_failpoints("commit.after:turn_ended=abort");
    stage.create("worker");
    stage.send_expecting_abort("worker", "hello", "r");
    let stage = stage.restart_after_abort();
    let again = stage.send_with_request_id("worker", "hello", "r");
    assert_eq!(again["result"]["content"], "echo: hello", "{again}");
    assert_eq!(stage.model.call_counts("hello", 0).requests, 1);
    assert_eq!(stage.messages("worker").len(), 2);
}

#[test]
fn an_answer_that_was_not_kept_is_asked_for_once_more() {
    let stage = Fixture::with_failpoints("commit.before:turn_ended=abort");
    stage.create("worker");
    stage.send_expecting_abort("worker", "hello", "r");
    let stage = stage.restart_after_abort();
    assert_eq!(stage.send_with_request_id("worker", "hello", "r")["result"]["content"], "echo: hello");
    assert_eq!(stage.model.call_counts("hello", 0).requests, 2);
    assert_eq!(stage.messages("worker").len(), 2);
    let entries = JournalReader::read_all(&stage.daemon);
    assert_eq!(entries_of_kind(&entries, "turn_reopened").len(), 1);
    assert_eq!(entries_of_kind(&entries, "turn_ended").len(), 1);
}

#[test]
fn rounds_that_were_kept_are_not_asked_for_again() {
    let stage = Fixture::with_failpoints("commit.before:turn_ended=abort");
    stage.create("worker");
    let call = r#"!tool echo {"text":"once"}"#;
    stage.send_expecting_abort("worker", call, "r");
    let stage = stage.restart_after_abort();
    let again = stage.send_with_request_id("worker", call, "r");
    assert!(again["result"]["content"].as_str().is_some_and(|text| text.contains("once")), "{again}");
    assert_eq!(
        (stage.model.call_counts(call, 0).requests, stage.model.call_counts(call, 1).requests),
        (1, 2)
    );
    let roles: Vec<String> = stage.messages("worker").into_iter().map(|(role, _)| role).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"]);
}

#[test]
fn a_marked_turn_is_interrupted_and_the_same_send_goes_on_with_it() {
    let stage = Fixture::start();
    stage.create_with(json!({ "agent_id": "worker", "on_restart": "mark" }));
    assert_eq!(stage.send_text("worker", "before"), "echo: before");
    let cut_off = stage.start_send("worker", "!hold gate so far", "r");
    stage.model.wait_stalled(1);
    let stage = stage.kill_and_start();
    assert!(cut_off.has_no_response());
    let entries = wait_turns_ended(&stage.daemon, &[]);
    let end = entries_of_kind(&entries, "turn_ended").pop().expect("the turn has an end");
    assert_eq!((&end["outcome"], &end["request_id"]), (&json!("interrupted"), &json!("r")), "{end}");
    assert_eq!(end["reason"], "the daemon stopped before the turn had ended");
    assert_eq!(stage.model.call_counts("!hold gate so far", 0).requests, 1, "nobody goes on with it");
    stage.model.release("gate");
    let again = send_duplicate(&stage, "worker", "!hold gate so far", "r");
    assert_eq!(again["result"]["content"], "so far released gate", "{again}");
    assert_eq!(stage.model.call_counts("!hold gate so far", 0).requests, 2);
    let all = [
        ("user", "before"),
        ("assistant", "echo: before"),
        ("user", "!hold gate so far"),
        ("assistant", "so far released gate"),
    ];
    assert_eq!(stage.messages("worker"), as_messages(&all), "the notice is taken back");
    let stage = stage.kill_and_start();
    assert_eq!(stage.messages("worker"), as_messages(&all));
    assert_eq!(stage.send_with_request_id("worker", "!hold gate so far", "r")["result"], again["result"]);
}

#[test]
fn an_interrupted_turn_that_others_came_behind_stays_interrupted_and_in_nobodys_way() {
    let stage = Fixture::with_config("on_restart = \"mark\"\n");
    stage.create("worker");
    let _cut_off = stage.start_send("worker", "!hold gate so far", "r");
    stage.model.wait_stalled(1);
    let stage = stage.kill_and_start();
    assert_eq!(stage.send_text("worker", "next"), "echo: next");
    stage.model.release("gate");
    for _ in 0..2 {
        let again = stage.send_with_request_id("worker", "!hold gate so far", "r");
        let error = &again["error"];
        assert_eq!(
            (&error["code"], &error["data"]["kind"]),
            (&json!(-32603), &json!("interrupted")),
            "{again}"
        );
    }
    assert_eq!(
        stage.model.call_counts("!hold gate so far", 0).requests,
        1,
        "the model would answer the next one again"
    );
    let all =
        [("user", "!hold gate so far"), ("assistant", ""), ("user", "next"), ("assistant", "echo: next")];
    assert_eq!(stage.messages("worker"), as_messages(&all));
    assert_eq!(stage.send_text("worker", "and on"), "echo: and on");
    crate::support::model_requests::assert_all_valid(&stage.model);
}

/// A first message under way, one that waits behind it, and one that another agent left; nobody waits for any of them.
fn queue_work(stage: &Fixture) -> Value {
    stage.create_with(json!({ "agent_id": "lead", "preset": "trusted" }));
    let child =
        json!({ "agent_id": "child", "parent_agent_id": "lead", "initial_message": "!hold gate first" });
    let created = stage.daemon.call_result("/", "create_agent", child);
    stage.model.wait_stalled(1);
    let leave = r#"!tool agent_send {"agent_id":"child","content":"left by lead","wait":false}"#;
    let left = stage.send_text("lead", leave);
    assert!(left.contains("queued"), "{left}");
    created["initial_request_id"].clone()
}

fn assert_work_is_done(stage: &Fixture, first: &Value) {
    stage.model.wait_called("!hold gate first", 0, 2);
    stage.model.release("gate");
    let entries = wait_turns_ended(&stage.daemon, &[]);
    let ends = entries_of_kind(&entries, "turn_ended");
    assert!(ends.iter().all(|end| end["outcome"] == "completed"), "{ends:?}");
    assert!(ends.iter().any(|end| end["request_id"] == *first));
    let all = [
        ("user", "!hold gate first"),
        ("assistant", "first released gate"),
        ("user", "left by lead"),
        ("assistant", "echo: left by lead"),
    ];
    wait_until("the child's answers", || stage.messages("child") == as_messages(&all));
    assert_eq!(stage.model.call_counts("left by lead", 0).requests, 1);
}

#[test]
fn messages_that_were_taken_run_after_a_kill() {
    let stage = Fixture::start();
    let first = queue_work(&stage);
    let stage = stage.kill_and_start();
    assert_work_is_done(&stage, &first);
}

#[test]
fn messages_that_nobody_waits_for_run_after_an_orderly_stop() {
    let stage = Fixture::with_config("stop_grace_ms = 0\n");
    let first = queue_work(&stage);
    let in_order = |daemon: TestDaemon| {
        let stopped = daemon.stop();
        assert_eq!(stopped.status.code(), Some(0), "{}", stopped.stderr);
        stopped
    };
    let stage = stage.restart_with(in_order, |builder| builder);
    assert_work_is_done(&stage, &first);
}

#[test]
fn a_send_that_an_orderly_stop_cancelled_stays_cancelled() {
    let stage = Fixture::with_config("stop_grace_ms = 0\n");
    stage.create("worker");
    let open = stage.start_send("worker", "!hold gate so far", "r");
    stage.model.wait_stalled(1);
    let stage = stage.restart_with(TestDaemon::stop, |builder| builder);
    let told = open.next_result();
    assert_eq!(told["cancelled"], true, "{told}");
    assert_eq!(stage.send_with_request_id("worker", "!hold gate so far", "r")["result"], told);
    assert_eq!(stage.model.call_counts("!hold gate so far", 0).requests, 1);
}

#[test]
fn sends_in_line_run_in_their_order_after_a_kill() {
    let stage = Fixture::start();
    stage.create("worker");
    let mut calls = stage.start_send("worker", "!hold gate one", "one");
    stage.model.wait_stalled(1);
    for name in ["two", "three", "four"] {
        calls.start(&stage.daemon, &agent_path("worker"), "send", send_params(name, name));
        // It is kept when it is in line; the list of what waits is only told by the agent.
        wait_until(name, || {
            JournalReader::read_all(&stage.daemon).iter().any(|entry| entry["request_id"] == name)
        });
    }
    let stage = stage.kill_and_start();
    stage.model.release("gate");
    wait_turns_ended(&stage.daemon, &[]);
    for name in ["two", "three", "four"] {
        let answer = stage.send_with_request_id("worker", name, name);
        assert_eq!(answer["result"]["content"], format!("echo: {name}"), "{answer}");
        assert_eq!(stage.model.call_counts(name, 0).requests, 1);
    }
    let users = stage.messages("worker").into_iter().filter(|(role, _)| role == "user");
    assert_eq!(users.map(|(_, text)| text).collect::<Vec<_>>(), ["!hold gate one", "two", "three", "four"]);
}

#[test]
fn a_turn_that_ends_the_daemon_each_time_is_given_up() {
    // The model's call is kept together with the tool's begin.
    let stage = Fixture::with_failpoints("commit.before:tool_begun=abort");
    stage.create("worker");
    let poison = r#"!tool echo {"text":"poison"}"#;
    stage.send_expecting_abort("worker", poison, "r");
    let Fixture { daemon, model } = stage;
    let mut stopped = daemon.wait_stopped();
    for _ in 0..2 {
        assert_aborted(&stopped);
        stopped = stopped.spawn_with(|builder| builder).wait_stopped();
    }
    assert_aborted(&stopped);
    let stage = Fixture { daemon: stopped.start_with(|builder| builder), model };
    let entries = wait_turns_ended(&stage.daemon, &[]);
    let end = entries_of_kind(&entries, "turn_ended").pop().expect("the turn has an end");
    assert_eq!(end["outcome"], "interrupted", "{end}");
    assert_eq!(end["reason"], "the daemon stopped 3 times while the turn ran");
    assert_eq!(
        entries_of_kind(&entries, "turn_reopened").len(),
        3,
        "two more tries, and the one that gives up"
    );
    assert_eq!(stage.model.call_counts(poison, 0).requests, 3);
    assert_eq!(stage.send_text("worker", "still there?"), "echo: still there?");
}
