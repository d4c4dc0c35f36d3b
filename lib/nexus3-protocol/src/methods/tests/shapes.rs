//! Exact JSON of every parameter and result type, serialized and deserialized.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::*;
use crate::events::MessageEvent;
use crate::json::from_json;

/// Checks that `value` serializes to `text`, and that `text` deserializes to `value` with both deserializers.
pub(super) fn check_round_trip<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: T, text: &str) {
    assert_eq!(serde_json::to_string(&value).unwrap(), text);
    assert_eq!(serde_json::from_str::<T>(text).unwrap(), value);
    check_parses(text, value);
}

pub(super) fn check_parses<T: DeserializeOwned + PartialEq + Debug>(text: &str, value: T) {
    assert_eq!(from_json::<T>(&parse(text.as_bytes()).unwrap().value), Ok(value), "{text}");
}

fn send_params(content: &str) -> SendParams {
    SendParams { content: content.to_owned(), ..SendParams::default() }
}

fn send_output() -> SendOutput {
    SendOutput {
        cancelled: false,
        content: "hello".to_owned(),
        request_id: RequestIdParam::Text("r".to_owned()),
        halted_at_iteration_limit: false,
        halted: None,
        usage: None,
    }
}

pub(super) const SUMMARY: &str = concat!(
    r#"{"agent_id":".t","is_temp":true,"created_at":"2026-01-02T03:04:05.000006","message_count":2,"#,
    r#""should_shutdown":false,"parent_agent_id":null,"child_count":0,"halted_at_iteration_limit":false,"#,
    r#""model":null,"last_action_at":null,"permission_level":"SANDBOXED","cwd":"/srv/a","write_paths":null,"#,
    r#""preset":"worker","state":"live"}"#,
);

pub(super) fn summary() -> AgentSummary {
    AgentSummary {
        agent_id: ".t".to_owned(),
        is_temp: true,
        created_at: "2026-01-02T03:04:05.000006".to_owned(),
        message_count: 2,
        should_shutdown: false,
        parent_agent_id: None,
        child_count: 0,
        halted_at_iteration_limit: false,
        model: None,
        last_action_at: None,
        permission_level: "SANDBOXED".to_owned(),
        cwd: "/srv/a".to_owned(),
        write_paths: None,
        preset: "worker".to_owned(),
        state: "live".to_owned(),
    }
}

#[test]
fn no_params_is_an_empty_object() {
    check_round_trip(NoParams {}, "{}");
}

#[test]
fn create_agent_params_with_id_and_prompt() {
    check_round_trip(CreateAgentParams::default(), "{}");
    let params = CreateAgentParams {
        agent_id: Some("w1".to_owned()),
        system_prompt: Some(String::new()),
        ..CreateAgentParams::default()
    };
    check_round_trip(params, r#"{"agent_id":"w1","system_prompt":""}"#);
    check_parses(r#"{"agent_id":null,"system_prompt":null}"#, CreateAgentParams::default());
}

#[test]
fn create_agent_params_have_22_members_and_accept_null() {
    let text = |text: &str| Some(text.to_owned());
    let texts = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect());
    let params = CreateAgentParams {
        agent_id: text("w1"),
        temporary: Some(false),
        system_prompt: text("Be brief."),
        preset: text("trusted"),
        tools: texts(&["echo"]),
        disable_tools: texts(&["fs.read_file"]),
        parent_agent_id: text("p"),
        cwd: text("/srv"),
        allowed_write_paths: texts(&["out"]),
        allowed_commands: texts(&["cargo"]),
        allowed_hosts: texts(&["docs.rs"]),
        denied_hosts: texts(&["x.org"]),
        model: text("a/b"),
        initial_message: text("hi"),
        wait_for_initial_response: Some(true),
        may_create: texts(&[]),
        may_grant: Some(MayGrantParams {
            preset: text("worker"),
            tools: texts(&["t"]),
            disable_tools: texts(&["a"]),
            allowed_write_paths: texts(&["b"]),
            allowed_commands: texts(&["*"]),
            allowed_hosts: texts(&["*"]),
            denied_hosts: texts(&["y.org"]),
            may_create: texts(&["c"]),
        }),
        ask: texts(&["fs.delete"]),
        allow: texts(&["host:a"]),
        deny: texts(&[]),
        budget: Some(BudgetParams {
            turns: Some(1),
            tool_calls: Some(2),
            tokens: Some(3),
            wall_ms: Some(4),
            children: Some(0),
        }),
        on_restart: Some(OnRestart::Mark),
    };
    let full = concat!(
        r#"{"agent_id":"w1","temporary":false,"system_prompt":"Be brief.","preset":"trusted","#,
        r#""tools":["echo"],"disable_tools":["fs.read_file"],"parent_agent_id":"p","cwd":"/srv","#,
        r#""allowed_write_paths":["out"],"allowed_commands":["cargo"],"#,
        r#""allowed_hosts":["docs.rs"],"denied_hosts":["x.org"],"#,
        r#""model":"a/b","initial_message":"hi","wait_for_initial_response":true,"may_create":[],"#,
        r#""may_grant":{"preset":"worker","tools":["t"],"disable_tools":["a"],"allowed_write_paths":["b"],"#,
        r#""allowed_commands":["*"],"allowed_hosts":["*"],"denied_hosts":["y.org"],"may_create":["c"]},"#,
        r#""ask":["fs.delete"],"allow":["host:a"],"deny":[],"#,
        r#""budget":{"turns":1,"tool_calls":2,"tokens":3,"wall_ms":4,"children":0},"on_restart":"mark"}"#,
    );
    check_round_trip(params, full);
    let members: Map<String, Value> = serde_json::from_str(full).unwrap();
    let nulls: Map<String, Value> = members.into_iter().map(|(name, _)| (name, Value::Null)).collect();
    assert_eq!(nulls.len(), 22);
    check_parses(&Value::from(nulls).to_string(), CreateAgentParams::default());
    check_round_trip(MayGrantParams::default(), "{}");
    check_round_trip(BudgetParams::default(), "{}");
    let nulls = r#"{"turns":null,"tool_calls":null,"tokens":null,"wall_ms":null,"children":null}"#;
    check_parses(nulls, BudgetParams::default());
}

#[test]
fn create_agent_returns_token_and_optional_first_response() {
    let created = CreateAgentOutput {
        agent_id: "w1".to_owned(),
        url: "/agent/w1".to_owned(),
        token: "nxc_x".to_owned(),
        initial_request_id: None,
        initial_status: None,
        response: None,
    };
    check_round_trip(created.clone(), r#"{"agent_id":"w1","url":"/agent/w1","token":"nxc_x"}"#);
    let id = || Some(RequestIdParam::Text("r".to_owned()));
    check_round_trip(
        CreateAgentOutput {
            initial_request_id: id(),
            initial_status: Some("queued".to_owned()),
            ..created.clone()
        },
        concat!(
            r#"{"agent_id":"w1","url":"/agent/w1","token":"nxc_x","initial_request_id":"r","#,
            r#""initial_status":"queued"}"#,
        ),
    );
    let completed =
        InitialResponse::Answered(SendOutput { request_id: RequestIdParam::Number(7), ..send_output() });
    check_round_trip(
        CreateAgentOutput { initial_request_id: id(), response: Some(completed), ..created.clone() },
        concat!(
            r#"{"agent_id":"w1","url":"/agent/w1","token":"nxc_x","initial_request_id":"r","#,
            r#""response":{"content":"hello","request_id":7,"halted_at_iteration_limit":false}}"#,
        ),
    );
    let error = InitialError { code: -32603, message: "the model failed".to_owned() };
    check_round_trip(
        CreateAgentOutput { response: Some(InitialResponse::Failed { error }), ..created },
        concat!(
            r#"{"agent_id":"w1","url":"/agent/w1","token":"nxc_x","#,
            r#""response":{"error":{"code":-32603,"message":"the model failed"}}}"#,
        ),
    );
}

#[test]
fn destroy_agent_returns_whether_the_agent_existed() {
    let params = DestroyAgentParams { agent_id: "w1".to_owned(), orphan: None };
    check_round_trip(params.clone(), r#"{"agent_id":"w1"}"#);
    check_round_trip(
        DestroyAgentParams { orphan: Some(true), ..params },
        r#"{"agent_id":"w1","orphan":true}"#,
    );
    check_round_trip(
        DestroyAgentOutput { success: false, agent_id: "w1".to_owned() },
        r#"{"success":false,"agent_id":"w1"}"#,
    );
}

#[test]
fn list_agents_returns_a_page_and_the_total() {
    check_round_trip(ListAgentsParams::default(), "{}");
    let page = ListAgentsParams { offset: Some(PageOffset(3)), limit: Some(PageSize(2000)) };
    check_round_trip(page, r#"{"offset":3,"limit":2000}"#);
    check_parses(r#"{"offset":null,"limit":null}"#, ListAgentsParams::default());
    check_round_trip(
        ListAgentsOutput { agents: Vec::new(), total: 9, damaged: Vec::new() },
        r#"{"agents":[],"total":9}"#,
    );
    let damaged = vec![DamagedAgentSummary { agent_id: "a".to_owned(), error: "why".to_owned() }];
    check_round_trip(
        ListAgentsOutput { agents: Vec::new(), total: 1, damaged },
        r#"{"agents":[],"total":1,"damaged":[{"agent_id":"a","error":"why"}]}"#,
    );
}

#[test]
fn agent_summary_has_fifteen_members_with_nulls() {
    let summary = summary();
    check_round_trip(summary.clone(), SUMMARY);
    let busy = AgentSummary {
        parent_agent_id: Some("p".to_owned()),
        model: Some("m".to_owned()),
        last_action_at: Some("2026-01-02T03:04:06.000000".to_owned()),
        write_paths: Some(vec!["/w".to_owned()]),
        ..summary
    };
    let text = serde_json::to_string(&busy).unwrap();
    let end = r#""cwd":"/srv/a","write_paths":["/w"],"preset":"worker","state":"live"}"#;
    assert!(text.ends_with(end), "{text}");
    check_parses(&text, busy);
}

#[test]
fn list_agents_of_an_older_daemon_is_accepted() {
    let old = SUMMARY.replace(r#","preset":"worker","state":"live""#, "");
    let (preset, state) = (String::new(), String::new());
    check_parses(&old, AgentSummary { preset, state, ..summary() });
    check_parses(r#"{"agents":[]}"#, ListAgentsOutput { agents: Vec::new(), total: 0, damaged: Vec::new() });
}

#[test]
fn shutdown_results_have_success() {
    check_round_trip(ShutdownOutput { success: true }, r#"{"success":true}"#);
    check_round_trip(
        ShutdownServerOutput { success: true, message: "Server shutting down".to_owned() },
        r#"{"success":true,"message":"Server shutting down"}"#,
    );
}

#[test]
fn discover_returns_the_bare_document() {
    check_round_trip(
        DiscoverOutput(json!({ "methods": [], "openrpc": "1.3.2" })),
        r#"{"methods":[],"openrpc":"1.3.2"}"#,
    );
}

#[test]
fn send_params_have_optional_ids_and_images() {
    check_round_trip(send_params("hi"), r#"{"content":"hi"}"#);
    check_round_trip(send_params(""), r#"{"content":""}"#);
    check_parses(
        r#"{"content":"hi","request_id":null,"source":null,"source_agent_id":null}"#,
        send_params("hi"),
    );
    let with_ids = SendParams {
        request_id: Some(RequestIdParam::Number(-5)),
        source: Some("repl".to_owned()),
        source_agent_id: Some(RequestIdParam::Text("main".to_owned())),
        ..send_params("hi")
    };
    check_round_trip(
        with_ids,
        r#"{"content":"hi","request_id":-5,"source":"repl","source_agent_id":"main"}"#,
    );
    let inline_image = ImageParam { data: Some("iVBORw0KGgo=".to_owned()), ..ImageParam::default() };
    let image_by_path = ImageParam { path: Some("a.png".to_owned()), ..ImageParam::default() };
    check_round_trip(
        SendParams { images: Some(vec![inline_image, image_by_path]), ..send_params("look") },
        r#"{"content":"look","images":[{"data":"iVBORw0KGgo="},{"path":"a.png"}]}"#,
    );
}

#[test]
fn send_result_has_cancelled_only_when_true() {
    let output = send_output();
    check_round_trip(
        output.clone(),
        r#"{"content":"hello","request_id":"r","halted_at_iteration_limit":false}"#,
    );
    let cancelled = SendOutput { cancelled: true, ..output.clone() };
    check_round_trip(
        cancelled,
        r#"{"cancelled":true,"content":"hello","request_id":"r","halted_at_iteration_limit":false}"#,
    );
    let usage =
        Some(UsageOutput { input_tokens: 3, output_tokens: 2, cached_tokens: 1, estimated_tokens: Some(4) });
    check_round_trip(
        SendOutput { halted_at_iteration_limit: true, usage, ..output.clone() },
        concat!(
            r#"{"content":"hello","request_id":"r","halted_at_iteration_limit":true,"#,
            r#""usage":{"input_tokens":3,"output_tokens":2,"cached_tokens":1,"estimated_tokens":4}}"#,
        ),
    );
    check_round_trip(
        SendOutput { halted: Some("budget".to_owned()), ..output.clone() },
        r#"{"content":"hello","request_id":"r","halted_at_iteration_limit":false,"halted":"budget"}"#,
    );
    check_parses(r#"{"content":"hello","request_id":"r"}"#, output);
}

#[test]
fn cancel_has_a_reason_only_when_nothing_was_cancelled() {
    check_round_trip(CancelParams { request_id: RequestIdParam::Number(5) }, r#"{"request_id":5}"#);
    let ended = CancelOutput { cancelled: true, request_id: RequestIdParam::Number(5), reason: None };
    check_round_trip(ended.clone(), r#"{"cancelled":true,"request_id":5}"#);
    check_round_trip(
        CancelOutput { cancelled: false, reason: Some("not_found_or_completed".to_owned()), ..ended },
        r#"{"cancelled":false,"request_id":5,"reason":"not_found_or_completed"}"#,
    );
}

#[test]
fn steer_returns_the_request_id_that_accepted_it() {
    let instruction = SteerParams { content: "left".to_owned(), source: None, source_agent_id: None };
    check_round_trip(instruction.clone(), r#"{"content":"left"}"#);
    check_parses(r#"{"content":"left","source":null,"source_agent_id":null}"#, instruction.clone());
    let source_agent_id = Some(RequestIdParam::Number(9));
    check_round_trip(
        SteerParams { source: Some("repl".to_owned()), source_agent_id, ..instruction },
        r#"{"content":"left","source":"repl","source_agent_id":9}"#,
    );
    let accepted = SteerOutput { steered: true, request_id: Some(RequestIdParam::Number(5)), reason: None };
    check_round_trip(accepted, r#"{"steered":true,"request_id":5}"#);
    let reason = Some("no_running_turn_or_full".to_owned());
    check_round_trip(
        SteerOutput { steered: false, request_id: None, reason },
        r#"{"steered":false,"reason":"no_running_turn_or_full"}"#,
    );
}

#[test]
fn get_tokens_returns_counts_and_usage() {
    let used = UsedTokens {
        requests: 1,
        input_tokens: 2,
        output_tokens: 3,
        cached_tokens: 4,
        ..UsedTokens::default()
    };
    let priced = UsedTokens { reasoning_tokens: Some(5), cost_usd: Some(0.25), ..used };
    check_round_trip(
        priced,
        concat!(
            r#"{"requests":1,"input_tokens":2,"output_tokens":3,"cached_tokens":4,"reasoning_tokens":5,"#,
            r#""cost_usd":0.25}"#
        ),
    );
    check_round_trip(
        TokensOutput {
            system: 1,
            dynamic: 2,
            tools: 3,
            messages: 4,
            total: 10,
            budget: 8000,
            available: 6000,
            remaining: 5990,
            used,
            tree_cost_usd: None,
        },
        concat!(
            r#"{"system":1,"dynamic":2,"tools":3,"messages":4,"total":10,"budget":8000,"available":6000,"#,
            r#""remaining":5990,"used":{"requests":1,"input_tokens":2,"output_tokens":3,"cached_tokens":4}}"#,
        ),
    );
}

#[test]
fn compact_returns_savings_or_a_reason() {
    check_round_trip(CompactParams { force: None }, "{}");
    check_round_trip(CompactParams { force: Some(false) }, r#"{"force":false}"#);
    let done = CompactOutput {
        compacted: true,
        tokens_before: Some(9),
        tokens_after: Some(4),
        tokens_saved: Some(5),
        reason: None,
    };
    check_round_trip(done, r#"{"compacted":true,"tokens_before":9,"tokens_after":4,"tokens_saved":5}"#);
    let nothing = CompactOutput {
        compacted: false,
        tokens_before: None,
        tokens_after: None,
        tokens_saved: None,
        reason: Some("nothing_to_compact".to_owned()),
    };
    check_round_trip(nothing, r#"{"compacted":false,"reason":"nothing_to_compact"}"#);
}

#[test]
fn get_context_has_five_members_and_the_plan() {
    check_round_trip(
        ContextOutput {
            message_count: 2,
            system_prompt: true,
            halted_at_iteration_limit: false,
            last_iteration_count: 1,
            max_tool_iterations: 10,
            todo: Vec::new(),
        },
        concat!(
            r#"{"message_count":2,"system_prompt":true,"halted_at_iteration_limit":false,"#,
            r#""last_iteration_count":1,"max_tool_iterations":10}"#,
        ),
    );
    check_round_trip(
        ContextOutput {
            message_count: 2,
            system_prompt: true,
            halted_at_iteration_limit: false,
            last_iteration_count: 1,
            max_tool_iterations: 10,
            todo: vec![TodoEntry { text: "test".to_owned(), status: "in_progress".to_owned() }],
        },
        concat!(
            r#"{"message_count":2,"system_prompt":true,"halted_at_iteration_limit":false,"#,
            r#""last_iteration_count":1,"max_tool_iterations":10,"#,
            r#""todo":[{"text":"test","status":"in_progress"}]}"#,
        ),
    );
}

#[test]
fn get_messages_returns_a_page() {
    check_round_trip(MessagesParams::default(), "{}");
    check_parses(r#"{"offset":null,"limit":null}"#, MessagesParams::default());
    let page =
        |offset, limit| MessagesParams { offset: Some(PageOffset(offset)), limit: Some(PageSize(limit)) };
    check_round_trip(page(0, 1), r#"{"offset":0,"limit":1}"#);
    check_round_trip(page(u64::MAX, 2000), r#"{"offset":18446744073709551615,"limit":2000}"#);
    check_parses(r#"{"offset":-0,"limit":1}"#, page(0, 1));
    assert_eq!((PageOffset::default().0, PageSize::default().0), (0, 200));
}

#[test]
fn message_omits_empty_calls_and_meta() {
    let user = MessageEvent {
        role: "user".to_owned(),
        content: "hi".to_owned(),
        images: Vec::new(),
        tool_calls: Vec::new(),
        tool_call_id: None,
        meta: None,
    };
    let call =
        ToolCallView { id: "c1".to_owned(), name: "read_file".to_owned(), arguments: "{\"p\":1}".to_owned() };
    let meta = Map::from_iter([("source".to_owned(), Value::from("rpc"))]);
    let messages = [
        MessageEvent { meta: Some(meta), ..user.clone() },
        MessageEvent { role: "assistant".to_owned(), tool_calls: vec![call], ..user.clone() },
        MessageEvent { role: "tool".to_owned(), tool_call_id: Some("c1".to_owned()), ..user },
    ];
    let messages = (0..).zip(messages).map(|(index, message)| MessageView { index, message }).collect();
    check_round_trip(
        MessagesOutput { agent_id: "main".to_owned(), total: 3, offset: 0, limit: 200, messages },
        concat!(
            r#"{"agent_id":"main","total":3,"offset":0,"limit":200,"messages":["#,
            r#"{"index":0,"role":"user","content":"hi","tool_call_id":null,"meta":{"source":"rpc"}},"#,
            r#"{"index":1,"role":"assistant","content":"hi","tool_calls":[{"id":"c1","name":"read_file","#,
            r#""arguments":"{\"p\":1}"}],"tool_call_id":null},"#,
            r#"{"index":2,"role":"tool","content":"hi","tool_call_id":"c1"}]}"#,
        ),
    );
}

#[test]
fn unknown_members_of_a_result_are_ignored() {
    check_parses(
        r#"{"success":true,"since":1e400,"more":{"n":[123456789012345678901]}}"#,
        ShutdownOutput { success: true },
    );
}

#[test]
fn request_id_preserves_its_type() {
    check_round_trip(RequestIdParam::Text("5".to_owned()), r#""5""#);
    check_round_trip(RequestIdParam::Number(5), "5");
    check_round_trip(RequestIdParam::Number(i64::MIN), "-9223372036854775808");
    check_round_trip(RequestIdParam::Text("é".repeat(128)), &format!("\"{}\"", "é".repeat(128)));
    check_parses("-0", RequestIdParam::Number(0));
    assert_ne!(RequestIdParam::Text("5".to_owned()), RequestIdParam::Number(5));
    assert_eq!(RequestIdParam::Text("5".to_owned()).to_string(), RequestIdParam::Number(5).to_string());
}
