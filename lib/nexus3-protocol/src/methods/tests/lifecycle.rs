//! Lifecycle methods: their JSON, the session document in both formats, and error texts for an invalid one.

use serde_json::{Map, Value, json};

use super::shapes::{check_parses, check_round_trip};
use super::*;
use crate::json::from_json;

fn text(text: &str) -> String {
    text.to_owned()
}

#[test]
fn list_sessions_returns_a_page_of_ten_members_each() {
    check_round_trip(ListSessionsParams::default(), "{}");
    let page = ListSessionsParams { offset: Some(PageOffset(3)), limit: Some(PageSize(2)) };
    check_round_trip(page, r#"{"offset":3,"limit":2}"#);
    let session = SessionSummary {
        agent_id: text("a"),
        state: text("asleep"),
        created_at: text("2026-01-02T03:04:05.000006"),
        modified_at: text("2026-01-02T03:04:06.000000"),
        message_count: 2,
        parent_agent_id: None,
        model: Some(text("m")),
        preset: text("worker"),
        on_restart: OnRestart::Resume,
        origin: None,
    };
    check_round_trip(
        ListSessionsOutput { sessions: vec![session], total: 7, damaged: Vec::new() },
        concat!(
            r#"{"sessions":[{"agent_id":"a","state":"asleep","created_at":"2026-01-02T03:04:05.000006","#,
            r#""modified_at":"2026-01-02T03:04:06.000000","message_count":2,"parent_agent_id":null,"model":"m","#,
            r#""preset":"worker","on_restart":"resume","origin":null}],"total":7}"#,
        ),
    );
}

#[test]
fn fork_rollback_undo_and_rename_have_their_exact_json() {
    let fork = ForkAgentParams { agent_id: text("a"), new_agent_id: None, messages: None };
    check_round_trip(fork.clone(), r#"{"agent_id":"a"}"#);
    check_round_trip(
        ForkAgentParams { new_agent_id: Some(text("b")), messages: Some(0), ..fork },
        r#"{"agent_id":"a","new_agent_id":"b","messages":0}"#,
    );
    let forked = ForkAgentOutput {
        agent_id: text("b"),
        url: text("/agent/b"),
        token: text("nxc_x"),
        message_count: 4,
    };
    check_round_trip(forked, r#"{"agent_id":"b","url":"/agent/b","token":"nxc_x","message_count":4}"#);
    check_round_trip(
        RollbackAgentParams { agent_id: text("a"), messages: 2 },
        r#"{"agent_id":"a","messages":2}"#,
    );
    check_round_trip(
        RollbackAgentOutput { agent_id: text("a"), message_count: 2, removed: 3 },
        r#"{"agent_id":"a","message_count":2,"removed":3}"#,
    );
    let undo = UndoTurnParams { agent_id: text("a"), turn: None };
    check_round_trip(undo.clone(), r#"{"agent_id":"a"}"#);
    check_round_trip(UndoTurnParams { turn: Some(7), ..undo }, r#"{"agent_id":"a","turn":7}"#);
    check_round_trip(
        UndoTurnOutput { agent_id: text("a"), turn: 7, restored: vec![text("/srv/a.txt")] },
        r#"{"agent_id":"a","turn":7,"restored":["/srv/a.txt"]}"#,
    );
    check_round_trip(
        RenameAgentParams { agent_id: text("a"), new_agent_id: text("b") },
        r#"{"agent_id":"a","new_agent_id":"b"}"#,
    );
    check_round_trip(
        RenameAgentOutput { agent_id: text("b"), url: text("/agent/b") },
        r#"{"agent_id":"b","url":"/agent/b"}"#,
    );
}

#[test]
fn import_omits_empty_notes() {
    let output = ImportAgentOutput {
        agent_id: text("b"),
        url: text("/agent/b"),
        token: text("nxc_x"),
        message_count: 4,
        notes: Vec::new(),
    };
    check_round_trip(
        output.clone(),
        r#"{"agent_id":"b","url":"/agent/b","token":"nxc_x","message_count":4}"#,
    );
    check_round_trip(
        ImportAgentOutput { notes: vec![text("less")], ..output },
        r#"{"agent_id":"b","url":"/agent/b","token":"nxc_x","message_count":4,"notes":["less"]}"#,
    );
}

fn call(arguments: Value) -> SnapshotToolCall {
    SnapshotToolCall { id: text("c1"), name: text("read_file"), arguments }
}

fn document() -> SnapshotDocument {
    let message = |role: &str, content: &str| SnapshotMessage {
        role: text(role),
        content: text(content),
        images: Vec::new(),
        tool_calls: Vec::new(),
        tool_call_id: None,
        meta: None,
    };
    let meta = Map::from_iter([("source".to_owned(), Value::from("rpc"))]);
    SnapshotDocument {
        schema_version: 1,
        agent_id: text("a"),
        created_at: text("2026-01-02T03:04:05.000006"),
        modified_at: text("2026-01-02T03:04:06.000000"),
        messages: vec![
            SnapshotMessage { meta: Some(meta), ..message("user", "hi") },
            SnapshotMessage { tool_calls: vec![call(json!({ "path": "x" }))], ..message("assistant", "") },
            SnapshotMessage { tool_call_id: Some(text("c1")), ..message("tool", "notes") },
        ],
        system_prompt: text("Be brief."),
        system_prompt_path: None,
        working_directory: text("/srv"),
        permission_level: text("sandboxed"),
        permission_preset: Some(text("worker")),
        disabled_tools: vec![text("write_file")],
        session_allowances: Map::new(),
        model_alias: None,
        clipboard_agent_entries: Vec::new(),
        token_usage: Map::from_iter([("requests".to_owned(), Value::from(1))]),
        provenance: text("user"),
        extras: None,
    }
}

#[test]
fn session_document_has_the_original_format() {
    let original = concat!(
        r#"{"schema_version":1,"agent_id":"a","created_at":"2026-01-02T03:04:05.000006","#,
        r#""modified_at":"2026-01-02T03:04:06.000000","messages":[{"role":"user","content":"hi","meta":{"source":"rpc"}},"#,
        r#"{"role":"assistant","content":"","tool_calls":[{"id":"c1","name":"read_file","arguments":{"path":"x"}}]},"#,
        r#"{"role":"tool","content":"notes","tool_call_id":"c1"}],"system_prompt":"Be brief.","#,
        r#""system_prompt_path":null,"working_directory":"/srv","permission_level":"sandboxed","#,
        r#""permission_preset":"worker","disabled_tools":["write_file"],"session_allowances":{},"model_alias":null,"#,
        r#""clipboard_agent_entries":[],"token_usage":{"requests":1},"provenance":"user"}"#,
    );
    check_round_trip(document(), original);
    check_round_trip(ExportAgentOutput { snapshot: document() }, &format!(r#"{{"session":{original}}}"#));
    check_round_trip(ExportAgentParams { agent_id: text("a") }, r#"{"agent_id":"a"}"#);
    check_round_trip(
        ImportAgentParams { snapshot: document(), agent_id: Some(text("b")) },
        &format!(r#"{{"session":{original},"agent_id":"b"}}"#),
    );
}

#[test]
fn additional_data_is_under_its_own_member() {
    let extras = SnapshotExtras {
        tools: Some(vec![text("echo")]),
        allowed_write_paths: Some(vec![text("/w")]),
        allowed_commands: Some(vec![text("cargo")]),
        allowed_hosts: Some(vec![text("docs.rs")]),
        denied_hosts: None,
        may_create: None,
        may_grant: Some(MayGrantParams::default()),
        ask: Some(vec![text("fs.delete")]),
        deny: None,
        budget: Some(BudgetParams { turns: Some(1), ..BudgetParams::default() }),
        on_restart: Some(OnRestart::Mark),
        origin: None,
    };
    check_round_trip(
        extras,
        concat!(
            r#"{"tools":["echo"],"allowed_write_paths":["/w"],"allowed_commands":["cargo"],"allowed_hosts":["docs.rs"],"#,
            r#""denied_hosts":null,"may_create":null,"may_grant":{},"ask":["fs.delete"],"deny":null,"budget":{"turns":1},"#,
            r#""on_restart":"mark","origin":null}"#,
        ),
    );
    check_parses("{}", SnapshotExtras::default());
}

/// Only the members that the original NEXUS3 requires.
const MINIMAL: &str = concat!(
    r#"{"agent_id":"a","created_at":"2026-01-02T03:04:05","modified_at":"2026-01-02T03:04:06","messages":[],"#,
    r#""system_prompt":"","working_directory":"/srv","permission_level":"trusted"}"#,
);

#[test]
fn minimal_original_session_is_accepted() {
    let old = SnapshotDocument {
        created_at: text("2026-01-02T03:04:05"),
        modified_at: text("2026-01-02T03:04:06"),
        messages: Vec::new(),
        system_prompt: String::new(),
        permission_level: text("trusted"),
        permission_preset: None,
        disabled_tools: Vec::new(),
        token_usage: Map::new(),
        ..document()
    };
    check_parses(MINIMAL, old.clone());
    check_parses(&MINIMAL.replace(r#""messages""#, r#""weather":[1],"messages""#), old);
}

#[test]
fn tool_call_is_accepted_in_three_forms() {
    for shape in [
        r#"{"id":"c1","name":"read_file","arguments":{"path":"x"}}"#,
        r#"{"id":"c1","type":"function","function":{"name":"read_file","arguments":{"path":"x"}}}"#,
    ] {
        check_parses(shape, call(json!({ "path": "x" })));
    }
    let written =
        r#"{"id":"c1","type":"function","function":{"name":"read_file","arguments":"{\"path\":\"x\"}"}}"#;
    check_parses(written, call(Value::from(r#"{"path":"x"}"#)));
    for bare in [r#"{"id":"c1","name":"read_file"}"#, r#"{"id":"c1","name":"read_file","arguments":null}"#] {
        check_parses(bare, call(json!({})));
    }
}

#[test]
fn invalid_session_is_reported_with_its_path() {
    let with = |from: &str, to: &str| format!(r#"{{"session":{}}}"#, MINIMAL.replacen(from, to, 1));
    let message = |message: &str| with(r#""messages":[]"#, &format!(r#""messages":[{message}]"#));
    let call = |call: &str| message(&format!(r#"{{"role":"assistant","content":"","tool_calls":[{call}]}}"#));
    let mut cases = vec![
        ("{}".to_owned(), "Missing required parameter: session"),
        (r#"{"session":[]}"#.to_owned(), "session must be object, got: list"),
        (r#"{"session":"{}"}"#.to_owned(), "session must be object, got: str"),
        (with(r#""agent_id":"a""#, r#""agent_id":7"#), "session.agent_id must be string, got: int"),
        (with(r#""messages":[]"#, r#""messages":{}"#), "session.messages must be list, got: dict"),
        (message("7"), "session.messages[0] must be object, got: int"),
        (message(r#"{"content":"hi"}"#), "Missing required parameter: session.messages[0].role"),
        (message(r#"{"role":"user","content":[]}"#), "session.messages[0].content must be string, got: list"),
        (message(r#"{"role":"user","meta":7}"#), "session.messages[0].meta must be object, got: int"),
        (call("7"), "session.messages[0].tool_calls[0] must be object, got: int"),
        (call(r#"{"name":"x"}"#), "Missing required parameter: session.messages[0].tool_calls[0].id"),
        (call(r#"{"id":"c"}"#), "Missing required parameter: session.messages[0].tool_calls[0].name"),
        (
            call(r#"{"id":"c","name":"x","arguments":[]}"#),
            "session.messages[0].tool_calls[0] must have an object or a string as arguments",
        ),
        (
            call(r#"{"id":"c","name":"x","function":{"name":"x"}}"#),
            "session.messages[0].tool_calls[0] must have either name and arguments or function",
        ),
        (
            with("}", r#","nexus3":{"on_restart":"never"}}"#),
            "session.nexus3.on_restart must be one of 'resume', 'mark'",
        ),
        (
            with("}", r#","nexus3":{"budget":{"turns":-1}}}"#),
            "session.nexus3.budget.turns must be a non-negative integer",
        ),
        (format!(r#"{{"session":{MINIMAL},"force":true}}"#), "Extra inputs are not permitted: force"),
    ];
    let missing: Vec<_> = [
        "agent_id",
        "created_at",
        "modified_at",
        "messages",
        "system_prompt",
        "working_directory",
        "permission_level",
    ]
    .map(|name| (name, format!("Missing required parameter: session.{name}")))
    .into();
    for (name, message) in &missing {
        let mut minimal: Map<String, Value> = serde_json::from_str(MINIMAL).unwrap();
        minimal.remove(*name);
        cases.push((json!({ "session": minimal }).to_string(), message));
    }
    for (params, message) in cases {
        let document = parse(params.as_bytes()).unwrap();
        let fault = from_json::<ImportAgentParams>(&document.value).unwrap_err();
        assert_eq!(fault.to_string(), message, "{params}");
    }
}

#[test]
fn lifecycle_params_use_the_common_error_texts() {
    for (method, params, message) in [
        (Method::ListSessions, r#"{"limit":0}"#, "limit must be an integer between 1 and 2000"),
        (Method::ListSessions, r#"{"offset":-1}"#, "offset must be a non-negative integer"),
        (Method::ForkAgent, "{}", "Missing required parameter: agent_id"),
        (Method::ForkAgent, r#"{"agent_id":"a","messages":-1}"#, "messages must be a non-negative integer"),
        (Method::ForkAgent, r#"{"agent_id":"a","messages":1.5}"#, "messages must be a non-negative integer"),
        (Method::ForkAgent, r#"{"agent_id":"a","new_agent_id":5}"#, "new_agent_id must be string, got: int"),
        (Method::RollbackAgent, r#"{"agent_id":"a"}"#, "Missing required parameter: messages"),
        (
            Method::RollbackAgent,
            r#"{"agent_id":"a","messages":"2"}"#,
            "messages must be a non-negative integer",
        ),
        (Method::RenameAgent, r#"{"agent_id":"a"}"#, "Missing required parameter: new_agent_id"),
        (Method::ExportAgent, r#"{"agent_id":"a","to":"x"}"#, "Extra inputs are not permitted: to"),
        (Method::CreateAgent, r#"{"on_restart":"retry"}"#, "on_restart must be one of 'resume', 'mark'"),
        (Method::CreateAgent, r#"{"on_restart":1}"#, "on_restart must be string, got: int"),
    ] {
        assert_eq!(
            parse_params(method, params).unwrap_err().to_string(),
            message,
            "{} {params}",
            method.name()
        );
    }
}
