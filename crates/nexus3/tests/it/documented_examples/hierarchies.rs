//! Permissions in the second and the newest document: presets, disabled tools, parents, and the directories that an
//! agent may write to.

use serde_json::{Value, json};
use testkit::run;

use super::run_documented;
use crate::support::folder::{TestDirectory, read_file_script};
use crate::support::{BIN, Fixture, agent_ids, assert_created};

const CREATE_SANDBOX: &str = r#"curl -X POST http://localhost:8765/ \
  -H "Authorization: Bearer nxk_..." \
  -d '{"jsonrpc":"2.0","method":"create_agent","params":{"agent_id":"sandbox","preset":"sandboxed"},"id":1}'"#;

const CREATE_READONLY: &str = r#"curl -X POST http://localhost:8765/ \
  -H "Authorization: Bearer nxk_..." \
  -d '{"jsonrpc":"2.0","method":"create_agent","params":{"agent_id":"readonly","preset":"trusted","disable_tools":["write_file"]},"id":1}'"#;

const CREATE_CHILD: &str = r#"# Parent agent "coordinator" creates a child with restricted permissions
curl -X POST http://localhost:8765/ \
  -H "Authorization: Bearer nxk_..." \
  -d '{"jsonrpc":"2.0","method":"create_agent","params":{"agent_id":"worker","preset":"sandboxed","parent_agent_id":"coordinator"},"id":1}'"#;

const CREATE_TOO_MUCH: &str = r#"curl -X POST http://localhost:8765/ \
  -H "Authorization: Bearer nxk_..." \
  -d '{"jsonrpc":"2.0","method":"create_agent","params":{"agent_id":"worker","preset":"yolo","parent_agent_id":"sandboxed-parent"},"id":1}'"#;

/// The test replaces the document's directory.
const CREATE_WRITER: &str = r#"curl -X POST http://localhost:8765/rpc \
  -H "Authorization: Bearer nxk_..." \
  -H "Content-Type: application/json" \
  -d '{"jsonrpc":"2.0","method":"create_agent","params":{"agent_id":"writer","cwd":"/tmp/project","allowed_write_paths":["/tmp/project/output"]},"id":1}'"#;

fn assert_creates(fixture: &Fixture, command: &str, id: &str) {
    let (status, response) = run_documented(fixture, command);
    assert_eq!(
        (status, &response["jsonrpc"], &response["id"]),
        (200, &json!("2.0"), &json!(1)),
        "{response}"
    );
    assert_created(&response["result"], id);
}

fn agent_entry(fixture: &Fixture, id: &str) -> Value {
    fixture.agent(id)["agent"].take()
}

/// Runs the document's `nexus3 …` command on this daemon's port.
fn rpc_json(fixture: &Fixture, arguments: &[&str]) -> Value {
    let port = fixture.daemon.port().to_string();
    let finished = run(BIN, &[arguments, &["-p", &port]].concat(), &[], fixture.daemon.home());
    assert_eq!((finished.code, finished.stderr.as_str()), (0, ""), "{arguments:?}");
    serde_json::from_str(&finished.stdout).unwrap()
}

fn assert_writes_only_to_its_output(fixture: &Fixture, project: &TestDirectory) {
    let writer = agent_entry(fixture, "writer");
    assert_eq!(writer["cwd"], project.path_str());
    assert_eq!(writer["write_paths"], json!([project.path_of("output")]));
    let text = fixture.send_text("writer", r#"!tool write_file {"path":"output/a.txt","content":"made"}"#);
    assert_eq!(text, r#"tool said: {"bytes_written":4,"path":"output/a.txt","success":true}"#);
    assert_eq!(project.read("output/a.txt").as_deref(), Some("made"));
    let text = fixture.send_text("writer", r#"!tool write_file {"path":"b.txt","content":"made"}"#);
    let expected = format!(
        "tool said: Permission denied: cannot write '{}': Path outside allowed directories. Allowed: {}; add the directory \
         to allowed_write_paths",
        project.path_of("b.txt"),
        project.path_of("output"),
    );
    assert_eq!(text, expected);
    assert_eq!(project.read("b.txt"), None);
}

#[test]
fn agent_is_created_with_a_preset() {
    let fixture = Fixture::start();
    assert_creates(&fixture, CREATE_SANDBOX, "sandbox");
    let sandbox = agent_entry(&fixture, "sandbox");
    assert_eq!(
        (&sandbox["preset"], &sandbox["permission_level"]),
        (&json!("sandboxed"), &json!("SANDBOXED"))
    );
    assert_eq!(sandbox["write_paths"], json!([]), "write tools are disabled by default");
}

#[test]
fn agent_with_a_disabled_tool_reads_but_does_not_write() {
    let fixture = Fixture::start();
    assert_creates(&fixture, CREATE_READONLY, "readonly");
    let folder = TestDirectory::with_files(&[("file.txt", "there")]);
    assert_eq!(
        fixture.send_text("readonly", &read_file_script(&folder.path_of("file.txt"))),
        "tool said: there"
    );
    for name in ["write_file", "fs_write_file", "fs.write_file"] {
        let arguments = json!({ "path": folder.path_of("file.txt"), "content": "gone" });
        let text = fixture.send_text("readonly", &format!("!tool {name} {arguments}"));
        let expected = "tool said: Permission denied: Tool 'fs.write_file' is disabled by permission policy; remove it from disable_tools of the agent or its preset";
        assert_eq!(text, expected, "{name}");
    }
    assert_eq!(folder.read("file.txt").as_deref(), Some("there"));
}

#[test]
fn child_is_created_under_its_parents_ceiling() {
    let fixture = Fixture::start();
    fixture.create_with(json!({ "agent_id": "coordinator", "preset": "trusted" }));
    assert_creates(&fixture, CREATE_CHILD, "worker");
    assert_eq!(agent_entry(&fixture, "worker")["parent_agent_id"], "coordinator");
    assert_eq!(agent_entry(&fixture, "coordinator")["child_count"], 1);
    assert_eq!(fixture.permissions("worker")["ancestors"], json!(["coordinator"]));
}

#[test]
fn preset_above_the_parents_ceiling_is_rejected() {
    let fixture = Fixture::start();
    fixture.create_with(json!({ "agent_id": "sandboxed-parent", "preset": "sandboxed" }));
    let (status, response) = run_documented(&fixture, CREATE_TOO_MUCH);
    assert_eq!(status, 200);
    // The document shows -32603 and `Internal error: PermissionError: ` before the text; it is the caller's fault.
    let error = json!({
        "code": -32602,
        "message": "Requested preset 'yolo' exceeds parent ceiling",
        "data": { "kind": "permission_denied" },
    });
    assert_eq!(response, json!({ "jsonrpc": "2.0", "id": 1, "error": error }));
    assert_eq!(agent_ids(&fixture.daemon), ["sandboxed-parent"]);
}

#[test]
fn write_path_can_be_granted_over_http() {
    let fixture = Fixture::start();
    let project = TestDirectory::new();
    assert_creates(&fixture, &CREATE_WRITER.replace("/tmp/project", project.path_str()), "writer");
    assert_writes_only_to_its_output(&fixture, &project);
}

#[test]
fn write_path_can_be_granted_at_the_command_line() {
    let fixture = Fixture::start();
    let project = TestDirectory::new();
    let (cwd, output) = (project.path_str(), project.path_of("output"));
    let response = rpc_json(&fixture, &["rpc", "create", "writer", "--cwd", cwd, "--write-path", &output]);
    assert_created(&response, "writer");
    assert_writes_only_to_its_output(&fixture, &project);
}

#[test]
fn trusted_agents_lifecycle_at_the_command_line() {
    let fixture = Fixture::start();
    assert_created(&rpc_json(&fixture, &["rpc", "create", "worker-1", "--preset", "trusted"]), "worker-1");
    assert_eq!(rpc_json(&fixture, &["rpc", "list"])["agents"][0]["permission_level"], "TRUSTED");
    assert_eq!(rpc_json(&fixture, &["rpc", "send", "worker-1", "Hello!"])["content"], "echo: Hello!");
    assert_eq!(rpc_json(&fixture, &["rpc", "status", "worker-1"])["context"]["message_count"], 2);
    assert_eq!(rpc_json(&fixture, &["rpc", "destroy", "worker-1"])["success"], true);
    assert_eq!(rpc_json(&fixture, &["rpc", "shutdown"])["success"], true);
    assert_eq!(fixture.daemon.wait_exit().code(), Some(0));
}
