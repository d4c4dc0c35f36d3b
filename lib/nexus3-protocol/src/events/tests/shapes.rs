//! Exact JSON of every event. A change here is a change of the wire format.

use serde_json::{Map, Value};

use super::*;
use crate::methods::{
    ApprovalDecision, BudgetParams, MayGrantParams, OnRestart, RequestIdParam, RuleView, ToolCallView,
    UsageOutput,
};

fn text(text: &str) -> String {
    text.to_owned()
}

fn request_id() -> RequestIdParam {
    RequestIdParam::Text("r".to_owned())
}

fn message() -> MessageEvent {
    MessageEvent {
        role: text("user"),
        content: text("hi"),
        images: Vec::new(),
        tool_calls: Vec::new(),
        tool_call_id: None,
        meta: Some(Map::from_iter([("source".to_owned(), Value::from("rpc"))])),
    }
}

const MESSAGE: &str = r#"{"role":"user","content":"hi","tool_call_id":null,"meta":{"source":"rpc"}}"#;

fn permissions() -> PermissionsView {
    PermissionsView {
        preset: text("worker"),
        permission_level: text("SANDBOXED"),
        tools: Some(vec![text("echo")]),
        disable_tools: vec![text("fs.read_file")],
        allowed_write_paths: Some(vec![text("/w")]),
        allowed_commands: Some(vec![text("cargo")]),
        allowed_hosts: Some(vec![text("docs.rs")]),
        denied_hosts: vec![text("x.org")],
        may_create: Some(Vec::new()),
        may_grant: Some(MayGrantParams { preset: Some(text("worker")), ..MayGrantParams::default() }),
        rules: vec![rule()],
        budget: BudgetParams { turns: Some(5), ..BudgetParams::default() },
    }
}

fn rule() -> RuleView {
    RuleView {
        action: text("allow"),
        rule: text("run:cargo test"),
        scope: text("subtree"),
        granted_by: text("serial:7"),
    }
}

const RULE: &str = r#"{"action":"allow","rule":"run:cargo test","scope":"subtree","granted_by":"serial:7"}"#;

const PERMISSIONS: &str = concat!(
    r#"{"preset":"worker","permission_level":"SANDBOXED","tools":["echo"],"disable_tools":["fs.read_file"],"#,
    r#""allowed_write_paths":["/w"],"allowed_commands":["cargo"],"allowed_hosts":["docs.rs"],"#,
    r#""denied_hosts":["x.org"],"may_create":[],"may_grant":{"preset":"worker"},"#,
    r#""rules":[{"action":"allow","rule":"run:cargo test","scope":"subtree","granted_by":"serial:7"}],"budget":{"turns":5}}"#,
);

fn journal_event(record: JournalRecord, members: &str) -> (Event, String) {
    let name = record.kind().name();
    let agent_id = if name.starts_with("daemon") { None } else { Some(text("a")) };
    let agent = agent_id.as_ref().map_or("null", |_| r#""a""#);
    let event =
        JournalEvent { sequence: 9, agent_id, number: 4, at: text("2024-01-15T10:30:00.000042Z"), record };
    let head = format!(r#"{{"sequence":9,"agent_id":{agent},"number":4,"at":"2024-01-15T10:30:00.000042Z""#);
    let comma = if members.is_empty() { "" } else { "," };
    (Event::Journalled(Box::new(event)), format!(r#"{head},"kind":"{name}"{comma}{members}}}"#))
}

fn live(event: LiveEvent, members: &str) -> (Event, String) {
    let name = event.kind().name();
    let comma = if members.is_empty() { "" } else { "," };
    (Event::Live(event), format!(r#"{{"kind":"{name}","journalled":false{comma}{members}}}"#))
}

/// At least one event of each kind, with its JSON.
pub(super) fn all() -> Vec<(Event, String)> {
    let mut all = agents();
    all.extend(turns());
    all.extend(ends());
    all.extend(others());
    all
}

fn agents() -> Vec<(Event, String)> {
    let by = || text("admin");
    let created = AgentCreated {
        by: by(),
        serial: 7,
        parent_serial: Some(3),
        created_at: text("2024-01-15T10:30:00.000000Z"),
        system_prompt: Some(text("Be brief.")),
        cwd: text("/srv"),
        model: None,
        on_restart: OnRestart::Mark,
        origin: Some(text("fork of b")),
        permissions: permissions(),
    };
    let created_rest = format!(
        "{}{PERMISSIONS}",
        concat!(
            r#""by":"admin","serial":7,"parent_serial":3,"created_at":"2024-01-15T10:30:00.000000Z","#,
            r#""system_prompt":"Be brief.","cwd":"/srv","model":null,"on_restart":"mark","origin":"fork of b","permissions":"#,
        )
    );
    let changed = PermissionsChanged { by: by(), permissions: permissions() };
    let renamed = AgentRenamed { by: by(), new_agent_id: text("b") };
    let compacted = ContextCompacted {
        turn: Some(3),
        by: text("auto"),
        method: text("summary"),
        messages_before: 9,
        messages_after: 4,
        tokens_before: 900,
        tokens_after: 200,
        note: Some(text("so far")),
    };
    vec![
        journal_event(JournalRecord::AgentCreated(created), &created_rest),
        journal_event(
            JournalRecord::PermissionsChanged(changed),
            &format!(r#""by":"admin","permissions":{PERMISSIONS}"#),
        ),
        journal_event(JournalRecord::AgentRenamed(renamed), r#""by":"admin","new_agent_id":"b""#),
        journal_event(JournalRecord::AgentFinished(AgentFinished { by: by() }), r#""by":"admin""#),
        journal_event(JournalRecord::AgentDestroyed(AgentDestroyed { by: by() }), r#""by":"admin""#),
        journal_event(
            JournalRecord::RolledBack(RolledBack { by: by(), messages: 2 }),
            r#""by":"admin","messages":2"#,
        ),
        journal_event(
            JournalRecord::TurnUndone(TurnUndone { turn: 3, by: by(), paths: vec!["/srv/a".to_owned()] }),
            r#""turn":3,"by":"admin","paths":["/srv/a"]"#,
        ),
        journal_event(
            JournalRecord::ContextCompacted(compacted),
            concat!(
                r#""turn":3,"by":"auto","how":"summary","messages_before":9,"messages_after":4,"#,
                r#""tokens_before":900,"tokens_after":200,"note":"so far""#
            ),
        ),
    ]
}

fn turns() -> Vec<(Event, String)> {
    let accepted = TurnAccepted { turn: 2, request_id: request_id(), message: message() };
    let call = ToolCallView { id: text("c1"), name: text("fs.read_file"), arguments: text("{}") };
    let response = MessageEvent {
        role: text("assistant"),
        tool_calls: vec![call],
        meta: None,
        content: String::new(),
        ..message()
    };
    let result = MessageEvent { role: text("tool"), tool_call_id: Some(text("c1")), meta: None, ..message() };
    let steered = Steered { turn: 2, message: message() };
    let begun =
        ToolBegun { turn: 2, index: 0, call_id: text("c1"), tool: text("fs.read_file"), class: text("pure") };
    let done = ToolDone { turn: 2, index: 0, outcome: text("done"), text: text("notes") };
    let requested = ApprovalRequested {
        approval_id: text("a1"),
        turn: 2,
        call_id: text("c1"),
        tool: text("cmd.exec"),
        arguments: serde_json::json!({ "command": "make" }),
        effects: vec![text("run make in /w")],
        reason: text("rule"),
        expires_at: text("2024-01-15T10:30:00.000000Z"),
    };
    let answered = ApprovalAnswered {
        approval_id: text("a1"),
        turn: 2,
        answer: ApprovalDecision::Deny,
        by: text("auto"),
        rule: Some(rule()),
        note: None,
    };
    let reopened = TurnReopened { turn: 2, request_id: RequestIdParam::Number(5), messages: 3 };
    vec![
        journal_event(
            JournalRecord::TurnAccepted(accepted),
            &format!(r#""turn":2,"request_id":"r","message":{MESSAGE}"#),
        ),
        journal_event(JournalRecord::TurnBegun(TurnBegun { turn: 2 }), r#""turn":2"#),
        journal_event(JournalRecord::MessageEvent(message()), &MESSAGE[1..MESSAGE.len() - 1]),
        journal_event(
            JournalRecord::MessageEvent(response),
            concat!(
                r#""role":"assistant","content":"","tool_calls":[{"id":"c1","name":"fs.read_file","arguments":"{}"}],"#,
                r#""tool_call_id":null"#,
            ),
        ),
        journal_event(
            JournalRecord::MessageEvent(result),
            r#""role":"tool","content":"hi","tool_call_id":"c1""#,
        ),
        journal_event(JournalRecord::Steered(steered), &format!(r#""turn":2,"message":{MESSAGE}"#)),
        journal_event(
            JournalRecord::ToolBegun(begun),
            r#""turn":2,"place":0,"call_id":"c1","tool":"fs.read_file","class":"pure""#,
        ),
        journal_event(JournalRecord::ToolDone(done), r#""turn":2,"place":0,"outcome":"done","text":"notes""#),
        journal_event(
            JournalRecord::ApprovalRequested(requested),
            concat!(
                r#""approval_id":"a1","turn":2,"call_id":"c1","tool":"cmd.exec","arguments":{"command":"make"},"#,
                r#""effects":["run make in /w"],"reason":"rule","expires_at":"2024-01-15T10:30:00.000000Z""#,
            ),
        ),
        journal_event(
            JournalRecord::ApprovalAnswered(answered),
            &format!(r#""approval_id":"a1","turn":2,"answer":"deny","by":"auto","rule":{RULE}"#),
        ),
        journal_event(JournalRecord::TurnReopened(reopened), r#""turn":2,"request_id":5,"messages":3"#),
    ]
}

fn ends() -> Vec<(Event, String)> {
    let completed = TurnEnded {
        turn: 2,
        request_id: request_id(),
        outcome: text("completed"),
        content: text("done"),
        rounds: 1,
        halted: Some(text("budget")),
        usage: Some(UsageOutput {
            input_tokens: 3,
            output_tokens: 2,
            cached_tokens: 1,
            estimated_tokens: None,
        }),
        error: None,
        reason: None,
    };
    let bare = TurnEnded { halted: None, usage: None, ..completed.clone() };
    let error = Some(TurnError { code: -32603, message: text("the model failed") });
    let failed = TurnEnded { outcome: text("failed"), error, ..bare.clone() };
    let reason = Some(text("the daemon stopped"));
    let interrupted = TurnEnded { outcome: text("interrupted"), reason, ..bare };
    let head = |outcome: &str| {
        format!(r#""turn":2,"request_id":"r","outcome":"{outcome}","content":"done","rounds":1"#)
    };
    let usage = r#""usage":{"input_tokens":3,"output_tokens":2,"cached_tokens":1}"#;
    vec![
        journal_event(
            JournalRecord::TurnEnded(completed),
            &format!(r#"{},"halted":"budget",{usage}"#, head("completed")),
        ),
        journal_event(
            JournalRecord::TurnEnded(failed),
            &format!(r#"{},"error":{{"code":-32603,"message":"the model failed"}}"#, head("failed")),
        ),
        journal_event(
            JournalRecord::TurnEnded(interrupted),
            &format!(r#"{},"reason":"the daemon stopped""#, head("interrupted")),
        ),
    ]
}

fn others() -> Vec<(Event, String)> {
    let denied =
        Denied { principal: text("agent:a"), action: text("send"), rule: text("identity"), text: text("no") };
    let journalled = NotJournalled;
    let text_delta =
        TextDelta { journalled, agent_id: text("a"), request_id: request_id(), turn: 2, text: text("hel") };
    let reasoning_delta = ReasoningDelta {
        journalled,
        agent_id: text("a"),
        request_id: request_id(),
        turn: 2,
        text: text("hm"),
    };
    let output_delta = ToolOutputDelta {
        journalled,
        agent_id: text("a"),
        request_id: request_id(),
        turn: 2,
        call_id: text("c1"),
        stream: text("stderr"),
        text: text("warning\n"),
    };
    let delta = |text: &str| format!(r#""agent_id":"a","request_id":"r","turn":2,"text":"{text}""#);
    vec![
        journal_event(
            JournalRecord::Denied(denied),
            r#""principal":"agent:a","action":"send","rule":"identity","text":"no""#,
        ),
        journal_event(
            JournalRecord::DaemonStarted(DaemonStarted { version: text("0.1.0") }),
            r#""version":"0.1.0""#,
        ),
        journal_event(JournalRecord::DaemonStopped(DaemonStopped {}), ""),
        live(LiveEvent::TextDelta(text_delta), &delta("hel")),
        live(LiveEvent::ReasoningDelta(reasoning_delta), &delta("hm")),
        live(
            LiveEvent::ToolOutputDelta(output_delta),
            r#""agent_id":"a","request_id":"r","turn":2,"call_id":"c1","stream":"stderr","text":"warning\n""#,
        ),
        live(LiveEvent::Gap(Gap { journalled, first: 5, last: 9 }), r#""first":5,"last":9"#),
        live(LiveEvent::Lagged(Lagged { journalled }), ""),
        // A journalled event comes last, so that it sets the last event id of the stream.
        journal_event(JournalRecord::DaemonStopped(DaemonStopped {}), ""),
    ]
}

#[test]
fn every_kind_has_its_exact_json() {
    let seen: HashSet<_> = all().iter().map(|(event, _)| event.kind()).collect();
    assert_eq!(seen.len(), EventKind::ALL.len());
    for (event, json) in all() {
        let written = match &event {
            Event::Journalled(event) => serde_json::to_string(event),
            Event::Live(event) => serde_json::to_string(event),
        };
        assert_eq!(written.unwrap(), json);
        assert_eq!(Event::decode(event.kind().name(), &json).unwrap(), Some(event));
    }
}
