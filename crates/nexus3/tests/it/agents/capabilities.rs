//! Capability tokens: whoever shows one as bearer is that agent. Its own methods, its subtree as far as its grant goes,
//! and nothing else; and no longer than the agent lives.

use serde_json::{Value, json};

use crate::support::callers::{call_as, permission_denied, post_as, result_as};
use crate::support::{Fixture, agent_ids, agent_path, daemon_builder, is_capability_token};

/// lead (trusted) > child > nobody; sister beside child; stranger apart.
struct Family {
    stage: Fixture,
    lead: String,
    child: String,
}

fn family() -> Family {
    family_on(Fixture::start())
}

fn family_on(stage: Fixture) -> Family {
    let lead = stage.create_with(json!({ "agent_id": "lead", "preset": "trusted" }));
    let child = stage.create_with(json!({ "agent_id": "child", "parent_agent_id": "lead" }));
    stage.create_with(json!({ "agent_id": "sister", "parent_agent_id": "lead" }));
    stage.create("stranger");
    Family { stage, lead, child }
}

fn agent_calls() -> [(&'static str, Value); 9] {
    [
        ("send", json!({ "content": "hi" })),
        ("cancel", json!({ "request_id": "r" })),
        ("steer", json!({ "content": "hi" })),
        ("get_tokens", json!({})),
        ("get_context", json!({})),
        ("get_messages", json!({})),
        ("get_agent", json!({})),
        ("list_children", json!({})),
        ("get_permissions", json!({})),
    ]
}

#[test]
fn a_token_opens_its_agents_own_methods() {
    let Family { stage, child, .. } = family();
    for (method, params) in agent_calls() {
        result_as(&stage.daemon, &child, &agent_path("child"), method, params);
    }
    let done = result_as(&stage.daemon, &child, &agent_path("child"), "shutdown", json!({}));
    assert_eq!(done, json!({ "success": true }));
    let response = call_as(&stage.daemon, &child, &agent_path("child"), "set_permissions", json!({}));
    let text = "Agent 'child' is not authorized to call set_permissions on 'child'";
    assert_eq!(response["error"], permission_denied(text), "nobody widens its own rights");
}

#[test]
fn a_token_opens_the_subtree_of_its_agent() {
    let Family { stage, lead, .. } = family();
    for (method, params) in
        agent_calls().into_iter().chain([("set_permissions", json!({})), ("shutdown", json!({}))])
    {
        result_as(&stage.daemon, &lead, &agent_path("child"), method, params);
    }
    let made = result_as(&stage.daemon, &lead, "/", "create_agent", json!({ "agent_id": "new" }));
    assert!(is_capability_token(&made["token"]), "{made}");
    assert_eq!(stage.agent("new")["ancestors"], json!(["lead"]));
    let gone = result_as(&stage.daemon, &lead, "/", "destroy_agent", json!({ "agent_id": "new" }));
    assert_eq!(gone, json!({ "success": true, "agent_id": "new" }));
}

#[test]
fn a_token_opens_no_parent_no_sibling_and_no_stranger() {
    let Family { stage, child, .. } = family();
    let more = [("set_permissions", json!({})), ("shutdown", json!({}))];
    for whom in ["lead", "sister", "stranger"] {
        for (method, params) in agent_calls().into_iter().chain(more.clone()) {
            let response = call_as(&stage.daemon, &child, &agent_path(whom), method, params);
            let text = format!("Agent 'child' is not authorized to call {method} on '{whom}'");
            assert_eq!(response["error"], permission_denied(&text));
        }
        let response = call_as(&stage.daemon, &child, "/", "destroy_agent", json!({ "agent_id": whom }));
        assert_eq!(
            response["error"],
            permission_denied(&format!("Agent 'child' is not authorized to destroy '{whom}'"))
        );
        assert_eq!(stage.context(whom)["message_count"], 0);
    }
    for (method, params) in agent_calls() {
        let response = call_as(&stage.daemon, &child, "/", method, params);
        let text = format!("Agent 'child' is not authorized to call {method} on 'main'");
        assert_eq!(response["error"], permission_denied(&text));
    }
    let response = call_as(&stage.daemon, &child, "/", "shutdown_server", json!({}));
    assert_eq!(
        response["error"],
        permission_denied("Agent 'child' is not authorized to call shutdown_server")
    );
    assert_eq!(agent_ids(&stage.daemon), ["lead", "child", "sister", "stranger"]);
    assert_eq!(stage.model.requests().len(), 0);
}

#[test]
fn a_grant_that_lacks_a_tool_lacks_its_method_over_the_subtree() {
    let Family { stage, lead, .. } = family();
    stage.set_permissions("lead", json!({ "disable_tools": ["agent_send", "agent_status"] }));
    for (method, tool) in [
        ("send", "agent_send"),
        ("steer", "agent_send"),
        ("get_context", "agent_status"),
        ("get_agent", "agent_status"),
    ] {
        let params = if tool == "agent_send" { json!({ "content": "hi" }) } else { json!({}) };
        let response = call_as(&stage.daemon, &lead, &agent_path("child"), method, params);
        assert_eq!(
            response["error"],
            permission_denied(&format!("Tool '{tool}' is disabled by permission policy"))
        );
    }
    result_as(&stage.daemon, &lead, &agent_path("lead"), "get_context", json!({}));
    result_as(&stage.daemon, &lead, &agent_path("child"), "cancel", json!({ "request_id": "r" }));
}

#[test]
fn a_list_shows_an_agent_itself_and_those_below() {
    let Family { stage, lead, child } = family();
    let names = |token: &str| -> (Vec<Value>, Value) {
        let list = result_as(&stage.daemon, token, "/", "list_agents", json!({}));
        let names =
            list["agents"].as_array().unwrap().iter().map(|agent| agent["agent_id"].clone()).collect();
        (names, list["total"].clone())
    };
    assert_eq!(names(&lead), (vec![json!("lead"), json!("child"), json!("sister")], json!(3)));
    assert_eq!(names(&child), (vec![json!("child")], json!(1)));
    let page = result_as(&stage.daemon, &lead, "/rpc", "list_agents", json!({ "offset": 1, "limit": 1 }));
    assert_eq!((&page["agents"][0]["agent_id"], &page["total"]), (&json!("child"), &json!(3)));
}

#[test]
fn a_token_dies_with_its_agent_and_does_not_rise_with_its_name() {
    let Family { stage, lead, child } = family();
    result_as(&stage.daemon, &lead, "/", "destroy_agent", json!({ "agent_id": "child" }));
    let assert_dead = || {
        for path in ["/", "/agent/child", "/agent/lead", "/agent/nobody"] {
            let answer = post_as(&stage.daemon, &child, &[], path, "get_context", json!({}));
            let error = json!({ "code": -32600, "message": "Invalid API key" });
            assert_eq!((answer.status, &answer.json()["error"]), (403, &error), "{path}");
        }
    };
    assert_dead();
    let fresh = stage.create_with(json!({ "agent_id": "child", "parent_agent_id": "lead" }));
    assert_dead();
    assert_ne!(fresh, child);
    result_as(&stage.daemon, &fresh, &agent_path("child"), "get_context", json!({}));
}

#[test]
fn a_token_that_is_nobodys_is_refused_before_anything_else() {
    let Family { stage, child, .. } = family();
    let (head, last) = child.split_at(child.len() - 1);
    let nearly = format!("{head}{}", if last == "A" { "B" } else { "A" });
    let upper = child.replacen("nxc_", "NXC_", 1);
    for wrong in ["nxc_", "nxc_x", head, &nearly, &format!("{child}x"), &upper, "nxc_../../etc"] {
        for path in ["/", "/agent/child", "/agent/nobody", "/no/such/path"] {
            let answer = post_as(&stage.daemon, wrong, &[], path, "list_agents", json!({}));
            assert_eq!(answer.status, 403, "{wrong} at {path}: {}", answer.text());
            assert_eq!(answer.json()["error"]["message"], "Invalid API key");
        }
    }
}

#[test]
fn a_name_beside_a_token_has_to_be_its_agents() {
    let Family { stage, lead, child } = family();
    let answer = |token: &str, name: &str| {
        post_as(
            &stage.daemon,
            token,
            &[("X-Nexus-Agent", name)],
            &agent_path("child"),
            "get_context",
            json!({}),
        )
        .json()
    };
    assert_eq!(answer(&child, "child")["result"]["message_count"], 0);
    let mismatch = permission_denied("X-Nexus-Agent does not match the agent of the capability token");
    for (token, name) in
        [(&child, "lead"), (&lead, "child"), (&child, "nobody"), (&child, ""), (&child, "Child")]
    {
        assert_eq!(answer(token, name)["error"], mismatch, "{name}");
    }
}

#[test]
fn a_token_narrows_also_where_none_is_needed() {
    let model = testkit::ScriptedModel::start();
    let daemon = daemon_builder(&model).arg("--no-auth").start();
    let Family { stage, lead, child } = family_on(Fixture { daemon, model });
    let response = call_as(&stage.daemon, &child, &agent_path("lead"), "get_context", json!({}));
    assert_eq!(
        response["error"],
        permission_denied("Agent 'child' is not authorized to call get_context on 'lead'")
    );
    let response = call_as(&stage.daemon, &lead, "/", "shutdown_server", json!({}));
    assert_eq!(
        response["error"],
        permission_denied("Agent 'lead' is not authorized to call shutdown_server")
    );
    assert_eq!(result_as(&stage.daemon, &child, "/", "list_agents", json!({}))["total"], 1);
    let wrong = post_as(&stage.daemon, "nxc_wrong", &[], "/", "list_agents", json!({}));
    assert_eq!(wrong.status, 403, "a wrong one is not none");
    assert_eq!(
        stage.daemon.call_result("/", "list_agents", json!({}))["total"],
        4,
        "without one everybody is admin"
    );
}

#[test]
fn a_token_told_by_one_create_is_told_nowhere_else() {
    let Family { stage, lead, child } = family();
    let seen = [
        stage.daemon.call_result("/", "list_agents", json!({})),
        stage.agent("child"),
        stage.permissions("child"),
        stage.daemon.call_result(&agent_path("lead"), "list_children", json!({})),
        stage.daemon.call_result(&agent_path("child"), "get_messages", json!({})),
        result_as(&stage.daemon, &child, &agent_path("child"), "get_agent", json!({})),
        json!(stage.send_text("lead", "!tool agent_list {}")),
        json!(stage.send_text("lead", r#"!tool agent_create {"agent_id":"made"}"#)),
    ];
    for answer in seen {
        let text = answer.to_string();
        assert!(!text.contains("nxc_") && !text.contains(&lead) && !text.contains(&child), "{text}");
    }
}
