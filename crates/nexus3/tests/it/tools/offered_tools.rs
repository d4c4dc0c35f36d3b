//! The tools that a model is shown are those its agent may call, in the names that models allow.

use serde_json::{Value, json};

use crate::support::Fixture;

const PURE: [&str; 10] = [
    "echo",
    "get_time",
    "base64_encode",
    "base64_decode",
    "json_parse",
    "json_query",
    "uuid_generate",
    "hash_sha256",
    "regex_match",
    "regex_replace",
];
const AGENTS: [&str; 6] =
    ["agent_create", "agent_send", "agent_status", "agent_cancel", "agent_destroy", "agent_list"];

/// The tools in the question that a message brings about.
fn offered_tools(stage: &Fixture, agent: &str) -> Vec<Value> {
    stage.send(agent, "hi");
    let last = stage.model.requests().pop().unwrap();
    last.body["tools"].as_array().cloned().unwrap_or_default()
}

fn names(stage: &Fixture, agent: &str) -> Vec<String> {
    let name = |tool: &Value| tool["function"]["name"].as_str().unwrap().to_owned();
    offered_tools(stage, agent).iter().map(name).collect()
}

#[test]
fn each_preset_shows_what_it_allows() {
    let stage = Fixture::start();
    for (preset, more) in [
        ("worker", vec!["fs_read_file", "result_read"]),
        ("sandboxed", vec!["fs_read_file", "result_read", "agent_send"]),
        (
            "trusted",
            [&["fs_read_file", "fs_write_file", "fs_append_file", "result_read"][..], &AGENTS].concat(),
        ),
    ] {
        stage.create_with(json!({ "agent_id": preset, "preset": preset }));
        assert_eq!(names(&stage, preset), [&PURE[..], &more].concat(), "{preset}");
    }
    stage.create_with(json!({ "agent_id": "writer", "allowed_write_paths": ["out"] }));
    let shown = names(&stage, "writer");
    for tool in ["fs_write_file", "fs_append_file"] {
        assert!(shown.contains(&tool.to_owned()), "who may write is shown how: {shown:?}");
    }
}

#[test]
fn a_disabled_tool_is_absent_in_each_of_its_spellings() {
    let stage = Fixture::start();
    for (place, spelling) in ["fs.read_file", "fs_read_file", "read_file"].into_iter().enumerate() {
        let name = format!("a{place}");
        stage.create_with(
            json!({ "agent_id": name, "preset": "trusted", "disable_tools": [spelling, "echo"] }),
        );
        let shown = names(&stage, &name);
        assert!(!shown.iter().any(|tool| tool == "fs_read_file" || tool == "echo"), "{spelling}: {shown:?}");
        assert_eq!(shown.len(), 18);
        let said = stage.send_text(&name, "!tool read_file {\"path\":\"/etc/hostname\"}");
        assert_eq!(
            said,
            "tool said: Permission denied: Tool 'fs.read_file' is disabled by permission policy"
        );
    }
}

#[test]
fn the_originals_names_of_tools_can_be_disabled_too() {
    let stage = Fixture::start();
    let disabled = ["nexus_send", "nexus_create", "nexus_status", "nexus_cancel", "nexus_destroy"];
    stage.create_with(json!({ "agent_id": "lead", "preset": "trusted", "disable_tools": disabled }));
    let shown = names(&stage, "lead");
    let agents: Vec<_> = shown.iter().filter(|name| name.starts_with("agent_")).collect();
    assert_eq!(agents, ["agent_list"]);
}

#[test]
fn a_tool_is_described_by_a_closed_schema() {
    let stage = Fixture::start();
    stage.create_with(json!({ "agent_id": "worker", "preset": "trusted" }));
    let tools = offered_tools(&stage, "worker");
    for tool in &tools {
        assert_eq!(tool["type"], "function");
        let function = &tool["function"];
        assert!(function["description"].as_str().is_some_and(|text| text.ends_with('.')), "{tool}");
        let schema = &function["parameters"];
        assert_eq!(
            (&schema["type"], &schema["additionalProperties"]),
            (&json!("object"), &json!(false)),
            "{tool}"
        );
        assert!(schema["properties"].is_object(), "{tool}");
    }
    let echo = json!({
        "type": "object",
        "properties": { "text": { "description": "The text to return.", "type": "string" } },
        "required": ["text"],
        "additionalProperties": false,
    });
    assert_eq!(tools[0]["function"]["parameters"], echo);
}

#[test]
fn tools_are_counted_among_the_tokens() {
    let stage = Fixture::start();
    for preset in ["worker", "trusted"] {
        stage.create_with(json!({ "agent_id": preset, "preset": preset }));
    }
    let tokens = |agent: &str| stage.daemon.call_result(&format!("/agent/{agent}"), "get_tokens", json!({}));
    let count = |tokens: &Value| tokens["tools"].as_u64().unwrap();
    let (worker, trusted) = (tokens("worker"), tokens("trusted"));
    assert!(count(&worker) > 0 && count(&trusted) > count(&worker), "{worker} {trusted}");
    let every = json!({ "disable_tools": stage.agent("worker")["tools"] });
    stage.set_permissions("worker", every);
    assert_eq!(count(&tokens("worker")), 0);
    assert_eq!(names(&stage, "worker"), [""; 0], "no tools, no list");
}
