//! Export and import of documents: narrowed permissions, skipped parts, and rejected documents.

use agent::outside::Timestamp;
use agent::permission::{FilePath, Narrowing, Resource};
use agent::{Ending, Role};
use nexus3_protocol::methods::{BudgetParams, MayGrantParams, OnRestart, SnapshotMessage};
use serde_json::json;

use super::*;

fn presets() -> Presets {
    let mut presets = Presets::builtin(&[]);
    presets.add("reviewer", "trusted", Narrowing::default()).unwrap();
    presets.add("wild", "yolo", Narrowing::default()).unwrap();
    presets
}

fn parse_import(params: ImportAgentParams) -> Result<ParsedSnapshot, String> {
    let context =
        ImportContext { zone: &TimeZone::UTC, presets: &presets(), knows_model: &|name| name == "echo/one" };
    context.parse(params).map_err(|fault| fault.public.into_owned())
}

fn parse_document(change: impl FnOnce(&mut SnapshotDocument)) -> Result<ParsedSnapshot, String> {
    let mut document = minimal_document();
    change(&mut document);
    parse_import(ImportAgentParams { snapshot: document, agent_id: None })
}

fn minimal_document() -> SnapshotDocument {
    serde_json::from_value(json!({
        "agent_id": "a", "created_at": "2024-01-15T10:30:00.000042", "modified_at": "2024-01-16T10:30:00",
        "messages": [], "system_prompt": "Be brief.", "working_directory": "/srv", "permission_level": "sandboxed",
    }))
    .unwrap()
}

fn messages(value: Value) -> Vec<SnapshotMessage> {
    serde_json::from_value(value).unwrap()
}

#[test]
fn minimal_document_becomes_a_sandboxed_agent() {
    let ParsedSnapshot { import, notes } = parse_document(|_| {}).unwrap();
    assert_eq!(notes, Vec::<String>::new());
    assert_eq!(import.spec.name, NameSpec::Given(AgentId::parse("a").unwrap()));
    assert_eq!(import.spec.system_prompt.as_deref(), Some("Be brief."));
    assert_eq!(import.spec.cwd.as_deref(), Some("/srv"));
    assert_eq!((&import.spec.model, &import.spec.parent, import.spec.on_restart), (&None, &None, None));
    assert_eq!(import.spec.level_max, Some(Level::Trusted));
    let permissions = PermissionSpec { preset: Some("sandboxed".to_owned()), ..PermissionSpec::default() };
    assert_eq!(import.spec.permissions, permissions);
    assert_eq!(import.created_at, Some(Timestamp(1_705_314_600_000_042)));
    assert_eq!(import.origin, "session 'a' of 2024-01-16T10:30:00");
}

#[test]
fn agent_id_parameter_overrides_the_documents_id() {
    let document = SnapshotDocument { agent_id: "no name".to_owned(), ..minimal_document() };
    let params = ImportAgentParams { snapshot: document.clone(), agent_id: Some("b".to_owned()) };
    assert_eq!(parse_import(params).unwrap().import.spec.name, NameSpec::Given(AgentId::parse("b").unwrap()));
    let fault = parse_import(ImportAgentParams { snapshot: document, agent_id: None }).unwrap_err();
    assert!(fault.starts_with("session.agent_id invalid: Invalid agent ID"), "{fault}");
    let params = ImportAgentParams { snapshot: minimal_document(), agent_id: Some("..".to_owned()) };
    assert!(parse_import(params).unwrap_err().starts_with("agent_id invalid: "));
}

#[test]
fn import_never_widens_the_preset() {
    // The document's level and preset, and the resulting preset.
    for (level, requested, expected) in [
        ("sandboxed", None, "sandboxed"),
        ("SANDBOXED", None, "sandboxed"),
        ("trusted", None, "trusted"),
        ("yolo", None, "trusted"),
        ("yolo", Some("yolo"), "trusted"),
        ("YOLO", Some("YOLO"), "trusted"),
        ("trusted", Some("yolo"), "trusted"),
        ("sandboxed", Some("yolo"), "sandboxed"),
        ("trusted", Some("trusted"), "trusted"),
        ("sandboxed", Some("trusted"), "sandboxed"),
        ("trusted", Some("sandboxed"), "sandboxed"),
        ("trusted", Some("worker"), "worker"),
        ("sandboxed", Some("worker"), "worker"),
        ("trusted", Some("reviewer"), "reviewer"),
        ("sandboxed", Some("reviewer"), "sandboxed"),
        ("yolo", Some("wild"), "sandboxed"),
        ("trusted", Some("unknown"), "sandboxed"),
        ("yolo", Some(""), "sandboxed"),
    ] {
        let parsed = parse_document(|document| {
            document.permission_level = level.to_owned();
            document.permission_preset = requested.map(str::to_owned);
        })
        .unwrap();
        let case = format!("{level} {requested:?}");
        assert_eq!(parsed.import.spec.permissions.preset.as_deref(), Some(expected), "{case}");
        let preset = requested.map_or_else(|| level.to_ascii_lowercase(), str::to_ascii_lowercase);
        let note =
            format!("preset '{preset}' was replaced by '{expected}': an import never widens permissions");
        let notes = if preset == expected { Vec::new() } else { vec![note] };
        assert_eq!(parsed.notes, notes, "{case}");
    }
}

#[test]
fn extras_are_dropped_with_a_replaced_preset() {
    let extras = SnapshotExtras {
        tools: Some(vec!["echo".to_owned()]),
        allowed_write_paths: Some(vec!["/srv/out".to_owned()]),
        allowed_commands: Some(vec!["cargo".to_owned()]),
        allowed_hosts: Some(vec!["docs.rs".to_owned()]),
        denied_hosts: Some(vec!["x.org".to_owned()]),
        may_create: Some(vec!["worker".to_owned()]),
        may_grant: Some(MayGrantParams { preset: Some("worker".to_owned()), ..MayGrantParams::default() }),
        ask: Some(vec!["fs.edit".to_owned()]),
        deny: Some(vec!["run:rm".to_owned()]),
        budget: Some(BudgetParams { turns: Some(3), ..BudgetParams::default() }),
        on_restart: Some(OnRestart::Mark),
        origin: Some("fork of b at 2".to_owned()),
    };
    let with_level = |level: &str, preset: &str| {
        parse_document(|document| {
            document.permission_level = level.to_owned();
            document.permission_preset = Some(preset.to_owned());
            document.disabled_tools = vec!["write_file".to_owned()];
            document.extras = Some(extras.clone());
        })
        .unwrap()
        .import
        .spec
    };
    let same = with_level("trusted", "trusted");
    assert_eq!(same.permissions.write_paths.as_deref(), Some(["/srv/out".to_owned()].as_slice()));
    assert_eq!(same.permissions.may_create.as_deref(), Some(["worker".to_owned()].as_slice()));
    assert_eq!(same.permissions.may_grant.and_then(|grant| grant.preset).as_deref(), Some("worker"));
    let (echo, cargo) = (Some(vec!["echo".to_owned()]), Some(vec!["cargo".to_owned()]));
    assert_eq!(same.permissions.hosts.as_deref(), Some(["docs.rs".to_owned()].as_slice()));
    assert_eq!((same.permissions.tools, same.permissions.commands), (echo.clone(), cargo.clone()));
    assert_eq!(same.on_restart, Some(agent::journal::RestartPolicy::Mark));
    let unrestricted = with_level("yolo", "yolo").permissions;
    assert_eq!((unrestricted.preset.as_deref(), unrestricted.commands), (Some("trusted"), cargo));
    let narrowed = with_level("sandboxed", "trusted").permissions;
    assert_eq!(narrowed.preset.as_deref(), Some("sandboxed"));
    assert_eq!((narrowed.write_paths, narrowed.may_create, narrowed.may_grant), (None, None, None));
    assert_eq!((narrowed.tools, narrowed.commands), (echo, None));
    assert_eq!(narrowed.disable_tools, ["write_file"], "restrictions remain");
    assert_eq!((narrowed.hosts, narrowed.denied_hosts), (None, vec!["x.org".to_owned()]));
    assert_eq!(narrowed.budget.limit(Resource::Turns), Some(3), "limits remain");
}

#[test]
fn skipped_parts_are_reported_in_notes() {
    let parsed = parse_document(|document| {
        document.model_alias = Some("haiku".to_owned());
        document.session_allowances = json!({ "exec": true }).as_object().unwrap().clone();
        document.clipboard_agent_entries = vec![json!({})];
        document.messages = messages(json!([
            { "role": "system", "content": "You are…" },
            { "role": "user", "content": "hi" },
            { "role": "assistant", "content": "" },
            { "role": "assistant", "content": "", "tool_calls": [{ "id": "c1", "name": "x" }] },
        ]));
    })
    .unwrap();
    assert_eq!(
        parsed.notes,
        [
            "1 system messages were skipped: system_prompt is used instead",
            "1 empty assistant messages were skipped",
            "1 tool calls had no result: added with an unknown outcome",
            "unknown model 'haiku': the agent uses the daemon's default model",
            "session_allowances were not imported",
            "clipboard entries were not imported",
        ]
    );
    assert_eq!(parsed.import.spec.model, None);
    let known = parse_document(|document| document.model_alias = Some("echo/one".to_owned())).unwrap();
    assert_eq!((known.import.spec.model.as_deref(), known.notes.len()), (Some("echo/one"), 0));
}

#[test]
fn every_tool_call_is_followed_by_its_result() {
    let parsed = parse_document(|document| {
        document.messages = messages(json!([
            { "role": "user", "content": "go", "meta": { "source": "repl", "source_agent_id": 7 } },
            { "role": "assistant", "content": "on it", "tool_calls": [
                { "id": "c1", "name": "read_file", "arguments": { "path": "x" } },
                { "id": "c2", "type": "function", "function": { "name": "read_file", "arguments": "{\"path\": \"y\"}" } },
                { "id": "c3", "name": "read_file", "arguments": "not json" },
            ] },
            { "role": "tool", "content": "second", "tool_call_id": "c2", "meta": { "failed": true } },
            { "role": "tool", "content": "first", "tool_call_id": "c1" },
            { "role": "user", "content": "and?" },
            { "role": "assistant", "content": "half", "meta": { "cancelled": true } },
        ]));
    })
    .unwrap();
    let history = parsed.import.messages;
    let roles: Vec<_> = history.iter().map(|message| message.role).collect();
    use Role::{Assistant, Tool, User};
    assert_eq!(roles, [User, Assistant, Tool, Tool, Tool, User, Assistant]);
    let calls: Vec<_> = history[1].tool_calls.iter().map(|call| call.arguments.as_str()).collect();
    assert_eq!(calls, [r#"{"path":"x"}"#, r#"{"path": "y"}"#, "not json"]);
    assert_eq!(history[0].source.kind.as_deref(), Some("repl"));
    assert_eq!((history[2].ending, history[3].ending), (Some(Ending::Failed), None));
    assert_eq!(history[4].tool_call_id.as_deref(), Some("c3"));
    assert_eq!(history[4].ending, Some(Ending::Interrupted));
    assert!(history[4].text.starts_with("Outcome unknown"));
    assert_eq!(history[6].ending, Some(Ending::Cancelled));
}

#[test]
fn invalid_document_is_rejected_with_the_field_path() {
    let fault_of = |value: Value| parse_document(|document| document.messages = messages(value)).unwrap_err();
    let call = json!({ "role": "assistant", "content": "", "tool_calls": [{ "id": "c1", "name": "x" }] });
    let result = json!({ "role": "tool", "content": "", "tool_call_id": "c1" });
    for (value, text) in [
        (
            json!([{ "role": "bot", "content": "" }]),
            "session.messages[0].role must be one of user, assistant, tool, system, got: 'bot'",
        ),
        (
            json!([call, { "role": "tool", "content": "" }]),
            "session.messages[1].tool_call_id is missing: name the tool call",
        ),
        (json!([result]), "session.messages[0].tool_call_id matches no open call: 'c1'"),
        (json!([call, result, result]), "session.messages[2].tool_call_id matches no open call: 'c1'"),
        (
            json!([call, { "role": "user", "content": "" }, result]),
            "session.messages[2].tool_call_id matches no open call: 'c1'",
        ),
        (
            json!([{ "role": "assistant", "content": "", "tool_calls": [{ "id": "c", "name": "x" }, { "id": "c", "name": "y" }] }]),
            "session.messages[0].tool_calls[1].id is a duplicate: 'c'",
        ),
        (
            json!([{ "role": "user", "content": "", "tool_calls": [{ "id": "c", "name": "x" }] }]),
            "session.messages[0].tool_calls are only allowed in assistant messages",
        ),
        (
            json!([{ "role": "user", "content": "", "tool_call_id": "c" }]),
            "session.messages[0].tool_call_id is only allowed in tool messages",
        ),
        (
            json!([{ "role": "user", "content": "", "meta": { "source": 5 } }]),
            "session.messages[0].meta.source must be string",
        ),
        (
            json!([{ "role": "user", "content": "", "meta": { "source_agent_id": [] } }]),
            "session.messages[0].meta.source_agent_id must be string or integer",
        ),
        (
            json!([{ "role": "assistant", "content": "", "meta": { "failed": "yes" } }]),
            "session.messages[0].meta.failed must be boolean",
        ),
    ] {
        assert_eq!(fault_of(value), text);
    }
    for (change, text) in [
        (
            (|document| document.schema_version = 2) as fn(&mut SnapshotDocument),
            "session.schema_version must be 1, got: 2",
        ),
        (
            |document| document.permission_level = "root".into(),
            "session.permission_level must be one of yolo, trusted, sandboxed, got: 'root'",
        ),
        (
            |document| document.created_at = "soon".into(),
            "session.created_at must be a time such as 2026-01-31T09:00:00, got: 'soon'",
        ),
        (
            |document| document.modified_at = String::new(),
            "session.modified_at must be a time such as 2026-01-31T09:00:00, got: ''",
        ),
    ] {
        assert_eq!(parse_document(change).unwrap_err(), text);
    }
    let fault =
        parse_document(|document| document.disabled_tools = vec!["a".into(), "a b".into()]).unwrap_err();
    assert!(fault.starts_with("session.disabled_tools[1] must be a tool's name"), "{fault}");
}

#[test]
fn arguments_are_exported_as_object_or_as_text() {
    let arguments = |text: &str| {
        let call = agent::ToolCall { id: "c".into(), name: "x".into(), arguments: text.into() };
        history::encode_message(&Message::assistant("", vec![call])).tool_calls.remove(0).arguments
    };
    assert_eq!(arguments(r#"{"a": [1, 2]}"#), json!({ "a": [1, 2] }));
    let deep = format!("{}{}", r#"{"a":"#.repeat(40), format_args!("1{}", "}".repeat(40)));
    for text in ["", "[1]", "{\"a\":", "nonsense", deep.as_str()] {
        assert_eq!(arguments(text), json!(text));
    }
}

#[test]
fn write_paths_are_exported_unchanged() {
    let request = agent::journal::StoredGrantRequest {
        write_paths: Some(vec![FilePath::resolve("/srv/out", &FilePath::root()).unwrap()]),
        ..Default::default()
    };
    assert_eq!(write_paths(&request), Some(vec!["/srv/out".to_owned()]));
}
