//! Several tool calls in one response, invalid calls, and models that repeat them.

use serde_json::json;

use super::{fixture_with, tool_result};
use crate::support::Fixture;
use crate::support::folder::{TestDirectory, read_file_script, write_file_script};
use crate::support::model_requests::assert_all_valid;

const NO_USABLE_CALL: &str = "[Stopping: the model made no usable tool call three times in a row]";

fn results(fixture: &Fixture, agent: &str) -> Vec<String> {
    let messages = fixture.messages(agent).into_iter();
    messages.filter(|(role, _)| role == "tool").map(|(_, text)| text).collect()
}

#[test]
fn concurrent_calls_get_their_results_in_order() {
    let fixture = Fixture::start();
    fixture.create_with(json!({ "agent_id": "lead", "preset": "trusted" }));
    for name in ["a", "b"] {
        fixture.create_with(json!({ "agent_id": name, "parent_agent_id": "lead" }));
    }
    let send = |to: &str| {
        format!("!tool agent_send {}", json!({ "agent_id": to, "content": format!("!hold {to}") }))
    };
    let calls = format!("{}\n!tool echo {{\"text\":\"between\"}}\n{}", send("a"), send("b"));
    let pending = fixture.start_send("lead", &calls, "r");
    fixture.model.wait_stalled(2);
    fixture.model.release("b");
    crate::support::wait_until("the second child to finish", || fixture.agent("b")["working"] == false);
    fixture.model.release("a");
    pending.next_result();
    let results = results(&fixture, "lead");
    assert!(results[0].contains("released a") && results[2].contains("released b"), "{results:?}");
    assert_eq!(results[1], "between");
    assert_all_valid(&fixture.model);
}

#[test]
fn writes_run_in_call_order_and_reads_see_them() {
    let directory = TestDirectory::new();
    let fixture = fixture_with("trusted", &directory);
    let append = |text: &str| {
        format!("!tool fs_write_file {}", json!({ "path": "log.txt", "content": text, "append": true }))
    };
    let numbers: Vec<_> = (0..9).map(|number| append(&number.to_string())).collect();
    let calls = format!(
        "{}\n{}\n{}\n{}",
        numbers.join("\n"),
        read_file_script("log.txt"),
        append("!"),
        read_file_script("log.txt")
    );
    fixture.send("worker", &calls);
    let results = results(&fixture, "worker");
    assert_eq!((results[9].as_str(), results[11].as_str()), ("012345678", "012345678!"));
    assert_eq!(directory.read("log.txt").as_deref(), Some("012345678!"));
}

#[test]
fn no_write_runs_after_a_failed_write() {
    let directory = TestDirectory::with_files(&[("a.txt", "a")]);
    let fixture = fixture_with("trusted", &directory);
    let calls = format!(
        "{}\n{}\n{}\n{}",
        write_file_script("first.txt", "1"),
        write_file_script("/nowhere/x.txt", "2"),
        write_file_script("third.txt", "3"),
        read_file_script("a.txt")
    );
    fixture.send("worker", &calls);
    let results = results(&fixture, "worker");
    assert!(
        results[0].contains("\"success\":true") && results[1].starts_with("Permission denied: "),
        "{results:?}"
    );
    assert_eq!(results[2], "Did not execute: halted due to error in previous tool");
    assert_eq!(results[3], "a", "reads are not halted");
    assert_eq!((directory.read("first.txt").as_deref(), directory.read("third.txt")), (Some("1"), None));
}

#[test]
fn invalid_arguments_get_a_precise_error() {
    let fixture = fixture_with("trusted", &TestDirectory::new());
    let cases = [
        ("!tool echo {\"text\": ", "malformed JSON: EOF while parsing a value at line 1 column 8"),
        ("!tool echo {\"text\":\"a\"} {}", "malformed JSON: trailing characters at line 1 column 14"),
        ("!tool echo {}", "missing field `text`"),
        ("!tool echo null", "missing field `text`"),
        ("!tool echo [\"a\"]", "expected an object, found an array"),
        ("!tool echo \"a\"", "expected an object, found a string"),
        ("!tool echo {\"text\":5}", "field `text`: invalid type: integer `5`, expected a string"),
        ("!tool echo {\"text\":\"a\",\"loud\":true}", "unknown field `loud`, expected `text`"),
        ("!tool echo {\"text\":\"a\",\"text\":\"b\"}", "duplicate field `text`"),
        ("!tool agent_send {\"agent_id\":\"..\",\"content\":\"\"}", "contains forbidden pattern '..'"),
        ("!tool agent_create {\"preset\":\"admin\"}", "unknown preset 'admin'"),
        (
            "!tool agent_create {\"parent_agent_id\":\"x\"}",
            "unknown field `parent_agent_id`, expected one of",
        ),
    ];
    for (call, expected) in cases {
        let result = tool_result(&fixture, call);
        assert!(result.starts_with("Invalid input: ") && result.contains(expected), "{call}: {result}");
    }
    let meta =
        fixture.daemon.call_result("/agent/worker", "get_messages", json!({ "offset": 2, "limit": 1 }));
    assert_eq!(meta["messages"][0]["meta"], json!({ "failed": true }));
}

#[test]
fn three_responses_without_a_usable_call_end_the_turn() {
    let fixture = fixture_with("trusted", &TestDirectory::new());
    for call in ["!insist hammer {}", "!insist echo {\"text\": "] {
        let requests_before = fixture.model.requests().len();
        let result = fixture.send("worker", call);
        assert_eq!(result["content"], NO_USABLE_CALL);
        assert_eq!((result.get("halted"), &result["halted_at_iteration_limit"]), (None, &json!(false)));
        assert_eq!(fixture.model.requests().len() - requests_before, 3);
    }
    assert_eq!(fixture.send("worker", "hi")["content"], "echo: hi");
    assert_all_valid(&fixture.model);
}

#[test]
fn denied_call_counts_as_usable() {
    let fixture = Fixture::with_config("limits.tool_iterations_max = 5");
    fixture.create_with(json!({ "agent_id": "worker", "disable_tools": ["echo"] }));
    let result = fixture.send("worker", "!insist echo {\"text\":\"a\"}");
    assert_eq!(
        (&result["content"], &result["halted"]),
        (&json!("[Max tool iterations reached]"), &json!("iteration_limit"))
    );
    let page =
        fixture.daemon.call_result("/agent/worker", "get_messages", json!({ "offset": 2, "limit": 1 }));
    assert_eq!(page["messages"][0]["meta"], json!({ "denied": true }));
}

#[test]
fn unknown_tool_is_named_and_the_other_calls_run() {
    let fixture = fixture_with("worker", &TestDirectory::new());
    let calls =
        "!tool hammer {}\n!tool echo {\"text\":\"ran\"}\n!tool Echo {\"text\":\"no\"}\n!tool fs.readfile {}";
    fixture.send("worker", calls);
    let expected = ["Unknown tool: hammer", "ran", "Unknown tool: Echo", "Unknown tool: fs.readfile"];
    assert_eq!(results(&fixture, "worker"), expected);
    let long = format!("!tool {} {{}}", "x".repeat(5000));
    assert_eq!(tool_result(&fixture, &long), format!("Unknown tool: {}", "x".repeat(64)));
}

#[test]
fn tools_running_max_limits_concurrent_calls() {
    let fixture = Fixture::with_config("limits.tools_running_max = 2");
    fixture.create_with(json!({ "agent_id": "lead", "preset": "trusted" }));
    let names = ["a", "b", "c"];
    for name in names {
        fixture.create_with(json!({ "agent_id": name, "parent_agent_id": "lead" }));
    }
    let calls = names.map(|to| {
        format!("!tool agent_send {}", json!({ "agent_id": to, "content": format!("!hold {to}") }))
    });
    let pending = fixture.start_send("lead", &calls.join("\n"), "r");
    fixture.model.wait_stalled(2);
    assert_eq!((&fixture.agent("c")["working"], &fixture.agent("c")["queued"]), (&json!(false), &json!(0)));
    fixture.model.release("a");
    crate::support::wait_until("the third child to work", || fixture.agent("c")["working"] == true);
    fixture.model.release("b");
    fixture.model.release("c");
    pending.next_result();
    assert_eq!(results(&fixture, "lead").len(), 3);
}
