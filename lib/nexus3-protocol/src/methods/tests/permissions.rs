//! Exact JSON of the methods about an agent's position, permissions and budget.

use super::shapes::{SUMMARY, check_parses, check_round_trip, summary};
use super::*;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn resource_usage() -> ResourceUsageView {
    ResourceUsageView { resource: "turns".to_owned(), limit: Some(5), used: 2, reserved: 1, left: Some(2) }
}

const RESOURCE_USAGE: &str = r#"{"resource":"turns","limit":5,"used":2,"reserved":1,"left":2}"#;

#[test]
fn get_agent_has_the_summary_and_eight_more_members() {
    let output = AgentOutput {
        agent: summary(),
        depth: 2,
        ancestors: names(&["p", "g"]),
        children: names(&["c"]),
        tools: names(&["fs.read_file"]),
        working: true,
        queued: 3,
        halted: None,
        budget: vec![resource_usage()],
    };
    let text = |halted: &str| {
        format!(
            r#"{{"agent":{SUMMARY},"depth":2,"ancestors":["p","g"],"children":["c"],"tools":["fs.read_file"],"working":true,"queued":3,"halted":{halted},"budget":[{RESOURCE_USAGE}]}}"#
        )
    };
    check_round_trip(output.clone(), &text("null"));
    check_round_trip(AgentOutput { halted: Some("budget".to_owned()), ..output }, &text(r#""budget""#));
}

#[test]
fn list_children_returns_the_parent_id() {
    let output = ChildrenOutput { agent_id: "p".to_owned(), children: vec![summary()], damaged: Vec::new() };
    check_round_trip(output, &format!(r#"{{"agent_id":"p","children":[{SUMMARY}]}}"#));
    let none = ChildrenOutput { agent_id: "p".to_owned(), children: Vec::new(), damaged: Vec::new() };
    check_round_trip(none, r#"{"agent_id":"p","children":[]}"#);
}

#[test]
fn set_permissions_params_are_all_optional() {
    check_round_trip(SetPermissionsParams::default(), "{}");
    let nulls = concat!(
        r#"{"preset":null,"tools":null,"disable_tools":null,"allowed_write_paths":null,"#,
        r#""allowed_commands":null,"allowed_hosts":null,"denied_hosts":null,"budget":null,"#,
        r#""unlimited":null}"#
    );
    check_parses(nulls, SetPermissionsParams::default());
    let params = SetPermissionsParams {
        preset: Some("worker".to_owned()),
        tools: Some(names(&["echo"])),
        disable_tools: Some(Vec::new()),
        allowed_write_paths: Some(names(&["/w"])),
        allowed_commands: Some(names(&["cargo"])),
        allowed_hosts: Some(names(&["docs.rs"])),
        denied_hosts: Some(Vec::new()),
        budget: Some(BudgetParams { tokens: Some(u64::MAX), ..BudgetParams::default() }),
        unlimited: Some(names(&["turns"])),
        ..SetPermissionsParams::default()
    };
    check_round_trip(
        params,
        concat!(
            r#"{"preset":"worker","tools":["echo"],"disable_tools":[],"allowed_write_paths":["/w"],"#,
            r#""allowed_commands":["cargo"],"allowed_hosts":["docs.rs"],"denied_hosts":[],"#,
            r#""budget":{"tokens":18446744073709551615},"unlimited":["turns"]}"#
        ),
    );
}

#[test]
fn name_set_has_either_only_or_all_but() {
    check_round_trip(NameSetView { only: Some(Vec::new()), all_but: None }, r#"{"only":[]}"#);
    check_round_trip(NameSetView { only: None, all_but: Some(names(&["a"])) }, r#"{"all_but":["a"]}"#);
    let hosts = HostSetView { only: Some(names(&["*"])), all_but: None, denied: names(&["x.org"]) };
    check_round_trip(hosts, r#"{"only":["*"],"denied":["x.org"]}"#);
}

#[test]
fn resource_without_a_limit_has_null_limits() {
    check_round_trip(resource_usage(), RESOURCE_USAGE);
    let none = ResourceUsageView { limit: None, left: None, ..resource_usage() };
    check_round_trip(none, r#"{"resource":"turns","limit":null,"used":2,"reserved":1,"left":null}"#);
}

#[test]
fn permissions_have_grants_and_limits_with_reasons() {
    let any = || NameSetView { only: None, all_but: Some(Vec::new()) };
    let grant = || GrantView {
        tools: any(),
        read: names(&["/"]),
        write: Vec::new(),
        blocked: names(&["/b"]),
        commands: NameSetView { only: Some(Vec::new()), all_but: None },
        unsandboxed: false,
        hosts: HostSetView { only: None, all_but: Some(Vec::new()), denied: Vec::new() },
        create: any(),
        targets: "parent agent".to_owned(),
    };
    let limit = LimitView {
        limit: "write".to_owned(),
        allows: "nowhere".to_owned(),
        set_by: "p".to_owned(),
        reason: "preset 'worker'".to_owned(),
    };
    let output = PermissionsOutput {
        agent_id: "c".to_owned(),
        preset: "worker".to_owned(),
        permission_level: "SANDBOXED".to_owned(),
        ancestors: names(&["p"]),
        rules: vec![RuleView {
            action: "ask".to_owned(),
            rule: "host:*".to_owned(),
            scope: "subtree".to_owned(),
            granted_by: "creator".to_owned(),
        }],
        may: grant(),
        may_grant: grant(),
        limits: vec![limit],
        grant_limits: Vec::new(),
        budget: vec![resource_usage()],
    };
    let grant = concat!(
        r#"{"tools":{"all_but":[]},"read":["/"],"write":[],"blocked":["/b"],"commands":{"only":[]},"#,
        r#""unsandboxed":false,"hosts":{"all_but":[]},"create":{"all_but":[]},"targets":"parent agent"}"#
    );
    let limit = r#"{"limit":"write","allows":"nowhere","set_by":"p","reason":"preset 'worker'"}"#;
    let text = format!(
        r#"{{"agent_id":"c","preset":"worker","permission_level":"SANDBOXED","ancestors":["p"],"rules":[{{"action":"ask","rule":"host:*","scope":"subtree","granted_by":"creator"}}],"may":{grant},"may_grant":{grant},"limits":[{limit}],"grant_limits":[],"budget":[{RESOURCE_USAGE}]}}"#
    );
    check_round_trip(output, &text);
}

#[test]
fn approvals_are_listed_and_answered() {
    let view = ApprovalView {
        approval_id: "a1".to_owned(),
        agent_id: "c".to_owned(),
        ancestors: names(&["p"]),
        tool: "cmd.exec".to_owned(),
        arguments: serde_json::json!({ "command": "make" }),
        effects: names(&["run make in /w"]),
        reason: "why".to_owned(),
        asked_at: "2024-01-15T10:30:00.000000Z".to_owned(),
        expires_at: "2024-01-15T10:40:00.000000Z".to_owned(),
    };
    check_round_trip(
        ListApprovalsOutput { approvals: vec![view] },
        concat!(
            r#"{"approvals":[{"approval_id":"a1","agent_id":"c","ancestors":["p"],"tool":"cmd.exec","#,
            r#""arguments":{"command":"make"},"effects":["run make in /w"],"reason":"why","#,
            r#""asked_at":"2024-01-15T10:30:00.000000Z","expires_at":"2024-01-15T10:40:00.000000Z"}]}"#,
        ),
    );
    check_parses("{}", ListApprovalsParams::default());
    check_round_trip(
        AnswerApprovalParams {
            approval_id: "a1".to_owned(),
            answer: ApprovalDecision::Allow,
            scope: Some(ApprovalScope::Subtree),
            rule: Some("run:make".to_owned()),
            note: None,
        },
        r#"{"approval_id":"a1","answer":"allow","scope":"subtree","rule":"run:make"}"#,
    );
    let output =
        AnswerApprovalOutput { approval_id: "a1".to_owned(), answer: ApprovalDecision::Deny, rule: None };
    check_round_trip(output, r#"{"approval_id":"a1","answer":"deny"}"#);
    for unknown in ["maybe", "Allow", ""] {
        let text = format!(r#"{{"approval_id":"a1","answer":"{unknown}"}}"#);
        assert!(serde_json::from_str::<AnswerApprovalParams>(&text).is_err(), "{unknown}");
    }
}
