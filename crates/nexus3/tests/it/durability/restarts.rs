//! Restarts with open turns, after a kill, an abort or a graceful stop: turns are resumed or marked as interrupted, and
//! repeated sends are idempotent.

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

/// Repeats a send while its error is `interrupted`: a send that arrives while the turn is being marked gets that error.
fn send_duplicate(fixture: &Fixture, agent: &str, content: &str, request_id: &str) -> Value {
    let mut response = Value::Null;
    wait_until("a response other than interrupted", || {
        response = fixture.send_with_request_id(agent, content, request_id);
        response["error"]["data"]["kind"] != "interrupted"
    });
    response
}

#[test]
fn a_send_repeated_after_a_kill_is_one_turn() {
    let fixture = Fixture::start();
    fixture.create("worker");
    let params = send_params("!hold gate paid", "bill-17");
    let args = curl_args(&fixture.daemon, "/agent/worker", "send", &params);
    let quoted: Vec<String> = args.iter().map(|arg| format!("'{arg}'")).collect();
    let cut_off = Program::shell(&format!("curl {}", quoted.join(" ")));
    fixture.model.wait_stalled(1);
    let fixture = fixture.kill_and_start();
    let cut_off = cut_off.finish();
    assert_eq!(
        (cut_off.code, cut_off.stdout.as_str()),
        (52, ""),
        "curl should get no response: {}",
        cut_off.stderr
    );
    fixture.model.wait_called("!hold gate paid", 0, 2);
    fixture.model.release("gate");
    let repeated = curl(&fixture.daemon, "/agent/worker", "send", &params);
    assert_eq!(repeated["result"]["content"], "paid released gate", "{repeated}");
    let paid = as_messages(&[("user", "!hold gate paid"), ("assistant", "paid released gate")]);
    assert_eq!(fixture.messages("worker"), paid);
    assert_eq!(curl(&fixture.daemon, "/agent/worker", "send", &params), repeated, "the response is stored");
    let fixture = fixture.kill_and_start();
    assert_eq!(
        curl(&fixture.daemon, "/agent/worker", "send", &params),
        repeated,
        "the stored response survives a kill"
    );
    assert_eq!(fixture.messages("worker"), paid);
    assert_eq!(
        fixture.model.call_counts("!hold gate paid", 0).requests,
        2,
        "one model call before the kill and one after it"
    );
    let other = curl(&fixture.daemon, "/agent/worker", "send", &send_params("something else", "bill-17"));
    let text = "request_id was used before with other content: bill-17";
    assert_eq!((&other["error"]["code"], &other["error"]["message"]), (&json!(-32602), &json!(text)));
    assert_sound(fixture.daemon.home());
}

#[test]
fn a_committed_response_is_delivered_after_an_abort() {
    let fixture = Fixture::with_failpoints("commit.after:turn_ended=abort");
    fixture.create("worker");
    fixture.send_expecting_abort("worker", "hello", "r");
    let fixture = fixture.restart_after_abort();
    let repeated = fixture.send_with_request_id("worker", "hello", "r");
    assert_eq!(repeated["result"]["content"], "echo: hello", "{repeated}");
    assert_eq!(fixture.model.call_counts("hello", 0).requests, 1);
    assert_eq!(fixture.messages("worker").len(), 2);
}

#[test]
fn an_uncommitted_response_is_requested_again() {
    let fixture = Fixture::with_failpoints("commit.before:turn_ended=abort");
    fixture.create("worker");
    fixture.send_expecting_abort("worker", "hello", "r");
    let fixture = fixture.restart_after_abort();
    assert_eq!(fixture.send_with_request_id("worker", "hello", "r")["result"]["content"], "echo: hello");
    assert_eq!(fixture.model.call_counts("hello", 0).requests, 2);
    assert_eq!(fixture.messages("worker").len(), 2);
    let entries = JournalReader::read_all(&fixture.daemon);
    assert_eq!(entries_of_kind(&entries, "turn_reopened").len(), 1);
    assert_eq!(entries_of_kind(&entries, "turn_ended").len(), 1);
}

#[test]
fn committed_rounds_are_not_requested_again() {
    let fixture = Fixture::with_failpoints("commit.before:turn_ended=abort");
    fixture.create("worker");
    let call = r#"!tool echo {"text":"once"}"#;
    fixture.send_expecting_abort("worker", call, "r");
    let fixture = fixture.restart_after_abort();
    let repeated = fixture.send_with_request_id("worker", call, "r");
    assert!(repeated["result"]["content"].as_str().is_some_and(|text| text.contains("once")), "{repeated}");
    assert_eq!(
        (fixture.model.call_counts(call, 0).requests, fixture.model.call_counts(call, 1).requests),
        (1, 2)
    );
    let roles: Vec<String> = fixture.messages("worker").into_iter().map(|(role, _)| role).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"]);
}

#[test]
fn a_repeated_send_resumes_a_turn_marked_as_interrupted() {
    let fixture = Fixture::start();
    fixture.create_with(json!({ "agent_id": "worker", "on_restart": "mark" }));
    assert_eq!(fixture.send_text("worker", "before"), "echo: before");
    let cut_off = fixture.start_send("worker", "!hold gate so far", "r");
    fixture.model.wait_stalled(1);
    let fixture = fixture.kill_and_start();
    assert!(cut_off.has_no_response());
    let entries = wait_turns_ended(&fixture.daemon, &[]);
    let end = entries_of_kind(&entries, "turn_ended").pop().expect("the turn has ended");
    assert_eq!((&end["outcome"], &end["request_id"]), (&json!("interrupted"), &json!("r")), "{end}");
    assert_eq!(end["reason"], "the daemon stopped before the turn had ended");
    assert_eq!(
        fixture.model.call_counts("!hold gate so far", 0).requests,
        1,
        "a marked turn is not resumed by itself"
    );
    fixture.model.release("gate");
    let repeated = send_duplicate(&fixture, "worker", "!hold gate so far", "r");
    assert_eq!(repeated["result"]["content"], "so far released gate", "{repeated}");
    assert_eq!(fixture.model.call_counts("!hold gate so far", 0).requests, 2);
    let all = [
        ("user", "before"),
        ("assistant", "echo: before"),
        ("user", "!hold gate so far"),
        ("assistant", "so far released gate"),
    ];
    assert_eq!(fixture.messages("worker"), as_messages(&all), "the notice of the interruption is removed");
    let fixture = fixture.kill_and_start();
    assert_eq!(fixture.messages("worker"), as_messages(&all));
    assert_eq!(
        fixture.send_with_request_id("worker", "!hold gate so far", "r")["result"],
        repeated["result"]
    );
}

#[test]
fn an_interrupted_turn_followed_by_others_is_not_resumed() {
    let fixture = Fixture::with_config("on_restart = \"mark\"\n");
    fixture.create("worker");
    let _cut_off = fixture.start_send("worker", "!hold gate so far", "r");
    fixture.model.wait_stalled(1);
    let fixture = fixture.kill_and_start();
    assert_eq!(fixture.send_text("worker", "next"), "echo: next");
    fixture.model.release("gate");
    for _ in 0..2 {
        let repeated = fixture.send_with_request_id("worker", "!hold gate so far", "r");
        let error = &repeated["error"];
        assert_eq!(
            (&error["code"], &error["data"]["kind"]),
            (&json!(-32603), &json!("interrupted")),
            "{repeated}"
        );
    }
    assert_eq!(
        fixture.model.call_counts("!hold gate so far", 0).requests,
        1,
        "a resumed turn would respond to the later message again"
    );
    let all =
        [("user", "!hold gate so far"), ("assistant", ""), ("user", "next"), ("assistant", "echo: next")];
    assert_eq!(fixture.messages("worker"), as_messages(&all));
    assert_eq!(fixture.send_text("worker", "and on"), "echo: and on");
    crate::support::model_requests::assert_all_valid(&fixture.model);
}

/// Creates a child with a running first message, and has its parent queue another message. No client waits for either.
/// Returns the request id of the first message.
fn queue_work(fixture: &Fixture) -> Value {
    fixture.create_with(json!({ "agent_id": "lead", "preset": "trusted" }));
    let child =
        json!({ "agent_id": "child", "parent_agent_id": "lead", "initial_message": "!hold gate first" });
    let created = fixture.daemon.call_result("/", "create_agent", child);
    fixture.model.wait_stalled(1);
    let enqueue = r#"!tool agent_send {"agent_id":"child","content":"sent by lead","wait":false}"#;
    let queued = fixture.send_text("lead", enqueue);
    assert!(queued.contains("queued"), "{queued}");
    created["initial_request_id"].clone()
}

fn assert_work_is_done(fixture: &Fixture, first: &Value) {
    fixture.model.wait_called("!hold gate first", 0, 2);
    fixture.model.release("gate");
    let entries = wait_turns_ended(&fixture.daemon, &[]);
    let ends = entries_of_kind(&entries, "turn_ended");
    assert!(ends.iter().all(|end| end["outcome"] == "completed"), "{ends:?}");
    assert!(ends.iter().any(|end| end["request_id"] == *first));
    let all = [
        ("user", "!hold gate first"),
        ("assistant", "first released gate"),
        ("user", "sent by lead"),
        ("assistant", "echo: sent by lead"),
    ];
    wait_until("the child's responses", || fixture.messages("child") == as_messages(&all));
    assert_eq!(fixture.model.call_counts("sent by lead", 0).requests, 1);
}

#[test]
fn accepted_messages_run_after_a_kill() {
    let fixture = Fixture::start();
    let first = queue_work(&fixture);
    let fixture = fixture.kill_and_start();
    assert_work_is_done(&fixture, &first);
}

#[test]
fn queued_messages_run_after_a_graceful_stop() {
    let fixture = Fixture::with_config("stop_grace_ms = 0\n");
    let first = queue_work(&fixture);
    let graceful_stop = |daemon: TestDaemon| {
        let stopped = daemon.stop();
        assert_eq!(stopped.status.code(), Some(0), "{}", stopped.stderr);
        stopped
    };
    let fixture = fixture.restart_with(graceful_stop, |builder| builder);
    assert_work_is_done(&fixture, &first);
}

#[test]
fn a_send_cancelled_by_a_graceful_stop_stays_cancelled() {
    let fixture = Fixture::with_config("stop_grace_ms = 0\n");
    fixture.create("worker");
    let pending = fixture.start_send("worker", "!hold gate so far", "r");
    fixture.model.wait_stalled(1);
    let fixture = fixture.restart_with(TestDaemon::stop, |builder| builder);
    let result = pending.next_result();
    assert_eq!(result["cancelled"], true, "{result}");
    assert_eq!(fixture.send_with_request_id("worker", "!hold gate so far", "r")["result"], result);
    assert_eq!(fixture.model.call_counts("!hold gate so far", 0).requests, 1);
}

#[test]
fn queued_sends_run_in_order_after_a_kill() {
    let fixture = Fixture::start();
    fixture.create("worker");
    let mut calls = fixture.start_send("worker", "!hold gate one", "one");
    fixture.model.wait_stalled(1);
    for id in ["two", "three", "four"] {
        calls.start(&fixture.daemon, &agent_path("worker"), "send", send_params(id, id));
        // A queued send is in the journal. `get_agent` shows the agent's view of the queue, not what is committed.
        wait_until(id, || {
            JournalReader::read_all(&fixture.daemon).iter().any(|entry| entry["request_id"] == id)
        });
    }
    let fixture = fixture.kill_and_start();
    fixture.model.release("gate");
    wait_turns_ended(&fixture.daemon, &[]);
    for id in ["two", "three", "four"] {
        let response = fixture.send_with_request_id("worker", id, id);
        assert_eq!(response["result"]["content"], format!("echo: {id}"), "{response}");
        assert_eq!(fixture.model.call_counts(id, 0).requests, 1);
    }
    let users = fixture.messages("worker").into_iter().filter(|(role, _)| role == "user");
    assert_eq!(users.map(|(_, text)| text).collect::<Vec<_>>(), ["!hold gate one", "two", "three", "four"]);
}

#[test]
fn a_turn_that_crashes_the_daemon_repeatedly_is_given_up() {
    // The response with the tool call is committed together with `tool_begun`, so the abort loses both.
    let fixture = Fixture::with_failpoints("commit.before:tool_begun=abort");
    fixture.create("worker");
    let poison = r#"!tool echo {"text":"poison"}"#;
    fixture.send_expecting_abort("worker", poison, "r");
    let Fixture { daemon, model } = fixture;
    let mut stopped = daemon.wait_stopped();
    for _ in 0..2 {
        assert_aborted(&stopped);
        stopped = stopped.spawn_with(|builder| builder).wait_stopped();
    }
    assert_aborted(&stopped);
    let fixture = Fixture { daemon: stopped.start_with(|builder| builder), model };
    let entries = wait_turns_ended(&fixture.daemon, &[]);
    let end = entries_of_kind(&entries, "turn_ended").pop().expect("the turn has ended");
    assert_eq!(end["outcome"], "interrupted", "{end}");
    assert_eq!(end["reason"], "the daemon stopped 3 times while the turn ran");
    assert_eq!(
        entries_of_kind(&entries, "turn_reopened").len(),
        3,
        "two retries, and the start that gives up"
    );
    assert_eq!(fixture.model.call_counts(poison, 0).requests, 3);
    assert_eq!(fixture.send_text("worker", "still there?"), "echo: still there?");
}
