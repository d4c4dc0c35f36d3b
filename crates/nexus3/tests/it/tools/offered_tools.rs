//! A model request offers the tools that the agent may call, under names that model APIs accept.

use serde_json::{Value, json};

use crate::support::{COMMAND_TOOLS, Fixture, HOST_TOOLS, offered_tools_except};

const WRITE_TOOLS: [&str; 8] =
    ["fs.edit", "fs.write_file", "fs.append_file", "fs.patch", "fs.mkdir", "fs.move", "fs.copy", "fs.delete"];
const VALUE_WRITE_TOOLS: [&str; 2] = ["memory.store", "memory.delete"];
const AGENT_TOOLS: [&str; 5] =
    ["agent_create", "agent_status", "agent_cancel", "agent_destroy", "agent_list"];

/// Sends a message and returns the tools of the model request.
fn offered_tools(fixture: &Fixture, agent: &str) -> Vec<Value> {
    fixture.send(agent, "hi");
    let last = fixture.model.requests().pop().unwrap();
    last.body["tools"].as_array().cloned().unwrap_or_default()
}

fn names(fixture: &Fixture, agent: &str) -> Vec<String> {
    let name = |tool: &Value| tool["function"]["name"].as_str().unwrap().to_owned();
    offered_tools(fixture, agent).iter().map(name).collect()
}

/// The names that models see of the tools that are offered by default, except these.
fn model_names_except(excluded: &[&str]) -> Vec<String> {
    offered_tools_except(excluded).iter().map(|spec| spec.model_name.to_string()).collect()
}

#[test]
fn each_preset_offers_the_tools_it_allows() {
    let fixture = Fixture::start();
    for (preset, denied) in [
        (
            "worker",
            [
                &WRITE_TOOLS[..],
                &VALUE_WRITE_TOOLS,
                &AGENT_TOOLS,
                &COMMAND_TOOLS,
                &HOST_TOOLS,
                &["agent_send"],
            ]
            .concat(),
        ),
        ("sandboxed", [&WRITE_TOOLS[..], &AGENT_TOOLS, &COMMAND_TOOLS, &HOST_TOOLS].concat()),
        ("trusted", Vec::new()),
    ] {
        fixture.create_with(json!({ "agent_id": preset, "preset": preset }));
        assert_eq!(names(&fixture, preset), model_names_except(&denied), "{preset}");
    }
    let tools = ["*", "approvals_list", "approvals_answer"];
    fixture.create_with(json!({ "agent_id": "judge", "preset": "trusted", "tools": tools }));
    let expected = [model_names_except(&[]), tools[1..].iter().map(ToString::to_string).collect()].concat();
    assert_eq!(names(&fixture, "judge"), expected, "tools that have to be named");
    fixture.create_with(json!({ "agent_id": "writer", "allowed_write_paths": ["out"] }));
    let offered = names(&fixture, "writer");
    for tool in WRITE_TOOLS.map(|name| name.replace('.', "_")) {
        assert!(offered.contains(&tool), "an agent that may write is offered the tools for it: {offered:?}");
    }
    fixture.create_with(json!({ "agent_id": "reader", "allowed_hosts": ["docs.rs"] }));
    let offered = names(&fixture, "reader");
    assert!(offered.contains(&"http_request".to_owned()) && offered.contains(&"web_fetch".to_owned()));
}

#[test]
fn small_calculations_are_offered_only_when_named() {
    let fixture =
        Fixture::with_config("[presets.own]\nextends = \"worker\"\ntools = [\"echo\", \"json_query\"]\n");
    let hidden: Vec<_> =
        tools::builtin_specs().into_iter().filter(|spec| !spec.is_offered_by_default).collect();
    let hidden: Vec<&str> = hidden.iter().map(|spec| &*spec.name).collect();
    let calculations = [
        "echo",
        "get_time",
        "base64.encode",
        "base64.decode",
        "json.parse",
        "json.query",
        "uuid.generate",
        "hash.sha256",
        "regex.match",
        "regex.replace",
    ];
    assert_eq!(hidden, calculations);
    fixture.create("plain");
    assert!(!names(&fixture, "plain").contains(&"echo".to_owned()));
    assert_eq!(fixture.send_text("plain", r#"!tool echo {"text":"hi"}"#), "tool said: hi", "it is permitted");
    fixture.create_with(json!({ "agent_id": "own", "preset": "own" }));
    assert_eq!(names(&fixture, "own"), ["echo", "json_query"]);
    fixture.create_with(json!({ "agent_id": "listed", "tools": ["get_time", "read_file"] }));
    assert_eq!(names(&fixture, "listed"), ["get_time", "fs_read_file"]);
    let text = fixture.send_text("listed", r#"!tool echo {"text":"hi"}"#);
    let denied = "Tool 'echo' is disabled by permission policy; add it to tools of the agent or its preset";
    assert_eq!(text, format!("tool said: Permission denied: {denied}"));
}

#[test]
fn tool_can_be_disabled_by_each_of_its_spellings() {
    let fixture = Fixture::start();
    for (index, spelling) in ["fs.read_file", "fs_read_file", "read_file"].into_iter().enumerate() {
        let name = format!("a{index}");
        fixture.create_with(
            json!({ "agent_id": name, "preset": "trusted", "disable_tools": [spelling, "echo"] }),
        );
        assert_eq!(names(&fixture, &name), model_names_except(&["fs.read_file"]), "{spelling}");
        let text = fixture.send_text(&name, "!tool read_file {\"path\":\"/etc/hostname\"}");
        assert_eq!(
            text,
            "tool said: Permission denied: Tool 'fs.read_file' is disabled by permission policy; remove it from disable_tools of the agent or its preset"
        );
    }
}

#[test]
fn tools_can_be_disabled_by_their_original_names() {
    let fixture = Fixture::start();
    let disabled = ["nexus_send", "nexus_create", "nexus_status", "nexus_cancel", "nexus_destroy"];
    fixture.create_with(json!({ "agent_id": "lead", "preset": "trusted", "disable_tools": disabled }));
    let offered = names(&fixture, "lead");
    let agents: Vec<_> = offered.iter().filter(|name| name.starts_with("agent_")).collect();
    assert_eq!(agents, ["agent_list"]);
}

#[test]
fn tool_schema_forbids_additional_properties() {
    let fixture = Fixture::start();
    let every: Vec<_> = tools::builtin_specs().iter().map(|spec| spec.name.to_string()).collect();
    fixture.create_with(
        json!({ "agent_id": "worker", "preset": "trusted", "tools": every, "allowed_hosts": ["*"] }),
    );
    let tools = offered_tools(&fixture, "worker");
    assert_eq!(tools.len(), every.len());
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
fn tool_schemas_count_as_tokens() {
    let fixture = Fixture::start();
    for preset in ["worker", "trusted"] {
        fixture.create_with(json!({ "agent_id": preset, "preset": preset }));
    }
    let tokens =
        |agent: &str| fixture.daemon.call_result(&format!("/agent/{agent}"), "get_tokens", json!({}));
    let count = |tokens: &Value| tokens["tools"].as_u64().unwrap();
    let (worker, trusted) = (tokens("worker"), tokens("trusted"));
    assert!(count(&worker) > 0 && count(&trusted) > count(&worker), "{worker} {trusted}");
    let every = json!({ "disable_tools": fixture.agent("worker")["tools"] });
    fixture.set_permissions("worker", every);
    assert_eq!(count(&tokens("worker")), 0);
    assert_eq!(names(&fixture, "worker"), [""; 0], "without tools there is no tool list");
}
