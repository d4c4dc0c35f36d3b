//! Undoing the file changes of a turn, also after the daemon was killed.

use serde_json::{Value, json};
use testkit::{TestDaemon, run};

use super::fixture_with;
use crate::support::folder::{TestDirectory, write_file_script};
use crate::support::{BIN, ExpectError as _, Fixture};

fn undo(daemon: &TestDaemon, arguments: &[&str]) -> Value {
    let port = daemon.port().to_string();
    let output = run(BIN, &[&["rpc", "undo"], arguments, &["-p", &port]].concat(), &[], daemon.home());
    assert_eq!(output.code, 0, "{arguments:?}: {}", output.stderr);
    serde_json::from_str(&output.stdout).unwrap()
}

fn refusal(fixture: &Fixture, turn: Option<u64>) -> Value {
    fixture.daemon.error("/", "undo_turn", json!({ "agent_id": "worker", "turn": turn }))
}

fn restarted_after_a_kill(fixture: Fixture) -> Fixture {
    let Fixture { daemon, model } = fixture;
    Fixture { daemon: daemon.kill().start(), model }
}

/// An edit, a move and a delete in one turn.
fn change_files(fixture: &Fixture) {
    let calls = [
        ("fs_edit", json!({ "path": "edited.txt", "old": "one", "new": "two" })),
        ("fs_move", json!({ "from": "moved.txt", "to": "new/place.txt" })),
        ("fs_delete", json!({ "path": "tree", "recursive": true })),
    ];
    let script: Vec<String> = calls.iter().map(|(tool, input)| format!("!tool {tool} {input}")).collect();
    fixture.send("worker", &script.join("\n"));
}

fn directory() -> TestDirectory {
    TestDirectory::with_files(&[
        ("edited.txt", "one\n"),
        ("moved.txt", "moved\n"),
        ("tree/a.txt", "a\n"),
        ("tree/below/b.txt", "b\n"),
    ])
}

fn contents(directory: &TestDirectory) -> Vec<Option<String>> {
    let names = ["edited.txt", "moved.txt", "tree/a.txt", "tree/below/b.txt", "new/place.txt"];
    names.iter().map(|name| directory.read(name)).collect()
}

#[test]
fn undo_restores_an_edit_a_move_and_a_delete_after_a_kill() {
    let directory = directory();
    let before = contents(&directory);
    let fixture = fixture_with("trusted", &directory);
    change_files(&fixture);
    let place = Some("moved\n".to_owned());
    assert_eq!(contents(&directory), [Some("two\n".to_owned()), None, None, None, place]);
    let fixture = restarted_after_a_kill(fixture);
    let undone = undo(&fixture.daemon, &["worker"]);
    let names = [
        "edited.txt",
        "moved.txt",
        "new",
        "new/place.txt",
        "tree",
        "tree/a.txt",
        "tree/below",
        "tree/below/b.txt",
    ];
    let restored: Vec<_> = names.iter().map(|name| directory.path_of(name)).collect();
    assert_eq!(undone, json!({ "agent_id": "worker", "turn": 1, "restored": restored }));
    assert_eq!(contents(&directory), before);
    assert!(!directory.path().join("new").exists());
    let again = refusal(&fixture, None);
    assert_eq!(
        (&again["code"], &again["message"]),
        (&json!(-32602), &json!("turn 1 is undone already; name an earlier turn"))
    );
    let fixture = restarted_after_a_kill(fixture);
    assert_eq!(refusal(&fixture, Some(1)), again, "after a restart");
    assert_eq!(refusal(&fixture, Some(7))["message"], "turn 7 changed no files with file tools");
}

#[test]
fn undo_is_refused_when_a_file_changed_since() {
    let directory = directory();
    let fixture = fixture_with("trusted", &directory);
    change_files(&fixture);
    directory.write("edited.txt", "by hand\n");
    let after = contents(&directory);
    let refused = refusal(&fixture, None);
    let text = format!(
        "turn 1 cannot be undone, no file was changed: changed since: {}",
        directory.path_of("edited.txt")
    );
    assert_eq!((&refused["code"], &refused["message"]), (&json!(-32602), &json!(text)));
    assert_eq!(refused["data"], json!({ "kind": "conflict" }));
    assert_eq!(contents(&directory), after);
    directory.write("edited.txt", "two\n");
    assert_eq!(undo(&fixture.daemon, &["worker", "1"])["turn"], 1);
}

#[test]
fn undo_writes_only_where_the_agent_may_write_now() {
    let directory = directory();
    let fixture = fixture_with("trusted", &directory);
    fixture.send("worker", &write_file_script("edited.txt", "two\n"));
    fixture.set_permissions("worker", json!({ "preset": "sandboxed" }));
    let denied = refusal(&fixture, None);
    assert_eq!(denied["data"], json!({ "kind": "permission_denied" }), "{denied}");
    assert_eq!(directory.read("edited.txt").as_deref(), Some("two\n"));
}
