//! Audit log: one line per denial, with the principal and the rule, and never with a token.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use serde_json::{Value, json};
use testkit::ScriptedModel;

use crate::support::audit::{assert_denials, denials};
use crate::support::callers::{call_as, post_as};
use crate::support::folder::{TestDirectory, read_file_script, write_file_script};
use crate::support::{
    ExpectError as _, Fixture, agent_path, daemon_builder, files_below, is_timestamp, log_file,
};

const NO_ECHO: &str =
    "Tool 'echo' is disabled by permission policy; remove it from disable_tools of the agent or its preset";

#[test]
fn each_denied_call_has_one_audit_line_with_its_principal() {
    let fixture = Fixture::start();
    let lead = fixture.create_with(json!({ "agent_id": "lead", "preset": "trusted" }));
    let child = fixture.create_with(json!({ "agent_id": "child", "parent_agent_id": "lead" }));
    let daemon = &fixture.daemon;
    call_as(daemon, &child, &agent_path("lead"), "get_context", json!({}));
    call_as(daemon, &child, "/", "send", json!({ "content": "hi" }));
    call_as(daemon, &child, "/", "shutdown_server", json!({}));
    call_as(daemon, &child, "/", "destroy_agent", json!({ "agent_id": "lead" }));
    call_as(daemon, &lead, &agent_path("lead"), "set_permissions", json!({}));
    post_as(daemon, &child, &[("X-Nexus-Agent", "lead")], "/", "list_agents", json!({}));
    let request = br#"{"jsonrpc":"2.0","id":1,"method":"list_agents"}"#;
    daemon.post("/", &[("X-Nexus-Agent", "absent")], request);
    daemon.post(
        &agent_path("lead"),
        &[("X-Nexus-Agent", "child")],
        br#"{"jsonrpc":"2.0","method":"get_context"}"#,
    );
    call_as(daemon, &lead, &agent_path("child"), "get_context", json!({}));
    let not_authorized = "Agent 'child' is not authorized to call get_context on 'lead'";
    assert_denials(
        daemon,
        &[
            ["agent:child", "get_context", "identity", not_authorized],
            ["agent:child", "send", "identity", "Agent 'child' is not authorized to call send on 'main'"],
            [
                "agent:child",
                "shutdown_server",
                "identity",
                "Agent 'child' is not authorized to call shutdown_server",
            ],
            ["agent:child", "destroy_agent", "identity", "Agent 'child' is not authorized to destroy 'lead'"],
            [
                "agent:lead",
                "set_permissions",
                "identity",
                "Agent 'lead' is not authorized to call set_permissions on 'lead'",
            ],
            [
                "agent:child",
                "list_agents",
                "identity",
                "X-Nexus-Agent does not match the agent of the capability token",
            ],
            ["admin", "list_agents", "identity", "X-Nexus-Agent names no agent that exists"],
            ["agent:child", "get_context", "identity", not_authorized],
        ],
    );
}

#[test]
fn each_denied_tool_call_has_one_audit_line() {
    let fixture = Fixture::start();
    let (directory, outside) = (TestDirectory::new(), TestDirectory::new());
    let cwd = directory.path_str();
    fixture.create_with(
        json!({ "agent_id": "lead", "preset": "trusted", "cwd": cwd, "disable_tools": ["echo"] }),
    );
    fixture.create("stranger");
    let out = outside.path_of("x");
    for call in [
        "!tool echo {\"text\":\"hi\"}".to_owned(),
        write_file_script(&out, "x"),
        r#"!tool agent_create {"preset":"trusted"}"#.to_owned(),
        r#"!tool agent_send {"agent_id":"stranger","content":"hi"}"#.to_owned(),
        r#"!tool agent_destroy {"agent_id":"stranger"}"#.to_owned(),
        "!tool get_time {}".to_owned(),
    ] {
        fixture.send("lead", &call);
    }
    let write = format!(
        "cannot write '{out}': Path outside allowed directories. Allowed: {}; add the directory to allowed_write_paths",
        directory.path_str()
    );
    let reach = "cannot target agent 'stranger'; allowed: parent and child agents";
    assert_denials(
        &fixture.daemon,
        &[
            ["agent:lead", "echo", "tools", NO_ECHO],
            ["agent:lead", "fs.write_file", "write", &write],
            ["agent:lead", "agent_create", "create", "Requested preset 'trusted' exceeds parent ceiling"],
            ["agent:lead", "agent_send", "targets", reach],
            ["agent:lead", "agent_destroy", "targets", reach],
        ],
    );
}

#[test]
fn denial_on_opening_a_file_has_an_audit_line() {
    let fixture = Fixture::start();
    let (directory, outside) =
        (TestDirectory::with_files(&[(".git/config", "")]), TestDirectory::with_files(&[("b.txt", "out")]));
    directory.link("far", &outside.path_of("b.txt"));
    directory.link("home", fixture.daemon.home().to_str().unwrap());
    fixture.create_with(json!({ "agent_id": "lead", "preset": "trusted", "cwd": directory.path_str() }));
    let calls = [
        write_file_script("far", "x"),
        read_file_script("home/logs"),
        write_file_script(".git/hooks/x", "x"),
        read_file_script("/proc/self/environ"),
    ];
    for call in &calls {
        let text = fixture.send_text("lead", call);
        assert!(text.starts_with("tool said: Permission denied: "), "{call}: {text}");
    }
    let lines = denials(&fixture.daemon);
    let actions: Vec<_> = lines.iter().map(|line| line["action"].as_str().unwrap_or("-")).collect();
    assert_eq!(actions, ["fs.write_file", "fs.read_file", "fs.write_file", "fs.read_file"], "{lines:?}");
    assert!(lines.iter().all(|line| line["principal"] == "agent:lead"), "{lines:?}");
}

/// Sends requests that exceed the permissions; asserts that each is denied and has one audit line with the principal
/// `admin`.
fn assert_each_is_audited(method: &str, prepare: impl Fn(&Fixture) -> Vec<(String, Value)>) {
    let fixture = Fixture::start();
    let requests = prepare(&fixture);
    let mut texts = Vec::new();
    for (path, params) in requests {
        let error = fixture.daemon.error(&path, method, params);
        assert_eq!(error["data"]["kind"], "permission_denied", "{error}");
        texts.push(error["message"].as_str().unwrap().to_owned());
    }
    let lines = denials(&fixture.daemon);
    let audited: Vec<_> = lines.iter().map(|line| line["text"].as_str().unwrap_or("-").to_owned()).collect();
    assert_eq!(audited, texts, "{method}: one line per denial, in order");
    assert!(lines.iter().all(|line| line["principal"] == "admin"), "{lines:?}");
}

#[test]
fn each_denied_create_has_one_audit_line() {
    let (directory, outside) = (TestDirectory::new(), TestDirectory::new());
    assert_each_is_audited("create_agent", |fixture| {
        let lead = json!({
            "agent_id": "lead", "cwd": directory.path_str(), "may_create": ["sandboxed"],
            "allowed_write_paths": ["out"], "budget": { "turns": 1, "children": 0 },
        });
        fixture.create_with(lead);
        let requests = [
            json!({ "preset": "trusted" }),
            json!({ "cwd": outside.path_str() }),
            json!({ "allowed_write_paths": ["elsewhere"] }),
            json!({ "may_create": ["trusted"] }),
            json!({ "may_grant": { "preset": "trusted" } }),
            json!({ "budget": { "turns": 2 } }),
            json!({}),
        ];
        let under_lead = |mut params: Value| {
            params["agent_id"] = json!("extra");
            params["parent_agent_id"] = json!("lead");
            ("/".to_owned(), params)
        };
        requests.into_iter().map(under_lead).collect()
    });
}

#[test]
fn create_beyond_the_depth_limit_has_one_audit_line() {
    assert_each_is_audited("create_agent", |fixture| {
        for depth in 0..=5 {
            let mut params =
                json!({ "agent_id": format!("d{depth}"), "preset": "trusted", "may_create": ["trusted"] });
            if depth > 0 {
                params["parent_agent_id"] = json!(format!("d{}", depth - 1));
            }
            fixture.create_with(params);
        }
        vec![("/".to_owned(), json!({ "preset": "trusted", "parent_agent_id": "d5" }))]
    });
}

#[test]
fn each_denied_permission_change_has_one_audit_line() {
    let (directory, outside) = (TestDirectory::new(), TestDirectory::new());
    assert_each_is_audited("set_permissions", |fixture| {
        let budget = json!({ "turns": 1 });
        fixture.create_with(
            json!({ "agent_id": "lead", "preset": "trusted", "cwd": directory.path_str(), "budget": budget }),
        );
        fixture.create_with(json!({ "agent_id": "child", "parent_agent_id": "lead" }));
        let requests = [
            json!({ "preset": "trusted" }),
            json!({ "allowed_write_paths": [outside.path_str()] }),
            json!({ "budget": { "turns": 2 } }),
        ];
        requests.into_iter().map(|params| (agent_path("child"), params)).collect()
    });
}

#[test]
fn permission_change_is_audited_with_its_principal() {
    let fixture = Fixture::start();
    // An agent with the name of another principal.
    let lead = fixture.create_with(json!({ "agent_id": "admin", "preset": "trusted" }));
    fixture.create_with(json!({ "agent_id": "child", "parent_agent_id": "admin" }));
    fixture.set_permissions("child", json!({ "disable_tools": ["echo"] }));
    call_as(&fixture.daemon, &lead, &agent_path("child"), "set_permissions", json!({ "disable_tools": [] }));
    assert_eq!(denials(&fixture.daemon).len(), 0);
    let trail = fs::read_to_string(log_file(&fixture.daemon, "_daemon", "audit.jsonl")).unwrap();
    let lines: Vec<Value> = trail.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let changes: Vec<_> = lines.iter().filter(|line| line["action"] == "set_permissions").collect();
    let principals: Vec<_> = changes.iter().map(|line| line["principal"].as_str().unwrap_or("-")).collect();
    assert_eq!(principals, ["admin", "agent:admin"], "{trail}");
    assert!(changes.iter().all(|line| line["agent"] == "child"), "the changed agent: {trail}");
}

#[test]
fn audit_line_is_valid_json_in_a_private_file() {
    let fixture = Fixture::start();
    fixture.create_with(json!({ "agent_id": "lead", "disable_tools": ["echo"] }));
    let forged = "x\\n{\\\"event\\\":\\\"denied\\\",\\\"principal\\\":\\\"admin\\\"}\\u001b[2J";
    fixture.send("lead", &format!("!tool read_file {{\"path\":\"/{forged}\"}}"));
    fixture.send("lead", "!tool echo {\"text\":\"hi\"}");
    let lines = denials(&fixture.daemon);
    assert_eq!(lines.len(), 2, "{lines:?}");
    for line in &lines {
        let names = crate::support::member_names(line);
        assert_eq!(names, ["action", "event", "principal", "rule", "text", "time"]);
        assert_eq!(line["principal"], "agent:lead");
        assert!(line["time"].as_str().is_some_and(|time| time.starts_with("20")), "{line}");
        assert!(!is_timestamp(&line["text"]), "{line}");
    }
    let file = log_file(&fixture.daemon, "_daemon", "audit.jsonl");
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o600);
    assert!(!fs::read_to_string(&file).unwrap().contains('\u{1b}'));
    let stderr = fixture.daemon.stderr();
    assert!(!stderr.contains('\u{1b}') && !stderr.contains("\n{"), "{stderr:?}");
}

#[test]
fn no_capability_token_is_in_any_file_or_stream() {
    let model = ScriptedModel::start();
    let arguments = ["--log-level", "trace", "--log-verbose", "--log-raw"];
    let daemon_with_all_logs =
        arguments.iter().fold(daemon_builder(&model), |builder, argument| builder.arg(*argument)).start();
    let fixture = Fixture { daemon: daemon_with_all_logs, model };
    let lead =
        fixture.create_with(json!({ "agent_id": "lead", "preset": "trusted", "initial_message": "hello" }));
    let child = fixture.create_with(json!({ "agent_id": "child", "parent_agent_id": "lead" }));
    fixture.send_text(
        "lead",
        r#"!tool agent_create {"agent_id":"made","initial_message":"hi","wait_for_initial_response":true}"#,
    );
    let created = call_as(&fixture.daemon, &lead, "/", "create_agent", json!({ "agent_id": "over-http" }));
    let created = created["result"]["token"].as_str().unwrap().to_owned();
    call_as(&fixture.daemon, &child, &agent_path("lead"), "get_context", json!({}));
    post_as(&fixture.daemon, &child, &[("X-Nexus-Agent", "lead")], "/", "list_agents", json!({}));
    let wrong_token = format!("{child}x");
    assert_eq!(post_as(&fixture.daemon, &wrong_token, &[], "/", "list_agents", json!({})).status, 403);
    let malformed = format!("POST / HTTP/1.1\r\nAuthorization: Bearer {child}\r\nbad header\r\n\r\n");
    fixture.daemon.send_raw(malformed.as_bytes());
    fixture.daemon.call_result("/", "destroy_agent", json!({ "agent_id": "child" }));
    assert_eq!(post_as(&fixture.daemon, &child, &[], "/", "list_agents", json!({})).status, 403);
    assert!(!denials(&fixture.daemon).is_empty());
    for token in [&lead, &child, &created] {
        assert!(
            !fixture.daemon.stdout().contains(token.as_str())
                && !fixture.daemon.stderr().contains(token.as_str())
        );
        for (path, text) in files_below(fixture.daemon.home()) {
            assert!(!text.contains(token.as_str()), "{}", path.display());
        }
        assert!(
            fixture.model.requests().iter().all(|request| !request.body.to_string().contains(token.as_str()))
        );
    }
    let files_with_prefix: Vec<_> =
        files_below(fixture.daemon.home()).into_iter().filter(|(_, text)| text.contains("nxc_")).collect();
    assert_eq!(files_with_prefix.len(), 0, "not even the prefix of a token: {files_with_prefix:?}");
}
