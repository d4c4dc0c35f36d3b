//! A scripted scenario for every implementation of `AgentApi`: each method at least once, and the errors a client
//! meets. It runs over HTTP and in process; `transcript.txt` holds the JSON of each call and its response, one per
//! line.

use nexus3_protocol::methods::{
    AnswerApprovalParams, ApprovalDecision, BudgetParams, CancelParams, CompactParams, CreateAgentParams,
    DestroyAgentParams, ExportAgentParams, ForkAgentParams, ImportAgentParams, InitialResponse,
    ListAgentsParams, ListApprovalsParams, ListSessionsParams, MessagesParams, NoParams, PageSize,
    RenameAgentParams, RequestIdParam, RollbackAgentParams, SendParams, SetPermissionsParams, SteerParams,
    UndoTurnParams,
};
use nexus3_protocol::{AgentApi, RpcError};

/// One line per call: the door, the request without its id, and the `result` or `error` member of the response.
pub(super) const TRANSCRIPT: &str = include_str!("transcript.txt");

/// One call of the transcript.
pub(super) struct Exchange {
    pub(super) door: &'static str,
    pub(super) request: &'static str,
    pub(super) response: &'static str,
}

/// Parses the transcript.
pub(super) fn exchanges() -> Vec<Exchange> {
    let line = |line: &'static str| {
        let mut parts = line.split('\t');
        let mut part = || parts.next().expect("three columns per line");
        Exchange { door: part(), request: part(), response: part() }
    };
    TRANSCRIPT.lines().map(line).collect()
}

/// Runs the scenario; `error` converts a fault to the JSON-RPC error.
pub(super) async fn run<A: AgentApi>(api: &A, error: impl Fn(A::Fault) -> RpcError) {
    create(api, &error).await;
    send_and_read(api, &error).await;
    change_permissions(api, &error).await;
    manage_lifecycle(api, &error).await;
    answer_approvals(api, &error).await;
    destroy_and_shut_down(api, &error).await;
}

async fn create<A: AgentApi>(api: &A, error: &impl Fn(A::Fault) -> RpcError) {
    let lead = CreateAgentParams {
        agent_id: Some("lead".to_owned()),
        preset: Some("trusted".to_owned()),
        allowed_commands: Some(vec!["cargo".to_owned()]),
        budget: Some(BudgetParams { turns: Some(9), ..BudgetParams::default() }),
        ..CreateAgentParams::default()
    };
    let created = api.create_agent(&lead).await.unwrap();
    assert_eq!((created.agent_id.as_str(), created.url.as_str()), ("lead", "/agent/lead"));
    assert!(created.token.starts_with("nxc_") && created.response.is_none());

    let helper = CreateAgentParams {
        agent_id: Some("helper".to_owned()),
        parent_agent_id: Some("lead".to_owned()),
        initial_message: Some("hi".to_owned()),
        wait_for_initial_response: Some(true),
        ..CreateAgentParams::default()
    };
    let created = api.create_agent(&helper).await.unwrap();
    let Some(InitialResponse::Answered(response)) = created.response else { panic!("no response") };
    assert_eq!(
        (response.content.as_str(), Some(response.request_id)),
        ("you said hi", created.initial_request_id)
    );
    let failing = CreateAgentParams {
        agent_id: Some("sad".to_owned()),
        initial_message: Some("fail".to_owned()),
        ..helper
    };
    let Some(InitialResponse::Failed { error: failed }) = api.create_agent(&failing).await.unwrap().response
    else {
        panic!("no failure")
    };
    assert_eq!((failed.code, failed.message.as_str()), (-32603, "the model failed"));

    let duplicate = error(api.create_agent(&lead).await.unwrap_err());
    assert_eq!(
        (duplicate.code, duplicate.message.as_str(), duplicate.data),
        (-32602, "Agent already exists: lead", None)
    );
    let yolo = CreateAgentParams {
        preset: Some("yolo".to_owned()),
        parent_agent_id: Some("lead".to_owned()),
        ..CreateAgentParams::default()
    };
    assert_denied(
        error(api.create_agent(&yolo).await.unwrap_err()),
        "Requested preset 'yolo' exceeds parent ceiling",
    );
    let runner = CreateAgentParams {
        allowed_commands: Some(vec!["rm".to_owned()]),
        parent_agent_id: Some("lead".to_owned()),
        ..CreateAgentParams::default()
    };
    assert_denied(
        error(api.create_agent(&runner).await.unwrap_err()),
        "allowed_command 'rm' is not among the commands the parent may grant",
    );
    let page = ListAgentsParams { limit: Some(PageSize(2)), ..ListAgentsParams::default() };
    let list = api.list_agents(&page).await.unwrap();
    let names: Vec<_> = list.agents.iter().map(|agent| agent.agent_id.as_str()).collect();
    assert_eq!((names.as_slice(), list.total), (["lead", "helper"].as_slice(), 3));
}

async fn send_and_read<A: AgentApi>(api: &A, error: &impl Fn(A::Fault) -> RpcError) {
    let lead = api.for_agent("lead");
    assert_eq!(lead.agent_id(), "lead");
    let message = |content: &str, number: i64| SendParams {
        content: content.to_owned(),
        request_id: Some(RequestIdParam::Number(number)),
        ..SendParams::default()
    };
    let response = lead.send(&message("hello", 7)).await.unwrap();
    assert_eq!(
        (response.content.as_str(), response.request_id),
        ("you said hello", RequestIdParam::Number(7))
    );
    assert_eq!(response.usage.map(|usage| usage.input_tokens), Some(5));
    let failed = error(lead.send(&message("fail", 8)).await.unwrap_err());
    assert_eq!((failed.code, failed.message.as_str(), failed.data), (-32603, "the model failed", None));
    let cancelled = lead.cancel(&CancelParams { request_id: RequestIdParam::Number(7) }).await.unwrap();
    assert_eq!(cancelled.reason.as_deref(), Some("not_found_or_completed"));
    let instruction = SteerParams { content: "left".to_owned(), ..SteerParams::default() };
    assert_eq!(lead.steer(&instruction).await.unwrap().reason.as_deref(), Some("no_running_turn_or_full"));

    let tokens = lead.get_tokens(&NoParams {}).await.unwrap();
    assert_eq!((tokens.budget, tokens.used.requests), (10_000, 1));
    assert_eq!(lead.get_context(&NoParams {}).await.unwrap().message_count, 4);
    let page = MessagesParams { limit: Some(PageSize(1)), ..MessagesParams::default() };
    let messages = lead.get_messages(&page).await.unwrap();
    assert_eq!((messages.total, messages.messages[0].message.content.as_str()), (4, "hello"));
    let compacted = lead.compact(&CompactParams { force: Some(true) }).await.unwrap();
    assert_eq!((compacted.compacted, compacted.reason.as_deref()), (false, Some("nothing_to_compact")));
    let missing = error(api.for_agent("unknown").get_tokens(&NoParams {}).await.unwrap_err());
    assert_eq!((missing.code, missing.message.as_str()), (-32602, "Agent not found: unknown"));
}

async fn change_permissions<A: AgentApi>(api: &A, error: &impl Fn(A::Fault) -> RpcError) {
    let (lead, helper) = (api.for_agent("lead"), api.for_agent("helper"));
    let agent = lead.get_agent(&NoParams {}).await.unwrap();
    assert_eq!(
        (agent.children, agent.agent.preset.as_str()),
        (vec!["helper".into(), "sad".into()], "trusted")
    );
    let children = lead.list_children(&NoParams {}).await.unwrap();
    assert_eq!(children.children[0].parent_agent_id.as_deref(), Some("lead"));
    let before = helper.get_permissions(&NoParams {}).await.unwrap();
    assert_eq!(before.ancestors, ["lead"]);
    assert_eq!(before.limits[0].set_by, "lead");

    let budget = |turns| SetPermissionsParams {
        budget: Some(BudgetParams { turns: Some(turns), ..BudgetParams::default() }),
        ..SetPermissionsParams::default()
    };
    // Two turns of the lead and one of each child are debited from the nine.
    assert_denied(
        error(helper.set_permissions(&budget(9)).await.unwrap_err()),
        "budget of turns exceeds what the parent has left: 5",
    );
    let after = helper.set_permissions(&budget(1)).await.unwrap();
    assert_eq!(after.budget[0].left, Some(0));
    let more = SendParams { content: "more".to_owned(), ..SendParams::default() };
    assert_eq!(helper.send(&more).await.unwrap().halted.as_deref(), Some("budget"));
}

async fn manage_lifecycle<A: AgentApi>(api: &A, error: &impl Fn(A::Fault) -> RpcError) {
    let message = |content: &str| SendParams {
        content: content.to_owned(),
        request_id: Some(RequestIdParam::Number(7)),
        ..SendParams::default()
    };
    let again = api.for_agent("lead").send(&message("hello")).await.unwrap();
    assert_eq!(again.content, "you said hello", "a duplicate request id returns the stored response");
    let other = error(api.for_agent("lead").send(&message("other")).await.unwrap_err());
    let text = "request_id was used before with other content: 7";
    assert_eq!((other.code, other.message.as_str(), other.data), (-32602, text, None));

    let page = ListSessionsParams { limit: Some(PageSize(1)), ..ListSessionsParams::default() };
    let list = api.list_sessions(&page).await.unwrap();
    assert_eq!(
        (list.total, list.sessions[0].agent_id.as_str(), list.sessions[0].message_count),
        (3, "lead", 4)
    );

    let fork = |messages| ForkAgentParams {
        agent_id: "lead".to_owned(),
        new_agent_id: Some("copy".to_owned()),
        messages: Some(messages),
    };
    let too_many = error(api.fork_agent(&fork(9)).await.unwrap_err());
    let text = "messages must be at most 4, the number there are, got: 9";
    assert_eq!((too_many.code, too_many.message.as_str()), (-32602, text));
    let copy = api.fork_agent(&fork(2)).await.unwrap();
    assert_eq!((copy.url.as_str(), copy.message_count), ("/agent/copy", 2));
    assert!(copy.token.starts_with("nxc_"));
    let back = RollbackAgentParams { agent_id: "copy".to_owned(), messages: 0 };
    let back = api.rollback_agent(&back).await.unwrap();
    assert_eq!((back.message_count, back.removed), (0, 2));
    let undo = UndoTurnParams { agent_id: "copy".to_owned(), turn: None };
    let undo = error(api.undo_turn(&undo).await.unwrap_err());
    assert_eq!((undo.code, undo.message.as_str()), (-32602, "no turn changed files with file tools"));
    let name = RenameAgentParams { agent_id: "copy".to_owned(), new_agent_id: "twin".to_owned() };
    assert_eq!(api.rename_agent(&name).await.unwrap().url, "/agent/twin");

    let export = |agent_id: &str| ExportAgentParams { agent_id: agent_id.to_owned() };
    let missing = error(api.export_agent(&export("copy")).await.unwrap_err());
    assert_eq!((missing.code, missing.message.as_str()), (-32602, "Agent not found: copy"));
    let snapshot = api.export_agent(&export("lead")).await.unwrap().snapshot;
    assert_eq!((snapshot.messages.len(), snapshot.permission_level.as_str()), (4, "trusted"));
    let import = ImportAgentParams { snapshot, agent_id: Some("again".to_owned()) };
    let again = api.import_agent(&import).await.unwrap();
    assert_eq!((again.url.as_str(), again.message_count), ("/agent/again", 4));
    assert_eq!(again.notes, Vec::<String>::new());
}

async fn answer_approvals<A: AgentApi>(api: &A, error: &impl Fn(A::Fault) -> RpcError) {
    let list = api.list_approvals(&ListApprovalsParams::default()).await.unwrap();
    assert_eq!(list.approvals, []);
    let answer = AnswerApprovalParams {
        approval_id: "none".to_owned(),
        answer: ApprovalDecision::Allow,
        scope: None,
        rule: None,
        note: None,
    };
    let missing = error(api.answer_approval(&answer).await.unwrap_err());
    assert_eq!((missing.code, missing.message.as_str()), (-32602, "Approval not found: none"));
}

async fn destroy_and_shut_down<A: AgentApi>(api: &A, error: &impl Fn(A::Fault) -> RpcError) {
    let destroy = |agent_id: &str| DestroyAgentParams { agent_id: agent_id.to_owned(), orphan: Some(true) };
    assert!(api.destroy_agent(&destroy("lead")).await.unwrap().success);
    assert!(!api.destroy_agent(&destroy("lead")).await.unwrap().success);
    let invalid = error(api.destroy_agent(&destroy("..")).await.unwrap_err());
    let text = "agent_id invalid: Invalid agent ID \"..\": contains forbidden pattern '..'";
    assert_eq!((invalid.code, invalid.message.as_str()), (-32602, text));
    let document = api.discover(&NoParams {}).await.unwrap();
    assert_eq!(document.0["info"]["title"], "nexus3");
    assert!(api.for_agent("helper").shutdown(&NoParams {}).await.unwrap().success);
    assert!(api.shutdown_server(&NoParams {}).await.unwrap().success);
    let late = error(api.create_agent(&CreateAgentParams::default()).await.unwrap_err());
    let data = late.data.as_ref().map(|data| data["retry_after_ms"].clone());
    assert_eq!((late.code, late.message.as_str()), (-32001, "Server shutting down"));
    assert_eq!(data, Some(250.into()));
}

fn assert_denied(error: RpcError, message: &str) {
    assert_eq!((error.code, error.message.as_str()), (-32602, message));
    assert_eq!(error.data.map(|data| data["kind"].clone()), Some("permission_denied".into()));
}
