//! Several calls in one answer, calls that are wrong, and models that do not learn.

use serde_json::json;

use super::{fixture_with, tool_result};
use crate::support::Fixture;
use crate::support::folder::{TestDirectory, read_file_script, write_file_script};
use crate::support::model_requests::assert_all_valid;

const NO_USABLE: &str = "[Stopping: the model made no usable tool call three times in a row]";

fn results(stage: &Fixture, agent: &str) -> Vec<String> {
    let said = stage.messages(agent).into_iter();
    said.filter(|(role, _)| role == "tool").map(|(_, text)| text).collect()
}

#[test]
fn calls_beside_each_other_run_at_once_and_are_answered_in_order() {
    let stage = Fixture::start();
    stage.create_with(json!({ "agent_id": "lead", "preset": "trusted" }));
    for name in ["a", "b"] {
        stage.create_with(json!({ "agent_id": name, "parent_agent_id": "lead" }));
    }
    let send = |to: &str| {
        format!("!tool agent_send {}", json!({ "agent_id": to, "content": format!("!hold {to}") }))
    };
    let calls = format!("{}\n!tool echo {{\"text\":\"between\"}}\n{}", send("a"), send("b"));
    let open = stage.start_send("lead", &calls, "r");
    stage.model.wait_stalled(2);
    stage.model.release("b");
    crate::support::wait_until("the second child to be done", || stage.agent("b")["working"] == false);
    stage.model.release("a");
    open.next_result();
    let results = results(&stage, "lead");
    assert!(results[0].contains("released a") && results[2].contains("released b"), "{results:?}");
    assert_eq!(results[1], "between");
    assert_all_valid(&stage.model);
}

#[test]
fn writes_happen_in_the_order_of_the_calls_and_reads_see_them() {
    let folder = TestDirectory::new();
    let stage = fixture_with("trusted", &folder);
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
    stage.send("worker", &calls);
    let results = results(&stage, "worker");
    assert_eq!((results[9].as_str(), results[11].as_str()), ("012345678", "012345678!"));
    assert_eq!(folder.read("log.txt").as_deref(), Some("012345678!"));
}

#[test]
fn after_a_write_that_failed_no_other_is_done() {
    let folder = TestDirectory::with_files(&[("a.txt", "a")]);
    let stage = fixture_with("trusted", &folder);
    let calls = format!(
        "{}\n{}\n{}\n{}",
        write_file_script("first.txt", "1"),
        write_file_script("/nowhere/x.txt", "2"),
        write_file_script("third.txt", "3"),
        read_file_script("a.txt")
    );
    stage.send("worker", &calls);
    let results = results(&stage, "worker");
    assert!(
        results[0].contains("\"success\":true") && results[1].starts_with("Permission denied: "),
        "{results:?}"
    );
    assert_eq!(results[2], "Did not execute: halted due to error in previous tool");
    assert_eq!(results[3], "a", "what only reads is not halted");
    assert_eq!((folder.read("first.txt").as_deref(), folder.read("third.txt")), (Some("1"), None));
}

#[test]
fn wrong_arguments_are_told_so_that_they_can_be_mended() {
    let stage = fixture_with("trusted", &TestDirectory::new());
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
    for (call, complaint) in cases {
        let said = tool_result(&stage, call);
        assert!(said.starts_with("Invalid input: ") && said.contains(complaint), "{call}: {said}");
    }
    let meta = stage.daemon.call_result("/agent/worker", "get_messages", json!({ "offset": 2, "limit": 1 }));
    assert_eq!(meta["messages"][0]["meta"], json!({ "failed": true }));
}

#[test]
fn three_answers_without_a_usable_call_end_the_turn() {
    let stage = fixture_with("trusted", &TestDirectory::new());
    for call in ["!insist hammer {}", "!insist echo {\"text\": "] {
        let asked = stage.model.requests().len();
        let result = stage.send("worker", call);
        assert_eq!(result["content"], NO_USABLE);
        assert_eq!((result.get("halted"), &result["halted_at_iteration_limit"]), (None, &json!(false)));
        assert_eq!(stage.model.requests().len() - asked, 3);
    }
    assert_eq!(stage.send("worker", "hi")["content"], "echo: hi");
    assert_all_valid(&stage.model);
}

#[test]
fn a_denied_call_was_a_usable_one() {
    let stage = Fixture::with_config("limits.tool_iterations_max = 5");
    stage.create_with(json!({ "agent_id": "worker", "disable_tools": ["echo"] }));
    let result = stage.send("worker", "!insist echo {\"text\":\"a\"}");
    assert_eq!(
        (&result["content"], &result["halted"]),
        (&json!("[Max tool iterations reached]"), &json!("iteration_limit"))
    );
    let page = stage.daemon.call_result("/agent/worker", "get_messages", json!({ "offset": 2, "limit": 1 }));
    assert_eq!(page["messages"][0]["meta"], json!({ "denied": true }));
}

#[test]
fn an_unknown_tool_is_named_and_its_neighbours_run() {
    let stage = fixture_with("worker", &TestDirectory::new());
    let calls =
        "!tool hammer {}\n!tool echo {\"text\":\"ran\"}\n!tool Echo {\"text\":\"no\"}\n!tool fs.readfile {}";
    stage.send("worker", calls);
    let expected = ["Unknown tool: hammer", "ran", "Unknown tool: Echo", "Unknown tool: fs.readfile"];
    assert_eq!(results(&stage, "worker"), expected);
    let long = format!("!tool {} {{}}", "x".repeat(5000));
    assert_eq!(tool_result(&stage, &long), format!("Unknown tool: {}", "x".repeat(64)));
}

#[test]
fn only_so_many_calls_of_a_turn_run_at_once() {
    let stage = Fixture::with_config("limits.tools_running_max = 2");
    stage.create_with(json!({ "agent_id": "lead", "preset": "trusted" }));
    let names = ["a", "b", "c"];
    for name in names {
        stage.create_with(json!({ "agent_id": name, "parent_agent_id": "lead" }));
    }
    let calls = names.map(|to| {
        format!("!tool agent_send {}", json!({ "agent_id": to, "content": format!("!hold {to}") }))
    });
    let open = stage.start_send("lead", &calls.join("\n"), "r");
    stage.model.wait_stalled(2);
    assert_eq!((&stage.agent("c")["working"], &stage.agent("c")["queued"]), (&json!(false), &json!(0)));
    stage.model.release("a");
    crate::support::wait_until("the third child to work", || stage.agent("c")["working"] == true);
    stage.model.release("b");
    stage.model.release("c");
    open.next_result();
    assert_eq!(results(&stage, "lead").len(), 3);
}
