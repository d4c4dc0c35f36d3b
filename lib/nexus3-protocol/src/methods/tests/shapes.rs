//! The exact JSON of every params and output struct, in both directions.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::*;
use crate::json::from_json;

/// The struct is written as this text, and this text is read as the struct, by both readers.
fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: T, text: &str) {
    assert_eq!(serde_json::to_string(&value).unwrap(), text);
    assert_eq!(serde_json::from_str::<T>(text).unwrap(), value);
    reads(text, value);
}

fn reads<T: DeserializeOwned + PartialEq + Debug>(text: &str, value: T) {
    assert_eq!(from_json::<T>(&read(text.as_bytes()).unwrap().value), Ok(value), "{text}");
}

fn send(content: &str) -> SendParams {
    SendParams { content: content.to_owned(), request_id: None, source: None, source_agent_id: None }
}

#[test]
fn no_parameters_are_an_empty_object() {
    check(NoParams {}, "{}");
}

#[test]
fn create_agent_takes_a_name_and_a_prompt() {
    check(CreateAgentParams::default(), "{}");
    let params = CreateAgentParams { agent_id: Some("w1".to_owned()), system_prompt: Some(String::new()) };
    check(params, r#"{"agent_id":"w1","system_prompt":""}"#);
    reads(r#"{"agent_id":null,"system_prompt":null}"#, CreateAgentParams::default());
    check(
        CreateAgentOutput { agent_id: "w1".to_owned(), url: "/agent/w1".to_owned() },
        r#"{"agent_id":"w1","url":"/agent/w1"}"#,
    );
}

#[test]
fn destroy_agent_takes_a_name_and_says_whether_there_was_one() {
    check(DestroyAgentParams { agent_id: "w1".to_owned() }, r#"{"agent_id":"w1"}"#);
    check(
        DestroyAgentOutput { success: false, agent_id: "w1".to_owned() },
        r#"{"success":false,"agent_id":"w1"}"#,
    );
}

#[test]
fn list_agents_gives_all_thirteen_members_with_null_for_none() {
    check(ListAgentsOutput { agents: Vec::new() }, r#"{"agents":[]}"#);
    let summary = AgentSummary {
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
    };
    check(
        summary.clone(),
        concat!(
            r#"{"agent_id":".t","is_temp":true,"created_at":"2026-01-02T03:04:05.000006","message_count":2,"#,
            r#""should_shutdown":false,"parent_agent_id":null,"child_count":0,"halted_at_iteration_limit":false,"#,
            r#""model":null,"last_action_at":null,"permission_level":"SANDBOXED","cwd":"/srv/a","write_paths":null}"#,
        ),
    );
    let busy = AgentSummary {
        parent_agent_id: Some("p".to_owned()),
        model: Some("m".to_owned()),
        last_action_at: Some("2026-01-02T03:04:06.000000".to_owned()),
        write_paths: Some(vec!["/w".to_owned()]),
        ..summary
    };
    let text = serde_json::to_string(&busy).unwrap();
    assert!(text.ends_with(r#""cwd":"/srv/a","write_paths":["/w"]}"#), "{text}");
    reads(&text, busy);
}

#[test]
fn shutdowns_say_yes() {
    check(ShutdownOutput { success: true }, r#"{"success":true}"#);
    check(
        ShutdownServerOutput { success: true, message: "Server shutting down".to_owned() },
        r#"{"success":true,"message":"Server shutting down"}"#,
    );
}

#[test]
fn discover_answers_with_a_bare_document() {
    check(
        DiscoverOutput(json!({ "openrpc": "1.3.2", "methods": [] })),
        r#"{"methods":[],"openrpc":"1.3.2"}"#,
    );
}

#[test]
fn send_takes_content_and_perhaps_names() {
    check(send("hi"), r#"{"content":"hi"}"#);
    check(send(""), r#"{"content":""}"#);
    reads(r#"{"content":"hi","request_id":null,"source":null,"source_agent_id":null}"#, send("hi"));
    let named = SendParams {
        request_id: Some(RequestId::Number(-5)),
        source: Some("repl".to_owned()),
        source_agent_id: Some(RequestId::Text("main".to_owned())),
        ..send("hi")
    };
    check(named, r#"{"content":"hi","request_id":-5,"source":"repl","source_agent_id":"main"}"#);
}

#[test]
fn send_answers_with_cancelled_only_when_it_was() {
    let output = SendOutput {
        cancelled: false,
        content: "hello".to_owned(),
        request_id: RequestId::Text("r".to_owned()),
        halted_at_iteration_limit: false,
        usage: None,
    };
    check(output.clone(), r#"{"content":"hello","request_id":"r","halted_at_iteration_limit":false}"#);
    let cancelled = SendOutput { cancelled: true, ..output.clone() };
    check(
        cancelled,
        r#"{"cancelled":true,"content":"hello","request_id":"r","halted_at_iteration_limit":false}"#,
    );
    let usage = Some(Usage { input_tokens: 3, output_tokens: 2, cached_tokens: 1 });
    check(
        SendOutput { halted_at_iteration_limit: true, usage, ..output.clone() },
        concat!(
            r#"{"content":"hello","request_id":"r","halted_at_iteration_limit":true,"#,
            r#""usage":{"input_tokens":3,"output_tokens":2,"cached_tokens":1}}"#,
        ),
    );
    reads(r#"{"content":"hello","request_id":"r"}"#, output);
}

#[test]
fn cancel_gives_a_reason_only_when_nothing_was_ended() {
    check(CancelParams { request_id: RequestId::Number(5) }, r#"{"request_id":5}"#);
    let ended = CancelOutput { cancelled: true, request_id: RequestId::Number(5), reason: None };
    check(ended.clone(), r#"{"cancelled":true,"request_id":5}"#);
    check(
        CancelOutput { cancelled: false, reason: Some("not_found_or_completed".to_owned()), ..ended },
        r#"{"cancelled":false,"request_id":5,"reason":"not_found_or_completed"}"#,
    );
}

#[test]
fn get_tokens_gives_the_counts_and_what_was_used() {
    let used = UsedTokens { requests: 1, input_tokens: 2, output_tokens: 3, cached_tokens: 4 };
    check(
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
        },
        concat!(
            r#"{"system":1,"dynamic":2,"tools":3,"messages":4,"total":10,"budget":8000,"available":6000,"#,
            r#""remaining":5990,"used":{"requests":1,"input_tokens":2,"output_tokens":3,"cached_tokens":4}}"#,
        ),
    );
}

#[test]
fn get_context_gives_five_members() {
    check(
        ContextOutput {
            message_count: 2,
            system_prompt: true,
            halted_at_iteration_limit: false,
            last_iteration_count: 1,
            max_tool_iterations: 10,
        },
        concat!(
            r#"{"message_count":2,"system_prompt":true,"halted_at_iteration_limit":false,"#,
            r#""last_iteration_count":1,"max_tool_iterations":10}"#,
        ),
    );
}

#[test]
fn get_messages_takes_a_page() {
    check(MessagesParams::default(), "{}");
    reads(r#"{"offset":null,"limit":null}"#, MessagesParams::default());
    let page =
        |offset, limit| MessagesParams { offset: Some(MessageOffset(offset)), limit: Some(PageSize(limit)) };
    check(page(0, 1), r#"{"offset":0,"limit":1}"#);
    check(page(u64::MAX, 2000), r#"{"offset":18446744073709551615,"limit":2000}"#);
    reads(r#"{"offset":-0,"limit":1}"#, page(0, 1));
    assert_eq!((MessageOffset::default().0, PageSize::default().0), (0, 200));
}

#[test]
fn a_message_has_calls_and_meta_only_when_there_are_some() {
    let user = MessageView {
        index: 0,
        role: "user".to_owned(),
        content: "hi".to_owned(),
        tool_calls: Vec::new(),
        tool_call_id: None,
        meta: None,
    };
    let call =
        ToolCallView { id: "c1".to_owned(), name: "read_file".to_owned(), arguments: "{\"p\":1}".to_owned() };
    let meta = Map::from_iter([("source".to_owned(), Value::from("rpc"))]);
    let messages = vec![
        MessageView { meta: Some(meta), ..user.clone() },
        MessageView { index: 1, role: "assistant".to_owned(), tool_calls: vec![call], ..user.clone() },
        MessageView { index: 2, role: "tool".to_owned(), tool_call_id: Some("c1".to_owned()), ..user },
    ];
    check(
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
fn an_answer_of_a_newer_daemon_is_read_and_what_is_new_passed_over() {
    reads(
        r#"{"success":true,"since":1e400,"more":{"n":[123456789012345678901]}}"#,
        ShutdownOutput { success: true },
    );
}

#[test]
fn a_request_id_keeps_its_type() {
    check(RequestId::Text("5".to_owned()), r#""5""#);
    check(RequestId::Number(5), "5");
    check(RequestId::Number(i64::MIN), "-9223372036854775808");
    check(RequestId::Text("é".repeat(128)), &format!("\"{}\"", "é".repeat(128)));
    reads("-0", RequestId::Number(0));
    assert_ne!(RequestId::Text("5".to_owned()), RequestId::Number(5));
    assert_eq!(RequestId::Text("5".to_owned()).to_string(), RequestId::Number(5).to_string());
}
