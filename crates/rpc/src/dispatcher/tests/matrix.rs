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

/// Daemon methods on an agent that no agent may call on itself.
const NEVER_ON_SELF: [Method; 4] =
    [Method::ForkAgent, Method::RollbackAgent, Method::RenameAgent, Method::ExportAgent];

/// Returns the door and the parameters to call a method on a target.
fn call_params(method: Method, target: &'static str) -> (&'static str, String) {
    let params = match method {
        Method::Send => r#"{"content":"hi"}"#.to_owned(),
        Method::Steer => r#"{"content":"left"}"#.to_owned(),
        Method::Cancel => r#"{"request_id":1}"#.to_owned(),
        Method::CreateAgent => format!(r#"{{"agent_id":"new","parent_agent_id":"{target}"}}"#),
        Method::DestroyAgent | Method::ExportAgent => format!(r#"{{"agent_id":"{target}"}}"#),
        Method::ForkAgent | Method::RenameAgent => {
            format!(r#"{{"agent_id":"{target}","new_agent_id":"new"}}"#)
        }
        Method::RollbackAgent => format!(r#"{{"agent_id":"{target}","messages":0}}"#),
        Method::ImportAgent => MINIMAL_IMPORT.to_owned(),
        Method::SetPermissions => r#"{"disable_tools":["fs.read_file"]}"#.to_owned(),
        _ => "{}".to_owned(),
    };
    (if method.door() == Door::Daemon { "/" } else { target }, params)
}

fn expected(credential: CredentialCase, method: Method, target: &'static str) -> Outcome {
    let denied = |text: &str| Outcome::Denied(text.to_owned());
    if method.door() == Door::Agent && target == "missing" {
        return Outcome::NoTarget;
    }
    match credential {
        CredentialCase::CapabilityAndOtherName => {
            return denied("X-Nexus-Agent does not match the agent of the capability token");
        }
        CredentialCase::RevokedCapability => return denied("Invalid API key"),
        CredentialCase::Admin if method == Method::CreateAgent && target == "missing" => {
            return Outcome::Invalid("Parent agent not found: missing");
        }
        CredentialCase::Admin if NEVER_ON_SELF.contains(&method) && target == "missing" => {
            return Outcome::Invalid("Agent not found: missing");
        }
        CredentialCase::Admin => return Outcome::Allowed,
        CredentialCase::ActingAs | CredentialCase::Capability | CredentialCase::CapabilityAndOwnName => {}
    }
    let (name, is_descendant) = (method.name(), ["child", "grandchild"].contains(&target));
    match method {
        Method::ListAgents | Method::ListSessions | Method::Discover => Outcome::Allowed,
        Method::ShutdownServer | Method::ImportAgent => {
            denied(&format!("Agent 'me' is not authorized to call {name}"))
        }
        Method::ForkAgent if target == "grandchild" => denied("Agent 'me' may fork only its own children"),
        method if NEVER_ON_SELF.contains(&method) && target == "me" => {
            denied(&format!("Agent 'me' is not authorized to call {name} on 'me'"))
        }
        Method::CreateAgent if target == "me" => Outcome::Allowed,
        Method::CreateAgent => denied("Cannot create agent: requester does not match the parent agent"),
        Method::DestroyAgent if target == "me" || is_descendant => Outcome::Allowed,
        Method::DestroyAgent => denied(&format!("Agent 'me' is not authorized to destroy '{target}'")),
        Method::SetPermissions if target == "me" => {
            denied("Agent 'me' is not authorized to call set_permissions on 'me'")
        }
        _ if target == "me" || is_descendant => Outcome::Allowed,
        _ => denied(&format!("Agent 'me' is not authorized to call {name} on '{target}'")),
    }
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
    if door != "/" && fixture.dispatcher.agent_target(door).is_err() {
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

/// Returns the tool an agent needs to call a method on a descendant.
fn required_tool(method: Method) -> &'static str {
    match method {
        Method::Send | Method::Steer | Method::Compact => "agent_send",
        Method::Cancel | Method::Shutdown => "agent_cancel",
        Method::SetPermissions => "agent_create",
        Method::ListChildren => "agent_list",
        _ => "agent_status",
    }
}

#[tokio::test(start_paused = true)]
async fn agent_reaches_descendants_only_with_the_required_tool() {
    let tools = ["agent_send", "agent_cancel", "agent_create", "agent_list", "agent_status", "agent_destroy"];
    for disabled in tools {
        for &method in Method::ALL.iter().filter(|method| method.door() == Door::Agent) {
            let (fixture, caller) = tree(CredentialCase::Capability).await;
            fixture.call_ok("me", "set_permissions", &format!(r#"{{"disable_tools":["{disabled}"]}}"#)).await;
            for target in ["child", "grandchild"] {
                let (door, params) = call_params(method, target);
                let response = fixture.call_as(&caller, door, &request(method.name(), &params)).await;
                if required_tool(method) == disabled {
                    let text = format!("Tool '{disabled}' is disabled by permission policy");
                    assert_eq!(response, denied(&text), "{} on {target}", method.name());
                } else {
                    assert!(
                        response.1.contains(r#""result":"#),
                        "{} without {disabled}: {response:?}",
                        method.name()
                    );
                }
            }
            if method != Method::SetPermissions {
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
