//! Conversion of every record to its event: kinds agree, and secrets are omitted.

use agent::compaction::{CompactionMethod, CompactionPart};
use agent::journal::{AcceptedTurn, RestartPolicy};
use agent::outside::Timestamp;
use agent::permission::{Grantor, HostPattern, Level, Rule, RuleAction, RuleEntry, RuleScope};
use agent::{
    AgentId, Ending, Fault, FaultKind, Halt, MessageSource, PrincipalId, ToolCall, ToolOutcome, Usage,
};
use serde_json::{Value, json};

use super::*;

const DIGEST: [u8; 32] = [0xab; 32];

fn path(text: &str) -> FilePath {
    FilePath::resolve(text, &FilePath::root()).unwrap()
}

fn host(text: &str) -> HostPattern {
    HostPattern::parse(text).unwrap()
}

fn stored_permissions() -> StoredPermissions {
    let grant_request = StoredGrantRequest {
        disable_tools: vec!["b".into()],
        commands: Some(vec!["*".into()]),
        ..StoredGrantRequest::default()
    };
    StoredPermissions {
        preset: "worker".into(),
        level: Level::Sandboxed,
        budget: Budget::unlimited().with_limit(Resource::Tokens, Some(9)),
        may: StoredGrantRequest {
            tools: Some(vec!["t".into()]),
            disable_tools: vec!["a".into()],
            write_paths: Some(vec![path("/w")]),
            commands: Some(vec!["cargo".into()]),
            hosts: Some(vec![host("docs.rs"), host("10.0.0.1:8080")]),
            denied_hosts: vec![host("*.evil.com")],
            may_create: Some(Vec::new()),
        },
        may_grant: Some((None, grant_request)),
        rules: vec![rule_entry()],
    }
}

fn rule_entry() -> RuleEntry {
    RuleEntry {
        action: RuleAction::Allow,
        rule: Rule::parse("host:a.example").unwrap(),
        scope: RuleScope::Agent,
        grantor: Grantor::Agent(7),
    }
}

fn rule_json() -> Value {
    json!({ "action": "allow", "rule": "host:a.example", "scope": "agent", "granted_by": "serial:7" })
}

fn approval_records() -> Vec<(Record, Value)> {
    let request = |arguments: &str| {
        Record::ApprovalRequested(Box::new(ApprovalRequest {
            id: "a1".into(),
            turn: 2,
            index: 1,
            call_id: "c1".into(),
            tool: "cmd.exec".into(),
            arguments: arguments.into(),
            effects: vec!["run make in /w outside the sandbox".into()],
            reason: "it leaves the sandbox".into(),
            asked_at: Timestamp(0),
            expires_at: Timestamp(1_000_000),
        }))
    };
    let requested = |arguments: Value| {
        json!({
            "approval_id": "a1", "turn": 2, "call_id": "c1", "tool": "cmd.exec", "arguments": arguments,
            "effects": ["run make in /w outside the sandbox"], "reason": "it leaves the sandbox",
            "expires_at": "1970-01-01T00:00:01.000000Z",
        })
    };
    let answer = ApprovalAnswer {
        id: "a1".into(),
        turn: 2,
        index: 1,
        is_allowed: true,
        by: PrincipalId::Agent(AgentId::main()),
        grantor: Grantor::Agent(7),
        rule: Some(rule_entry()),
        note: Some("go on".into()),
    };
    let denied =
        ApprovalAnswer { is_allowed: false, by: PrincipalId::Auto, rule: None, note: None, ..answer.clone() };
    vec![
        (request(r#"{"command":"make"}"#), requested(json!({ "command": "make" }))),
        (request("{"), requested(json!("{"))),
        (
            Record::ApprovalAnswered(Box::new(answer)),
            json!({
                "approval_id": "a1", "turn": 2, "answer": "allow", "by": "agent:main", "rule": rule_json(),
                "note": "go on",
            }),
        ),
        (
            Record::ApprovalAnswered(Box::new(denied)),
            json!({ "approval_id": "a1", "turn": 2, "answer": "deny", "by": "auto" }),
        ),
    ]
}

fn agent_record() -> AgentRecord {
    AgentRecord {
        id: AgentId::main(),
        parent: Some(3),
        created_at: Timestamp(1_705_314_600_000_000),
        by: PrincipalId::Admin,
        system_prompt: Some("Be brief.".into()),
        cwd: path("/srv"),
        model: Some("echo/one".into()),
        capability_digest: DIGEST,
        on_restart: RestartPolicy::Mark,
        permissions: stored_permissions(),
        origin: Some("fork of a at 2".into()),
    }
}

fn end(outcome: TurnOutcome) -> TurnEnd {
    let usage = Some(Usage { input: 3, output: 2, cached: 1, ..Usage::default() });
    TurnEnd { outcome, content: "done".into(), usage, rounds: 2, halted: Some(Halt::IterationLimit) }
}

fn turn_ended_record(outcome: TurnOutcome) -> Record {
    Record::TurnEnded { turn: 2, request_id: RequestId::Number(5), end: Box::new(end(outcome)) }
}

/// At least one record of each kind, with the expected members of its event.
fn records() -> Vec<(Record, Value)> {
    let mut records = agent_records();
    records.extend(turn_records());
    records.extend(turn_end_records());
    records.extend(approval_records());
    records
}

fn agent_records() -> Vec<(Record, Value)> {
    let by = || PrincipalId::Admin;
    let permissions = json!({
        "preset": "worker", "permission_level": "SANDBOXED", "tools": ["t"], "disable_tools": ["a"],
        "allowed_write_paths": ["/w"], "allowed_commands": ["cargo"],
        "allowed_hosts": ["docs.rs", "10.0.0.1:8080"], "denied_hosts": ["*.evil.com"], "may_create": [],
        "may_grant": { "disable_tools": ["b"], "allowed_commands": ["*"] }, "rules": [rule_json()], "budget": { "tokens": 9 },
    });
    vec![
        (
            Record::Created(Box::new(agent_record())),
            json!({
                "by": "admin", "serial": 7, "parent_serial": 3, "created_at": "2024-01-15T10:30:00.000000Z",
                "system_prompt": "Be brief.", "cwd": "/srv", "model": "echo/one", "on_restart": "mark",
                "origin": "fork of a at 2", "permissions": permissions,
            }),
        ),
        (
            Record::PermissionsChanged { by: by(), permissions: Box::new(stored_permissions()) },
            json!({ "by": "admin", "permissions": permissions }),
        ),
        (Record::Renamed { by: by(), id: AgentId::main() }, json!({ "by": "admin", "new_agent_id": "main" })),
        (Record::Finished { by: by() }, json!({ "by": "admin" })),
        (Record::Destroyed { by: by() }, json!({ "by": "admin" })),
        (Record::RolledBack { by: by(), messages: 3 }, json!({ "by": "admin", "messages": 3 })),
        (
            Record::TurnUndone { turn: 2, by: by(), paths: vec![path("/srv/a")] },
            json!({ "turn": 2, "by": "admin", "paths": ["/srv/a"] }),
        ),
        (
            Record::Compacted(Box::new(CompactionRecord {
                turn: Some(2),
                by: PrincipalId::Auto,
                method: CompactionMethod::Dropped,
                messages_before: 8,
                tokens_before: 90,
                tokens_after: 30,
                parts: vec![CompactionPart::Retained { from: 5, to: 8 }],
            })),
            json!({
                "turn": 2, "by": "auto", "how": "dropped", "messages_before": 8, "messages_after": 3,
                "tokens_before": 90, "tokens_after": 30,
            }),
        ),
        (
            Record::Denied {
                principal: PrincipalId::Agent(AgentId::main()),
                action: "send".into(),
                rule: "identity".into(),
                text: "no".into(),
            },
            json!({ "principal": "agent:main", "action": "send", "rule": "identity", "text": "no" }),
        ),
        (Record::DaemonStarted { version: "0.1.0".into() }, json!({ "version": "0.1.0" })),
        (Record::DaemonStopped, json!({})),
    ]
}

fn turn_records() -> Vec<(Record, Value)> {
    let user = || Message::user("hi", MessageSource { kind: Some("rpc".into()), agent: None });
    let user_json =
        json!({ "role": "user", "content": "hi", "tool_call_id": null, "meta": { "source": "rpc" } });
    let call = ToolCall { id: "c1".into(), name: "x".into(), arguments: "{}".into() };
    let accepted = AcceptedTurn { turn: 2, request_id: RequestId::Text("r".into()), message: user() };
    vec![
        (
            Record::TurnAccepted(Box::new(accepted)),
            json!({ "turn": 2, "request_id": "r", "message": user_json }),
        ),
        (Record::TurnBegun { turn: 2 }, json!({ "turn": 2 })),
        (Record::MessageAdded(Box::new(user())), user_json.clone()),
        (
            Record::MessageAdded(Box::new(Message::assistant("", vec![call]))),
            json!({
                "role": "assistant", "content": "", "tool_call_id": null,
                "tool_calls": [{ "id": "c1", "name": "x", "arguments": "{}" }],
            }),
        ),
        (
            Record::MessageAdded(Box::new(Message::aborted("ha", Ending::Interrupted))),
            json!({ "role": "assistant", "content": "ha", "tool_call_id": null, "meta": { "interrupted": true } }),
        ),
        (Record::Steered { turn: 2, message: Box::new(user()) }, json!({ "turn": 2, "message": user_json })),
        (
            Record::CallBegun {
                turn: 2,
                index: 1,
                call_id: "c1".into(),
                tool: "x".into(),
                class: ToolClass::Once,
            },
            json!({ "turn": 2, "place": 1, "call_id": "c1", "tool": "x", "class": "once" }),
        ),
        (
            Record::CallDone { turn: 2, index: 1, outcome: ToolOutcome::Denied("no".into()) },
            json!({ "turn": 2, "place": 1, "outcome": "denied", "text": "no" }),
        ),
        (
            Record::TurnReopened { turn: 2, request_id: RequestId::Number(5), messages: 3 },
            json!({ "turn": 2, "request_id": 5, "messages": 3 }),
        ),
    ]
}

fn turn_end_records() -> Vec<(Record, Value)> {
    let event = |outcome: &str, extra: Value| {
        let mut all = json!({
            "turn": 2, "request_id": 5, "outcome": outcome, "content": "done", "rounds": 2,
            "halted": "iteration_limit", "usage": { "input_tokens": 3, "output_tokens": 2, "cached_tokens": 1 },
        });
        all.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        all
    };
    let fault = Fault::new(FaultKind::Model, "the model failed").caused_by("for the log alone");
    vec![
        (turn_ended_record(TurnOutcome::Completed), event("completed", json!({}))),
        (turn_ended_record(TurnOutcome::Cancelled), event("cancelled", json!({}))),
        (
            turn_ended_record(TurnOutcome::Failed(fault)),
            event("failed", json!({ "error": { "code": -32603, "message": "the model failed" } })),
        ),
        (
            turn_ended_record(TurnOutcome::Interrupted("the daemon stopped".into())),
            event("interrupted", json!({ "reason": "the daemon stopped" })),
        ),
    ]
}

fn event_json(record: Record) -> Value {
    let is_daemon = matches!(record, Record::DaemonStarted { .. } | Record::DaemonStopped);
    let (agent, agent_id) = if is_daemon { (0, None) } else { (7, Some(AgentId::main())) };
    let at = Timestamp(1_705_314_600_000_042);
    let entry = JournalEntry { sequence: 9, agent, agent_id, agent_sequence: 4, at, record };
    let Event::Journalled(event) = journal_event(&entry) else { panic!("not a journal event") };
    serde_json::to_value(event).unwrap()
}

#[test]
fn every_record_maps_to_its_event() {
    for (record, expected) in records() {
        let kind = record.kind();
        let mut all = expected;
        let agent_id = if kind.starts_with("daemon") { Value::Null } else { "main".into() };
        let head = json!({
            "sequence": 9, "agent_id": agent_id, "number": 4, "at": "2024-01-15T10:30:00.000042Z", "kind": kind,
        });
        all.as_object_mut().unwrap().extend(head.as_object().unwrap().clone());
        assert_eq!(event_json(record), all, "{kind}");
    }
}

#[test]
fn every_journal_event_kind_has_a_record() {
    use nexus3_protocol::events::EventKind;
    let kinds: Vec<_> = records().iter().map(|(record, _)| record.kind()).collect();
    for kind in EventKind::ALL.iter().filter(|kind| kind.is_journalled()) {
        assert!(kinds.contains(&kind.name()), "no record has the kind {}", kind.name());
    }
}

#[test]
fn capability_digest_is_not_in_events() {
    let text = event_json(Record::Created(Box::new(agent_record()))).to_string();
    for spelling in ["abab", "ABAB", "171", "q6ur", "capability"] {
        assert!(!text.contains(spelling), "{spelling} is in {text}");
    }
}
