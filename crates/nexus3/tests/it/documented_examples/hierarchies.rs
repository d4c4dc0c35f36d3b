//! What the middle and the newest document show of permissions: presets, disabled tools, parents, and the folders that an
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

/// Only the folder is another one than the document's.
const CREATE_WRITER: &str = r#"curl -X POST http://localhost:8765/rpc \
  -H "Authorization: Bearer nxk_..." \
  -H "Content-Type: application/json" \
  -d '{"jsonrpc":"2.0","method":"create_agent","params":{"agent_id":"writer","cwd":"/tmp/project","allowed_write_paths":["/tmp/project/output"]},"id":1}'"#;

fn assert_creates(stage: &Fixture, command: &str, id: &str) {
    let (status, answer) = run_documented(stage, command);
    assert_eq!((status, &answer["jsonrpc"], &answer["id"]), (200, &json!("2.0"), &json!(1)), "{answer}");
    assert_created(&answer["result"], id);
}

fn get_permissions(stage: &Fixture, id: &str) -> Value {
    stage.agent(id)["agent"].take()
}

/// The document's `nexus3 …`, with the port of this daemon.
fn rpc_json(stage: &Fixture, arguments: &[&str]) -> Value {
    let port = stage.daemon.port().to_string();
    let finished = run(BIN, &[arguments, &["-p", &port]].concat(), &[], stage.daemon.home());
    assert_eq!((finished.code, finished.stderr.as_str()), (0, ""), "{arguments:?}");
    serde_json::from_str(&finished.stdout).unwrap()
}

fn assert_writes_only_to_its_output(stage: &Fixture, project: &TestDirectory) {
    let writer = get_permissions(stage, "writer");
    assert_eq!(writer["cwd"], project.path_str());
    assert_eq!(writer["write_paths"], json!([project.path_of("output")]));
    let said = stage.send_text("writer", r#"!tool write_file {"path":"output/a.txt","content":"made"}"#);
    assert_eq!(said, r#"tool said: {"bytes_written":4,"path":"output/a.txt","success":true}"#);
    assert_eq!(project.read("output/a.txt").as_deref(), Some("made"));
    let said = stage.send_text("writer", r#"!tool write_file {"path":"b.txt","content":"made"}"#);
    let text = format!(
        "tool said: Permission denied: cannot write '{}': Path outside allowed directories. Allowed: {}",
        project.path_of("b.txt"),
        project.path_of("output"),
    );
    assert_eq!(said, text);
    assert_eq!(project.read("b.txt"), None);
}

#[test]
fn an_agent_is_created_with_a_preset() {
    let stage = Fixture::start();
    assert_creates(&stage, CREATE_SANDBOX, "sandbox");
    let sandbox = get_permissions(&stage, "sandbox");
    assert_eq!(
        (&sandbox["preset"], &sandbox["permission_level"]),
        (&json!("sandboxed"), &json!("SANDBOXED"))
    );
    assert_eq!(sandbox["write_paths"], json!([]), "write tools are disabled by default");
}

#[test]
fn an_agent_with_a_disabled_tool_reads_and_does_not_write() {
    let stage = Fixture::start();
    assert_creates(&stage, CREATE_READONLY, "readonly");
    let folder = TestDirectory::with_files(&[("file.txt", "there")]);
    assert_eq!(
        stage.send_text("readonly", &read_file_script(&folder.path_of("file.txt"))),
        "tool said: there"
    );
    for name in ["write_file", "fs_write_file", "fs.write_file"] {
        let arguments = json!({ "path": folder.path_of("file.txt"), "content": "gone" });
        let said = stage.send_text("readonly", &format!("!tool {name} {arguments}"));
        let text = "tool said: Permission denied: Tool 'fs.write_file' is disabled by permission policy";
        assert_eq!(said, text, "{name}");
    }
    assert_eq!(folder.read("file.txt").as_deref(), Some("there"));
}

#[test]
fn a_child_is_created_under_its_parents_ceiling() {
    let stage = Fixture::start();
    stage.create_with(json!({ "agent_id": "coordinator", "preset": "trusted" }));
    assert_creates(&stage, CREATE_CHILD, "worker");
    assert_eq!(get_permissions(&stage, "worker")["parent_agent_id"], "coordinator");
    assert_eq!(get_permissions(&stage, "coordinator")["child_count"], 1);
    assert_eq!(stage.permissions("worker")["ancestors"], json!(["coordinator"]));
}

#[test]
fn a_preset_above_the_parents_ceiling_is_refused_in_the_documents_words() {
    let stage = Fixture::start();
    stage.create_with(json!({ "agent_id": "sandboxed-parent", "preset": "sandboxed" }));
    let (status, answer) = run_documented(&stage, CREATE_TOO_MUCH);
    assert_eq!(status, 200);
    // The document shows -32603 and `Internal error: PermissionError: ` before the text; it is the caller's fault.
    let error = json!({
        "code": -32602,
        "message": "Requested preset 'yolo' exceeds parent ceiling",
        "data": { "kind": "permission_denied" },
    });
    assert_eq!(answer, json!({ "jsonrpc": "2.0", "id": 1, "error": error }));
    assert_eq!(agent_ids(&stage.daemon), ["sandboxed-parent"]);
}

#[test]
fn writing_is_opened_for_a_folder_over_http() {
    let stage = Fixture::start();
    let project = TestDirectory::new();
    assert_creates(&stage, &CREATE_WRITER.replace("/tmp/project", project.path_str()), "writer");
    assert_writes_only_to_its_output(&stage, &project);
}

#[test]
fn writing_is_opened_for_a_folder_at_the_command_line() {
    let stage = Fixture::start();
    let project = TestDirectory::new();
    let (cwd, output) = (project.path_str(), project.path_of("output"));
    let answer = rpc_json(&stage, &["rpc", "create", "writer", "--cwd", cwd, "--write-path", &output]);
    assert_created(&answer, "writer");
    assert_writes_only_to_its_output(&stage, &project);
}

#[test]
fn a_trusted_agent_lives_its_life_at_the_command_line() {
    let stage = Fixture::start();
    assert_created(&rpc_json(&stage, &["rpc", "create", "worker-1", "--preset", "trusted"]), "worker-1");
    assert_eq!(rpc_json(&stage, &["rpc", "list"])["agents"][0]["permission_level"], "TRUSTED");
    assert_eq!(rpc_json(&stage, &["rpc", "send", "worker-1", "Hello!"])["content"], "echo: Hello!");
    assert_eq!(rpc_json(&stage, &["rpc", "status", "worker-1"])["context"]["message_count"], 2);
    assert_eq!(rpc_json(&stage, &["rpc", "destroy", "worker-1"])["success"], true);
    assert_eq!(rpc_json(&stage, &["rpc", "shutdown"])["success"], true);
    assert_eq!(stage.daemon.wait_exit().code(), Some(0));
}
