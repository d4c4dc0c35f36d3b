//! Commands in complete turns: who may run them, what they reach, and that nothing survives a cancel or the daemon.

use std::fs::File;

use serde_json::{Value, json};
use testkit::ScriptedModel;

use super::{fixture_with, tool_result};
use crate::support::folder::TestDirectory;
use crate::support::{Fixture, daemon_builder, wait_until};

fn shell(line: &str) -> String {
    format!("!tool shell.exec {}", json!({ "command": line }))
}

fn parse(result: &str) -> Value {
    serde_json::from_str(result).unwrap_or_else(|fault| panic!("{result}: {fault}"))
}

#[test]
fn trusted_agent_runs_commands_in_its_directory_only() {
    let directory = TestDirectory::with_files(&[("work/a.txt", "one\n"), ("secret.txt", "secret\n")]);
    let fixture = Fixture::start();
    fixture
        .create_with(json!({ "agent_id": "worker", "preset": "trusted", "cwd": directory.path_of("work") }));
    let result = parse(&tool_result(&fixture, &shell("cat a.txt && echo two > b.txt && pwd")));
    let stdout = format!("one\n{}\n", directory.path_of("work"));
    assert_eq!(result, json!({ "exit_code": 0, "stderr": "", "stdout": stdout, "success": true }));
    assert_eq!(directory.read("work/b.txt").as_deref(), Some("two\n"));
    // A trusted agent may read the file with `fs.read_file`; a command has the directory of the agent only.
    let failed = parse(&tool_result(&fixture, &shell("cat ../secret.txt; exit 3")));
    assert_eq!(
        (&failed["exit_code"], &failed["stdout"], &failed["success"]),
        (&json!(3), &json!(""), &json!(false))
    );
    let token = fixture.daemon.home().display().to_string();
    let denied = parse(&tool_result(&fixture, &shell(&format!("ls {token}"))));
    assert_eq!(denied["stdout"], "");
    let timeout =
        format!("!tool cmd.exec {}", json!({ "command": "sleep", "args": ["100"], "timeout_secs": 1 }));
    assert_eq!(tool_result(&fixture, &timeout), "Timeout after 1 seconds");
}

#[test]
fn command_runs_beside_the_daemons_home_and_does_not_see_it() {
    let directory = TestDirectory::with_files(&[("a.txt", "one\n")]);
    let model = ScriptedModel::start();
    let daemon = daemon_builder(&model).home(directory.path_of("deep/home")).start();
    let fixture = Fixture { daemon, model };
    fixture.create_with(json!({ "agent_id": "worker", "preset": "trusted", "cwd": directory.path_str() }));
    assert!(directory.read("deep/home/nexus3.db").is_none_or(|text| !text.is_empty()));
    let line = "cat a.txt; ls -A deep/home; mv deep gone 2> /dev/null; touch deep/home/config.toml; echo two > b.txt";
    let result = parse(&tool_result(&fixture, &shell(line)));
    assert_eq!(result["stdout"], "one\n", "{result}");
    assert_eq!(directory.read("b.txt").as_deref(), Some("two\n"));
    assert_eq!(directory.read("deep/home/config.toml").unwrap_or_default(), "");
    assert!(std::fs::exists(directory.path_of("deep/home/nexus3.db")).unwrap());
}

#[test]
fn sandboxed_agent_runs_only_what_was_allowed() {
    let directory = TestDirectory::with_files(&[("a.txt", "one\n")]);
    let fixture = Fixture::start();
    let cat = format!("!tool cmd.exec {}", json!({ "command": "cat", "args": ["a.txt"] }));
    for (agent, params, allowed) in [
        ("some", json!({ "allowed_commands": ["cat"] }), [true, false]),
        ("all", json!({ "allowed_commands": ["*"] }), [true, true]),
        ("none", json!({}), [false, false]),
        ("worker", json!({ "preset": "worker" }), [false, false]),
    ] {
        let mut create = json!({ "agent_id": agent, "cwd": directory.path_str() });
        create.as_object_mut().unwrap().extend(params.as_object().unwrap().clone());
        fixture.create_with(create);
        for (call, is_allowed) in [&cat, &shell("cat a.txt")].into_iter().zip(allowed) {
            let result = fixture.send_text(agent, call);
            assert_eq!(result.contains("\"stdout\":\"one\\n\""), is_allowed, "{agent}: {result}");
            assert_eq!(result.contains("Permission denied"), !is_allowed, "{agent}: {result}");
        }
    }
    // Without write paths, nothing can be changed.
    let written = fixture.send_text("all", &shell("echo x > b.txt"));
    assert!(written.contains("\"success\":false") && directory.read("b.txt").is_none(), "{written}");
}

#[test]
fn agent_mends_a_program_by_search_edit_and_its_tests() {
    let directory = TestDirectory::with_files(&[
        ("src/sum.sh", "sum() { echo $(($1 - $2)); }\n"),
        (
            "test.sh",
            ". src/sum.sh\n[ \"$(sum 2 3)\" = 5 ] || { echo \"2 + 3 is $(sum 2 3)\"; exit 1; }\necho passed\n",
        ),
    ]);
    let fixture = fixture_with("trusted", &directory);
    let call = |tool: &str, arguments: Value| tool_result(&fixture, &format!("!tool {tool} {arguments}"));
    assert!(call("fs.list", json!({ "path": "." })).contains("test.sh"));
    let found = call("fs.search", json!({ "pattern": r"sum\(\)" }));
    assert!(found.contains("src/sum.sh"), "{found}");
    let failed = parse(&tool_result(&fixture, &shell("sh test.sh")));
    assert_eq!((&failed["stdout"], &failed["success"]), (&json!("2 + 3 is -1\n"), &json!(false)));
    for (old, new, stdout) in [("$1 - $2", "$1 * $2", "2 + 3 is 6\n"), ("$1 * $2", "$1 + $2", "passed\n")] {
        let edited = call("fs.edit", json!({ "path": "src/sum.sh", "old": old, "new": new }));
        assert!(edited.contains(&format!("+sum() {{ echo $(({new})); }}")), "{edited}");
        assert_eq!(parse(&tool_result(&fixture, &shell("sh test.sh")))["stdout"], stdout);
    }
}

/// A line that appends to `runs`, then holds a lock for ever.
const ENDLESS: &str = "flock lock sh -c 'echo run >> runs; sleep 1000'";

#[test]
fn killed_daemon_leaves_no_command_and_runs_none_twice() {
    let directory = TestDirectory::new();
    let fixture = fixture_with("trusted", &directory);
    let _running = fixture.start_send("worker", &shell(ENDLESS), "r");
    wait_until("the command runs", || directory.read("runs").is_some());
    let Fixture { daemon, model } = fixture;
    let stopped = daemon.kill();
    // Blocks until the process that holds the lock is dead.
    File::open(directory.path_of("lock")).unwrap().lock().unwrap();
    let fixture = Fixture { daemon: stopped.start(), model };
    let settled = fixture.send("worker", "and now?");
    assert_eq!(settled["content"], "echo: and now?");
    assert_eq!(directory.read("runs").as_deref(), Some("run\n"));
    let messages = fixture.messages("worker");
    assert!(messages.iter().any(|(role, text)| role == "tool" && text.contains("unknown")), "{messages:?}");
}

#[test]
fn cancelled_turn_kills_its_command() {
    let directory = TestDirectory::new();
    let fixture = fixture_with("trusted", &directory);
    let running = fixture.start_send("worker", &shell(ENDLESS), "r");
    wait_until("the command runs", || directory.read("runs").is_some());
    assert_eq!(fixture.cancel("worker", "r")["cancelled"], true);
    assert_eq!(running.next_result()["cancelled"], true);
    File::open(directory.path_of("lock")).unwrap().lock().unwrap();
}
