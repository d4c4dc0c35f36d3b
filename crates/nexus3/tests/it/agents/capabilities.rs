//! Capability tokens: a bearer token authenticates its caller as one agent, with that agent's methods and its subtree
//! within its grant. The token is valid as long as the agent exists.

use serde_json::{Value, json};

use crate::support::callers::{call_as, permission_denied, post_as, result_as};
use crate::support::{Fixture, agent_ids, agent_path, daemon_builder, is_capability_token};

/// `lead` (trusted) has the children `child` and `sister`; `stranger` is unrelated.
struct Family {
    fixture: Fixture,
    lead: String,
    child: String,
}

fn family() -> Family {
    family_on(Fixture::start())
}

fn family_on(fixture: Fixture) -> Family {
    let lead = fixture.create_with(json!({ "agent_id": "lead", "preset": "trusted" }));
    let child = fixture.create_with(json!({ "agent_id": "child", "parent_agent_id": "lead" }));
    fixture.create_with(json!({ "agent_id": "sister", "parent_agent_id": "lead" }));
    fixture.create("stranger");
    Family { fixture, lead, child }
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
fn token_authorizes_the_agents_own_methods() {
    let Family { fixture, child, .. } = family();
    for (method, params) in agent_calls() {
        result_as(&fixture.daemon, &child, &agent_path("child"), method, params);
    }
    let done = result_as(&fixture.daemon, &child, &agent_path("child"), "shutdown", json!({}));
    assert_eq!(done, json!({ "success": true }));
    let response = call_as(&fixture.daemon, &child, &agent_path("child"), "set_permissions", json!({}));
    let text = "Agent 'child' is not authorized to call set_permissions on 'child'";
    assert_eq!(response["error"], permission_denied(text), "an agent cannot widen its own permissions");
}

#[test]
fn token_authorizes_the_agents_subtree() {
    let Family { fixture, lead, .. } = family();
    for (method, params) in
        agent_calls().into_iter().chain([("set_permissions", json!({})), ("shutdown", json!({}))])
    {
        result_as(&fixture.daemon, &lead, &agent_path("child"), method, params);
    }
    let made = result_as(&fixture.daemon, &lead, "/", "create_agent", json!({ "agent_id": "new" }));
    assert!(is_capability_token(&made["token"]), "{made}");
    assert_eq!(fixture.agent("new")["ancestors"], json!(["lead"]));
    let gone = result_as(&fixture.daemon, &lead, "/", "destroy_agent", json!({ "agent_id": "new" }));
    assert_eq!(gone, json!({ "success": true, "agent_id": "new" }));
}

#[test]
fn token_denies_parent_siblings_and_unrelated_agents() {
    let Family { fixture, child, .. } = family();
    let more = [("set_permissions", json!({})), ("shutdown", json!({}))];
    for target in ["lead", "sister", "stranger"] {
        for (method, params) in agent_calls().into_iter().chain(more.clone()) {
            let response = call_as(&fixture.daemon, &child, &agent_path(target), method, params);
            let text = format!("Agent 'child' is not authorized to call {method} on '{target}'");
            assert_eq!(response["error"], permission_denied(&text));
        }
        let response = call_as(&fixture.daemon, &child, "/", "destroy_agent", json!({ "agent_id": target }));
        assert_eq!(
            response["error"],
            permission_denied(&format!("Agent 'child' is not authorized to destroy '{target}'"))
        );
        assert_eq!(fixture.context(target)["message_count"], 0);
    }
    for (method, params) in agent_calls() {
        let response = call_as(&fixture.daemon, &child, "/", method, params);
        let text = format!("Agent 'child' is not authorized to call {method} on 'main'");
        assert_eq!(response["error"], permission_denied(&text));
    }
    let response = call_as(&fixture.daemon, &child, "/", "shutdown_server", json!({}));
    assert_eq!(
        response["error"],
        permission_denied("Agent 'child' is not authorized to call shutdown_server")
    );
    assert_eq!(agent_ids(&fixture.daemon), ["lead", "child", "sister", "stranger"]);
    assert_eq!(fixture.model.requests().len(), 0);
}

#[test]
fn disabled_tool_denies_its_method_on_the_subtree() {
    let Family { fixture, lead, .. } = family();
    fixture.set_permissions("lead", json!({ "disable_tools": ["agent_send", "agent_status"] }));
    for (method, tool) in [
        ("send", "agent_send"),
        ("steer", "agent_send"),
        ("get_context", "agent_status"),
        ("get_agent", "agent_status"),
    ] {
        let params = if tool == "agent_send" { json!({ "content": "hi" }) } else { json!({}) };
        let response = call_as(&fixture.daemon, &lead, &agent_path("child"), method, params);
        assert_eq!(
            response["error"],
            permission_denied(&format!(
                "Tool '{tool}' is disabled by permission policy; remove it from disable_tools of the agent or its preset"
            ))
        );
    }
    result_as(&fixture.daemon, &lead, &agent_path("lead"), "get_context", json!({}));
    result_as(&fixture.daemon, &lead, &agent_path("child"), "cancel", json!({ "request_id": "r" }));
}

#[test]
fn list_agents_shows_the_agent_and_its_descendants() {
    let Family { fixture, lead, child } = family();
    let names = |token: &str| -> (Vec<Value>, Value) {
        let list = result_as(&fixture.daemon, token, "/", "list_agents", json!({}));
        let names =
            list["agents"].as_array().unwrap().iter().map(|agent| agent["agent_id"].clone()).collect();
        (names, list["total"].clone())
    };
    assert_eq!(names(&lead), (vec![json!("lead"), json!("child"), json!("sister")], json!(3)));
    assert_eq!(names(&child), (vec![json!("child")], json!(1)));
    let page = result_as(&fixture.daemon, &lead, "/rpc", "list_agents", json!({ "offset": 1, "limit": 1 }));
    assert_eq!((&page["agents"][0]["agent_id"], &page["total"]), (&json!("child"), &json!(3)));
}

#[test]
fn token_is_invalid_after_destroy_even_if_the_id_is_reused() {
    let Family { fixture, lead, child } = family();
    result_as(&fixture.daemon, &lead, "/", "destroy_agent", json!({ "agent_id": "child" }));
    let assert_invalid = || {
        for path in ["/", "/agent/child", "/agent/lead", "/agent/missing"] {
            let response = post_as(&fixture.daemon, &child, &[], path, "get_context", json!({}));
            let error = json!({ "code": -32600, "message": "Invalid API key" });
            assert_eq!((response.status, &response.json()["error"]), (403, &error), "{path}");
        }
    };
    assert_invalid();
    let fresh = fixture.create_with(json!({ "agent_id": "child", "parent_agent_id": "lead" }));
    assert_invalid();
    assert_ne!(fresh, child);
    result_as(&fixture.daemon, &fresh, &agent_path("child"), "get_context", json!({}));
}

#[test]
fn unknown_token_is_rejected_before_any_other_check() {
    let Family { fixture, child, .. } = family();
    let (head, last) = child.split_at(child.len() - 1);
    let nearly = format!("{head}{}", if last == "A" { "B" } else { "A" });
    let upper = child.replacen("nxc_", "NXC_", 1);
    for wrong in ["nxc_", "nxc_x", head, &nearly, &format!("{child}x"), &upper, "nxc_../../etc"] {
        for path in ["/", "/agent/child", "/agent/missing", "/no/such/path"] {
            let response = post_as(&fixture.daemon, wrong, &[], path, "list_agents", json!({}));
            assert_eq!(response.status, 403, "{wrong} at {path}: {}", response.text());
            assert_eq!(response.json()["error"]["message"], "Invalid API key");
        }
    }
}

#[test]
fn agent_header_must_match_the_capability_token() {
    let Family { fixture, lead, child } = family();
    let call_with_header = |token: &str, name: &str| {
        post_as(
            &fixture.daemon,
            token,
            &[("X-Nexus-Agent", name)],
            &agent_path("child"),
            "get_context",
            json!({}),
        )
        .json()
    };
    assert_eq!(call_with_header(&child, "child")["result"]["message_count"], 0);
    let mismatch = permission_denied("X-Nexus-Agent does not match the agent of the capability token");
    for (token, name) in
        [(&child, "lead"), (&lead, "child"), (&child, "missing"), (&child, ""), (&child, "Child")]
    {
        assert_eq!(call_with_header(token, name)["error"], mismatch, "{name}");
    }
}

#[test]
fn token_restricts_the_caller_even_without_auth() {
    let model = testkit::ScriptedModel::start();
    let daemon = daemon_builder(&model).arg("--no-auth").start();
    let Family { fixture, lead, child } = family_on(Fixture { daemon, model });
    let response = call_as(&fixture.daemon, &child, &agent_path("lead"), "get_context", json!({}));
    assert_eq!(
        response["error"],
        permission_denied("Agent 'child' is not authorized to call get_context on 'lead'")
    );
    let response = call_as(&fixture.daemon, &lead, "/", "shutdown_server", json!({}));
    assert_eq!(
        response["error"],
        permission_denied("Agent 'lead' is not authorized to call shutdown_server")
    );
    assert_eq!(result_as(&fixture.daemon, &child, "/", "list_agents", json!({}))["total"], 1);
    let wrong = post_as(&fixture.daemon, "nxc_wrong", &[], "/", "list_agents", json!({}));
    assert_eq!(wrong.status, 403, "a wrong token is rejected, not ignored");
    assert_eq!(
        fixture.daemon.call_result("/", "list_agents", json!({}))["total"],
        4,
        "without a token every caller is admin"
    );
}

#[test]
fn token_appears_only_in_the_create_response() {
    let Family { fixture, lead, child } = family();
    let seen = [
        fixture.daemon.call_result("/", "list_agents", json!({})),
        fixture.agent("child"),
        fixture.permissions("child"),
        fixture.daemon.call_result(&agent_path("lead"), "list_children", json!({})),
        fixture.daemon.call_result(&agent_path("child"), "get_messages", json!({})),
        result_as(&fixture.daemon, &child, &agent_path("child"), "get_agent", json!({})),
        json!(fixture.send_text("lead", "!tool agent_list {}")),
        json!(fixture.send_text("lead", r#"!tool agent_create {"agent_id":"made"}"#)),
    ];
    for response in seen {
        let text = response.to_string();
        assert!(!text.contains("nxc_") && !text.contains(&lead) && !text.contains(&child), "{text}");
    }
}
