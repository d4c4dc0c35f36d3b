//! Approvals over processes: a grandchild asks, and a person, an ancestor, a rule or the time limit answers, also after
//! `kill -9` of the daemon.

use serde_json::{Value, json};

use crate::support::folder::TestDirectory;
use crate::support::{BIN, Fixture, daemon_builder, wait_until};
use testkit::{HttpPeer, PeerAction, ScriptedModel, http_response, run};

/// A command that leaves the sandbox: it writes beside the working directory.
fn leave_sandbox(directory: &TestDirectory) -> String {
    let line = format!("echo ran >> {}", directory.path_of("ran"));
    format!("!tool shell.exec {}", json!({ "command": line, "unsandboxed": true }))
}

/// Creates root (trusted, may answer) > child (sandboxed, may create) > grandchild, which asks for commands that leave the
/// sandbox.
fn create_tree(fixture: &Fixture, directory: &TestDirectory) {
    let cwd = directory.path_of("work");
    let tools = ["*", "approvals_list", "approvals_answer"];
    fixture.create_with(json!({
        "agent_id": "root", "preset": "trusted", "cwd": cwd, "tools": tools,
        "may_grant": { "preset": "trusted", "tools": tools, "may_create": ["sandboxed"] },
    }));
    fixture.create_with(json!({
        "agent_id": "child", "parent_agent_id": "root", "may_create": ["sandboxed"], "allowed_commands": ["sh"],
    }));
    fixture.create_with(json!({
        "agent_id": "grandchild", "parent_agent_id": "child", "allowed_commands": ["sh"],
        "ask": ["unsandboxed:*", "shell.exec"],
    }));
}

fn approvals(fixture: &Fixture) -> Vec<Value> {
    fixture.daemon.call_result("/", "list_approvals", json!({}))["approvals"].as_array().unwrap().clone()
}

/// The only request, once there is one.
fn wait_for_approval(fixture: &Fixture) -> Value {
    wait_until("an agent asks", || !approvals(fixture).is_empty());
    let mut approvals = approvals(fixture);
    assert_eq!(approvals.len(), 1);
    approvals.remove(0)
}

fn answer(fixture: &Fixture, params: Value) -> Value {
    fixture.daemon.call_result("/", "answer_approval", params)
}

fn start() -> (Fixture, TestDirectory) {
    let directory = TestDirectory::with_files(&[("work/a.txt", "one\n")]);
    let fixture = Fixture::start();
    create_tree(&fixture, &directory);
    (fixture, directory)
}

#[test]
fn person_answers_the_grandchild_over_rpc() {
    let (fixture, directory) = start();
    let pending = fixture.start_send("grandchild", &leave_sandbox(&directory), "r");
    let approval = wait_for_approval(&fixture);
    assert_eq!(approval["agent_id"], "grandchild");
    assert_eq!(approval["ancestors"], json!(["child", "root"]));
    assert_eq!(approval["arguments"]["unsandboxed"], true);
    let effects = approval["effects"].to_string();
    assert!(effects.contains("outside the sandbox") && effects.contains("use shell.exec"), "{effects}");
    assert!(directory.read("ran").is_none(), "nothing ran yet");
    answer(&fixture, json!({ "approval_id": approval["approval_id"], "answer": "allow" }));
    let content = pending.next_result()["content"].to_string();
    assert!(content.contains("exit_code"), "{content}");
    assert_eq!(directory.read("ran").as_deref(), Some("ran\n"));
    // Once: the next call asks again.
    let pending = fixture.start_send("grandchild", &leave_sandbox(&directory), "r2");
    let approval = wait_for_approval(&fixture);
    let note = "use the sandbox";
    answer(&fixture, json!({ "approval_id": approval["approval_id"], "answer": "deny", "note": note }));
    let content = pending.next_result()["content"].to_string();
    assert!(content.contains("denied when asked for: use the sandbox"), "{content}");
    assert_eq!(directory.read("ran").as_deref(), Some("ran\n"));
}

#[test]
fn parent_answers_with_its_tool_within_its_ceiling() {
    let (fixture, directory) = start();
    let in_sandbox = format!("!tool shell.exec {}", json!({ "command": "cat a.txt" }));
    let pending = fixture.start_send("grandchild", &in_sandbox, "r");
    let id = wait_for_approval(&fixture)["approval_id"].clone();
    let listed = fixture.send_text("root", r#"!tool approvals_list {"wait_secs":30}"#);
    assert!(listed.contains(id.as_str().unwrap()), "{listed}");
    let allow = json!({ "approval_id": id, "answer": "allow", "scope": "agent", "rule": "shell.exec" });
    let answered = fixture.send_text("root", &format!("!tool approvals_answer {allow}"));
    assert!(answered.contains("\"answer\":\"allow\""), "{answered}");
    assert!(pending.next_result()["content"].as_str().unwrap().contains("one"));
    // The rule covers the tool, and not what leaves the sandbox: that is above the root itself.
    let pending = fixture.start_send("grandchild", &leave_sandbox(&directory), "r2");
    let id = wait_for_approval(&fixture)["approval_id"].clone();
    let allow = json!({ "approval_id": id, "answer": "allow" });
    let refused = fixture.send_text("root", &format!("!tool approvals_answer {allow}"));
    assert!(refused.contains("exceeds what agent:root may grant"), "{refused}");
    let deny = json!({ "approval_id": id, "answer": "deny" });
    fixture.send_text("root", &format!("!tool approvals_answer {deny}"));
    assert!(pending.next_result()["content"].as_str().unwrap().contains("Permission denied"));
    assert!(directory.read("ran").is_none());
    // The child has no such tools, and an agent does not answer for itself.
    let refused = fixture.send_text("child", "!tool approvals_list {}");
    assert!(refused.contains("Tool 'approvals_list' is disabled by permission policy"), "{refused}");
}

#[test]
fn rule_answers_later_calls_of_the_subtree() {
    let (fixture, directory) = start();
    let pending = fixture.start_send("grandchild", &leave_sandbox(&directory), "r");
    let id = wait_for_approval(&fixture)["approval_id"].clone();
    answer(&fixture, json!({ "approval_id": id, "answer": "allow", "scope": "subtree" }));
    pending.next_result();
    let content = fixture.send_text("grandchild", &leave_sandbox(&directory));
    assert!(content.contains("exit_code"), "{content}");
    assert_eq!(directory.read("ran").as_deref(), Some("ran\nran\n"));
    assert!(approvals(&fixture).is_empty());
    let rules = fixture.permissions("grandchild")["rules"].as_array().unwrap().clone();
    assert!(rules.iter().any(|rule| rule["action"] == "allow" && rule["granted_by"] == "admin"), "{rules:?}");
}

#[test]
fn time_limit_answers_with_the_default() {
    let directory = TestDirectory::with_files(&[("work/a.txt", "one\n")]);
    let fixture = Fixture::with_config("[limits]\napproval_s = 1\n");
    create_tree(&fixture, &directory);
    let content = fixture.send_text("grandchild", &leave_sandbox(&directory));
    assert!(content.contains("the call was not approved: no answer within 1 s"), "{content}");
    assert!(directory.read("ran").is_none() && approvals(&fixture).is_empty());
}

#[test]
fn request_and_answer_survive_kill_9() {
    let (fixture, directory) = start();
    let _pending = fixture.start_send("grandchild", &leave_sandbox(&directory), "r");
    let before = wait_for_approval(&fixture);
    let Fixture { daemon, model } = fixture;
    let fixture = Fixture { daemon: daemon.kill().start(), model };
    let after = wait_for_approval(&fixture);
    assert_eq!(after, before, "the same request");
    answer(&fixture, json!({ "approval_id": after["approval_id"], "answer": "allow" }));
    // Killed directly after the answer: the call runs once, or its outcome is unknown.
    let Fixture { daemon, model } = fixture;
    let fixture = Fixture { daemon: daemon.kill().start(), model };
    // A repeated request joins the turn, or gets its stored response.
    fixture.start_send("grandchild", &leave_sandbox(&directory), "r").next_result();
    assert!(approvals(&fixture).is_empty(), "the answer counts");
    let messages = fixture.messages("grandchild");
    let results: Vec<_> = messages.iter().filter(|(role, _)| role == "tool").collect();
    assert_eq!(results.len(), 1, "{messages:?}");
    let runs = directory.read("ran").unwrap_or_default();
    assert!(runs == "ran\n" || (runs.is_empty() && results[0].1.contains("unknown")), "{runs:?} {results:?}");
}

#[test]
fn command_line_lists_shows_and_answers() {
    let (fixture, directory) = start();
    let nexus3 = |arguments: &[&str]| {
        let port = fixture.daemon.port().to_string();
        let output = run(BIN, &[arguments, &["-p", &port]].concat(), &[], fixture.daemon.home());
        (output.code, output.stdout, output.stderr)
    };
    assert_eq!(nexus3(&["approvals"]), (0, "no calls wait for an approval\n".to_owned(), String::new()));
    let pending = fixture.start_send("grandchild", &leave_sandbox(&directory), "r");
    let approval = wait_for_approval(&fixture);
    let id = approval["approval_id"].as_str().unwrap();
    let (code, listed, _) = nexus3(&["approvals"]);
    assert!(code == 0 && listed.starts_with(&format!("{id}  grandchild wants shell.exec: ")), "{listed}");
    let (_, shown, _) = nexus3(&["approvals", "show", &id[..6]]);
    assert!(
        shown.contains("agent     root > child > grandchild\n") && shown.contains("\"unsandboxed\": true"),
        "{shown}"
    );
    let (_, listed, _) = nexus3(&["approvals", "list", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&listed).unwrap()["approvals"][0], approval);
    let (code, _, errors) = nexus3(&["approvals", "show", "zzz"]);
    assert!(code == 1 && errors.contains("nexus3 approvals lists them"), "{errors}");
    let (code, allowed, errors) = nexus3(&["approvals", "allow", &id[..6]]);
    assert_eq!((code, allowed.as_str(), errors.as_str()), (0, &*format!("allowed {id}\n"), ""));
    pending.next_result();
    let (code, _, errors) = nexus3(&["approvals", "deny", id]);
    assert!(code == 1 && errors.contains("was answered already: allowed by admin"), "{errors}");
    assert_eq!(directory.read("ran").as_deref(), Some("ran\n"));
}

#[test]
fn trusted_agent_asks_for_a_host_and_may_keep_it() {
    let response = http_response("200 OK", "Content-Type: text/plain\r\n", "hello");
    let peer = HttpPeer::start_on_thread(move |_| vec![PeerAction::Write(response.clone())]);
    let fixture = Fixture::start();
    fixture.create_with(json!({ "agent_id": "root", "preset": "trusted" }));
    let fetch = format!("!tool web.fetch {}", json!({ "url": format!("http://127.0.0.1:{}/", peer.port()) }));
    let pending = fixture.start_send("root", &fetch, "r");
    let approval = wait_for_approval(&fixture);
    assert_eq!(approval["effects"], json!([format!("connect to 127.0.0.1:{}", peer.port())]));
    assert!(peer.log().requests.is_empty(), "nothing is sent before the answer");
    answer(
        &fixture,
        json!({
            "approval_id": approval["approval_id"], "answer": "allow", "scope": "agent",
            "rule": format!("host:127.0.0.1:{}", peer.port()),
        }),
    );
    assert!(pending.next_result()["content"].as_str().unwrap().contains("hello"));
    assert!(fixture.send_text("root", &fetch).contains("hello"), "the rule covers it");
    assert_eq!(peer.log().requests.len(), 2);
}

#[test]
fn waiting_agent_blocks_no_other() {
    let model = ScriptedModel::start();
    let daemon = daemon_builder(&model).config("[limits]\nturns_running_max = 1\n").start();
    let fixture = Fixture { daemon, model };
    let directory = TestDirectory::with_files(&[("work/a.txt", "one\n")]);
    create_tree(&fixture, &directory);
    let pending = fixture.start_send("grandchild", &leave_sandbox(&directory), "r");
    let id = wait_for_approval(&fixture)["approval_id"].clone();
    assert_eq!(fixture.send_text("child", "hi"), "echo: hi");
    answer(&fixture, json!({ "approval_id": id, "answer": "deny" }));
    pending.next_result();
}
