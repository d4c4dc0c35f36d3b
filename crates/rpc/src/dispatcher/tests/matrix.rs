//! Authorization matrix: every credential, times every method, times every target.

use nexus3_protocol::Method;

use super::*;

/// All targets, named by their relation to `me`. There is no agent `missing`.
const TARGETS: [&str; 7] = ["me", "child", "grandchild", "parent", "sibling", "stranger", "missing"];

/// The credential of a caller.
#[derive(Debug, Clone, Copy, PartialEq)]
enum CredentialCase {
    Admin,
    /// The daemon's token, with `me` in the header.
    ActingAs,
    /// The capability token of `me`.
    Capability,
    /// The capability token of `me`, with `me` in the header.
    CapabilityAndOwnName,
    /// The capability token of `me`, with `sibling` in the header.
    CapabilityAndOtherName,
    /// The capability token of an earlier `me` that was destroyed.
    RevokedCapability,
}

const CREDENTIAL_CASES: [CredentialCase; 6] = [
    CredentialCase::Admin,
    CredentialCase::ActingAs,
    CredentialCase::Capability,
    CredentialCase::CapabilityAndOwnName,
    CredentialCase::CapabilityAndOtherName,
    CredentialCase::RevokedCapability,
];

/// Expected outcome of a call.
#[derive(Debug, PartialEq)]
enum Outcome {
    Allowed,
    Denied(String),
    /// The parameters are invalid.
    Invalid(&'static str),
    /// The target does not exist.
    NoTarget,
}

/// Creates an agent that may create children, and returns its capability token.
async fn create_trusted_agent(fixture: &Fixture, name: &str, parent: Option<&str>) -> String {
    let id = |name: &str| AgentId::parse(name).unwrap();
    let permissions = PermissionSpec {
        preset: Some("trusted".to_owned()),
        may_create: Some(["trusted", "sandboxed"].map(str::to_owned).into()),
        ..PermissionSpec::default()
    };
    let (name, parent) = (NameSpec::Given(id(name)), parent.map(id));
    let spec = AgentSpec { name, parent, permissions, ..AgentSpec::default() };
    fixture.pool.create(spec, Initiator::Admin).await.unwrap().capability.reveal().to_owned()
}

/// Creates parent → me → child → grandchild; parent → sibling; stranger; and the caller.
async fn tree(credential: CredentialCase) -> (Fixture, Caller) {
    let fixture = Fixture::new().await;
    create_trusted_agent(&fixture, "parent", None).await;
    let revoked = create_trusted_agent(&fixture, "me", Some("parent")).await;
    let revoked = fixture.dispatcher.capability_caller(revoked.as_bytes()).unwrap();
    fixture.call_ok("/", "destroy_agent", r#"{"agent_id":"me"}"#).await;
    let token = create_trusted_agent(&fixture, "me", Some("parent")).await;
    create_trusted_agent(&fixture, "child", Some("me")).await;
    create_trusted_agent(&fixture, "grandchild", Some("child")).await;
    create_trusted_agent(&fixture, "sibling", Some("parent")).await;
    create_trusted_agent(&fixture, "stranger", None).await;
    let own = fixture.dispatcher.capability_caller(token.as_bytes()).unwrap();
    let caller = match credential {
        CredentialCase::Admin => Caller::admin(),
        CredentialCase::ActingAs => Caller::admin().acting_as("me"),
        CredentialCase::Capability => own,
        CredentialCase::CapabilityAndOwnName => own.acting_as("me"),
        CredentialCase::CapabilityAndOtherName => own.acting_as("sibling"),
        CredentialCase::RevokedCapability => revoked,
    };
    (fixture, caller)
}

/// Minimal parameters of `import_agent`.
pub(super) const MINIMAL_IMPORT: &str = concat!(
    r#"{"session":{"agent_id":"new","created_at":"2024-01-15T10:30:00","modified_at":"2024-01-15T10:30:00","#,
    r#""messages":[],"system_prompt":"","working_directory":"/","permission_level":"sandboxed"}}"#
);

/// What an agent may do with a method. The table below is written out by hand: it must not follow from the access rules
/// of the method list, which it checks, and a new method needs a row.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Rule {
    /// Call it; the result shows only its subtree.
    Call,
    /// Call it with this tool, which agents have only if it is named; the result shows only its descendants.
    CallWith(&'static str),
    /// Nothing: only an admin calls it.
    Nothing,
    /// Create its own children.
    CreateChildren,
    /// Destroy itself and its descendants.
    Destroy,
    /// Call it on its descendants with this tool, not on itself.
    OnDescendants(&'static str),
    /// Call it on itself, and on its descendants with this tool.
    OnSelfAndDescendants(&'static str),
}

fn rule(method: Method) -> Rule {
    match method {
        Method::CreateAgent => Rule::CreateChildren,
        Method::DestroyAgent => Rule::Destroy,
        Method::ListAgents => Rule::Call,
        Method::ListSessions => Rule::Call,
        Method::ForkAgent => Rule::OnDescendants("agent_create"),
        Method::RollbackAgent => Rule::OnDescendants("agent_send"),
        Method::UndoTurn => Rule::OnDescendants("agent_send"),
        Method::RenameAgent => Rule::OnDescendants("agent_create"),
        Method::ExportAgent => Rule::OnDescendants("agent_status"),
        Method::ImportAgent => Rule::Nothing,
        Method::ListApprovals => Rule::CallWith("approvals_list"),
        Method::AnswerApproval => Rule::CallWith("approvals_answer"),
        Method::ShutdownServer => Rule::Nothing,
        Method::Discover => Rule::Call,
        Method::Send => Rule::OnSelfAndDescendants("agent_send"),
        Method::Cancel => Rule::OnSelfAndDescendants("agent_cancel"),
        Method::Steer => Rule::OnSelfAndDescendants("agent_send"),
        Method::Compact => Rule::OnSelfAndDescendants("agent_send"),
        Method::Shutdown => Rule::OnSelfAndDescendants("agent_cancel"),
        Method::GetTokens => Rule::OnSelfAndDescendants("agent_status"),
        Method::GetContext => Rule::OnSelfAndDescendants("agent_status"),
        Method::GetMessages => Rule::OnSelfAndDescendants("agent_status"),
        Method::GetAgent => Rule::OnSelfAndDescendants("agent_status"),
        Method::ListChildren => Rule::OnSelfAndDescendants("agent_list"),
        Method::GetPermissions => Rule::OnSelfAndDescendants("agent_status"),
        Method::SetPermissions => Rule::OnDescendants("agent_create"),
    }
}

/// Returns the door and the parameters to call a method on a target.
fn call_params(method: Method, target: &'static str) -> (&'static str, String) {
    let params = match method {
        Method::Send => r#"{"content":"hi"}"#.to_owned(),
        Method::Steer => r#"{"content":"left"}"#.to_owned(),
        Method::Cancel => r#"{"request_id":1}"#.to_owned(),
        Method::CreateAgent => format!(r#"{{"agent_id":"new","parent_agent_id":"{target}"}}"#),
        Method::DestroyAgent | Method::ExportAgent | Method::UndoTurn => {
            format!(r#"{{"agent_id":"{target}"}}"#)
        }
        Method::ForkAgent | Method::RenameAgent => {
            format!(r#"{{"agent_id":"{target}","new_agent_id":"new"}}"#)
        }
        Method::AnswerApproval => r#"{"approval_id":"none","answer":"deny"}"#.to_owned(),
        Method::RollbackAgent => format!(r#"{{"agent_id":"{target}","messages":0}}"#),
        Method::ImportAgent => MINIMAL_IMPORT.to_owned(),
        Method::SetPermissions => r#"{"disable_tools":["fs.read_file"]}"#.to_owned(),
        _ => "{}".to_owned(),
    };
    (if method.door() == Door::Daemon { "/" } else { target }, params)
}

fn expected(credential: CredentialCase, method: Method, target: &'static str) -> Outcome {
    if credential == CredentialCase::Admin && method.door() == Door::Agent && target == "missing" {
        return Outcome::NoTarget;
    }
    match credential {
        CredentialCase::CapabilityAndOtherName => {
            denial("X-Nexus-Agent does not match the agent of the capability token")
        }
        CredentialCase::RevokedCapability => denial("Invalid API key"),
        CredentialCase::Admin => expected_for_admin(method, target),
        CredentialCase::ActingAs | CredentialCase::Capability | CredentialCase::CapabilityAndOwnName => {
            expected_for_agent(method, target)
        }
    }
}

/// The refusal of an authorized undo.
const NOTHING_TO_UNDO: &str = "no turn changed files with file tools";

fn expected_for_admin(method: Method, target: &str) -> Outcome {
    match rule(method) {
        Rule::CreateChildren if target == "missing" => Outcome::Invalid("Parent agent not found: missing"),
        Rule::OnDescendants(_) if target == "missing" => Outcome::Invalid("Agent not found: missing"),
        Rule::CallWith("approvals_answer") => Outcome::Invalid("Approval not found: none"),
        _ if method == Method::UndoTurn => Outcome::Invalid(NOTHING_TO_UNDO),
        _ => Outcome::Allowed,
    }
}

fn expected_for_agent(method: Method, target: &str) -> Outcome {
    let (name, is_self) = (method.name(), target == "me");
    let is_descendant = ["child", "grandchild"].contains(&target);
    match rule(method) {
        Rule::OnDescendants(_) if method == Method::ForkAgent && target == "grandchild" => {
            denial("Agent 'me' may fork only its own children")
        }
        Rule::OnDescendants(_) if method == Method::UndoTurn && is_descendant => {
            Outcome::Invalid(NOTHING_TO_UNDO)
        }
        Rule::Call => Outcome::Allowed,
        Rule::CallWith(tool) => denial(&format!(
            "Tool '{tool}' is disabled by permission policy; add it to tools of the agent or its preset"
        )),
        Rule::CreateChildren if is_self => Outcome::Allowed,
        Rule::Destroy if is_self || is_descendant => Outcome::Allowed,
        Rule::OnDescendants(_) if is_descendant => Outcome::Allowed,
        Rule::OnSelfAndDescendants(_) if is_self || is_descendant => Outcome::Allowed,
        Rule::Nothing => denial(&format!("Agent 'me' is not authorized to call {name}")),
        Rule::CreateChildren => denial("Cannot create agent: requester does not match the parent agent"),
        Rule::Destroy => denial(&format!("Agent 'me' is not authorized to destroy '{target}'")),
        Rule::OnDescendants(_) | Rule::OnSelfAndDescendants(_) => {
            denial(&format!("Agent 'me' is not authorized to call {name} on '{target}'"))
        }
    }
}

fn denial(text: &str) -> Outcome {
    Outcome::Denied(text.to_owned())
}

/// Returns the observable state of all agents, to detect side effects.
async fn observable_state(fixture: &Fixture) -> Vec<Value> {
    let mut state = vec![fixture.call_ok("/", "list_agents", "{}").await];
    for name in fixture.agent_names().await {
        state.push(fixture.call_ok(&name, "get_permissions", "{}").await);
    }
    state
}

async fn check(credential: CredentialCase, method: Method, target: &'static str) {
    let (fixture, caller) = tree(credential).await;
    let ((door, params), case) = (call_params(method, target), (credential, method, target));
    let expected = expected(credential, method, target);
    if door != "/" && fixture.dispatcher.agent_target(door, &caller).is_err() {
        assert_eq!(expected, Outcome::NoTarget, "{case:?}");
        return;
    }
    let before = observable_state(&fixture).await;
    let response = fixture.call_as(&caller, door, &request(method.name(), &params)).await;
    match expected {
        Outcome::Allowed => assert!(response.1.contains(r#""result":"#), "{case:?}: {response:?}"),
        Outcome::Denied(text) => assert_eq!(response, denied(&text), "{case:?}"),
        Outcome::Invalid(text) => assert_eq!(response, error(-32602, text), "{case:?}"),
        Outcome::NoTarget => panic!("{case:?}: the target exists"),
    }
    if response.1.contains(r#""error":"#) {
        assert_eq!(observable_state(&fixture).await, before, "{case:?}: a denied call has no effect");
        assert!(fixture.pool.stop_requested().now_or_never().is_none(), "{case:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn authorization_matrix_holds_for_every_case() {
    for credential in CREDENTIAL_CASES {
        for &method in Method::ALL {
            for target in TARGETS {
                check(credential, method, target).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn agent_reaches_descendants_only_with_the_required_tool() {
    let tools = ["agent_send", "agent_cancel", "agent_create", "agent_list", "agent_status", "agent_destroy"];
    for disabled in tools {
        for &method in Method::ALL {
            let (Rule::OnDescendants(required) | Rule::OnSelfAndDescendants(required)) = rule(method) else {
                continue;
            };
            let targets = match method {
                // Both create the agent `new`, so they are called once; a fork needs a child.
                Method::ForkAgent | Method::RenameAgent => &["child"][..],
                _ => &["child", "grandchild"],
            };
            let (fixture, caller) = tree(CredentialCase::Capability).await;
            fixture.call_ok("me", "set_permissions", &format!(r#"{{"disable_tools":["{disabled}"]}}"#)).await;
            for target in targets {
                let (door, params) = call_params(method, target);
                let response = fixture.call_as(&caller, door, &request(method.name(), &params)).await;
                if required == disabled {
                    let text = format!(
                        "Tool '{disabled}' is disabled by permission policy; remove it from disable_tools of the agent or \
                         its preset"
                    );
                    assert_eq!(response, denied(&text), "{} on {target}", method.name());
                } else {
                    assert!(
                        response.1.contains(r#""result":"#) || response == error(-32602, NOTHING_TO_UNDO),
                        "{} without {disabled}: {response:?}",
                        method.name()
                    );
                }
            }
            if rule(method) == Rule::OnSelfAndDescendants(required) {
                let (door, params) = call_params(method, "me");
                let (_, own) = fixture.call_as(&caller, door, &request(method.name(), &params)).await;
                assert!(own.contains(r#""result":"#), "calls on itself need no tool: {own}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn agent_reaches_only_targets_in_its_grant() {
    let fixture = Fixture::new().await;
    fixture.create_agent("me", "trusted", None).await;
    fixture.create_agent("child", "sandboxed", Some("me")).await;
    fixture.call_ok("me", "set_permissions", r#"{"preset":"sandboxed"}"#).await;
    let caller = Caller::admin().acting_as("me");
    let sent = fixture.call_as(&caller, "child", &request("send", r#"{"content":"hi"}"#)).await;
    assert_eq!(sent, denied("cannot target agent 'child'; allowed: parent agent"));
    let child_caller = Caller::admin().acting_as("child");
    let sent = fixture.call_as(&child_caller, "me", &request("send", r#"{"content":"hi"}"#)).await;
    let text = "Agent 'child' is not authorized to call send on 'me'";
    assert_eq!(sent, denied(text), "the tool reaches the parent, the method does not");
    let destroyed = fixture.call_as(&caller, "/", &request("destroy_agent", r#"{"agent_id":"child"}"#)).await;
    assert_eq!(
        destroyed,
        result(r#"{"success":true,"agent_id":"child"}"#),
        "destroying descendants needs no tool"
    );
}

#[tokio::test(start_paused = true)]
async fn agent_lists_only_itself_and_its_descendants() {
    for credential in
        [CredentialCase::ActingAs, CredentialCase::Capability, CredentialCase::CapabilityAndOwnName]
    {
        let (fixture, caller) = tree(credential).await;
        let cases: [(&str, &[&str]); 3] = [
            ("{}", &["me", "child", "grandchild"]),
            (r#"{"offset":1,"limit":1}"#, &["child"]),
            (r#"{"offset":3}"#, &[]),
        ];
        for (params, expected) in cases {
            let (_, list) = fixture.call_as(&caller, "/", &request("list_agents", params)).await;
            let list: Value = serde_json::from_str(&list).unwrap();
            let agents = list["result"]["agents"].as_array().unwrap();
            let names: Vec<_> = agents.iter().map(|agent| agent["agent_id"].as_str().unwrap()).collect();
            assert_eq!((names.as_slice(), &list["result"]["total"]), (expected, &Value::from(3)), "{params}");
        }
    }
}
