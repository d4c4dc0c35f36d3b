//! Who may call what on whom: every way to show who one is, times every method, times everybody it could be called on.

use nexus3_protocol::Method;

use super::*;

/// Everybody a call can be made on, as `me` sees them. There is no agent `nobody`.
const TARGETS: [&str; 7] = ["me", "child", "grandchild", "parent", "sibling", "stranger", "nobody"];

/// A way to show who one is.
#[derive(Debug, Clone, Copy, PartialEq)]
enum CredentialCase {
    Admin,
    /// The daemon's token, and `me` in the header.
    Narrowed,
    /// The capability of `me`.
    Capability,
    /// And `me` in the header.
    CapabilityAndOwnName,
    /// And `sibling` in the header.
    CapabilityAndOtherName,
    /// The capability of an earlier `me` that was destroyed.
    RevokedCapability,
}

const CREDENTIAL_CASES: [CredentialCase; 6] = [
    CredentialCase::Admin,
    CredentialCase::Narrowed,
    CredentialCase::Capability,
    CredentialCase::CapabilityAndOwnName,
    CredentialCase::CapabilityAndOtherName,
    CredentialCase::RevokedCapability,
];

/// What should come of a call.
#[derive(Debug, PartialEq)]
enum Outcome {
    Allowed,
    Denied(String),
    /// The ask itself is wrong.
    Invalid(&'static str),
    /// There is no door to call at.
    NoDoor,
}

/// Creates one of the tree with what it needs to have children, and gives its capability's text.
async fn create_trusted_agent(house: &Fixture, name: &str, parent: Option<&str>) -> String {
    let id = |name: &str| AgentId::parse(name).unwrap();
    let permissions = PermissionSpec {
        preset: Some("trusted".to_owned()),
        may_create: Some(["trusted", "sandboxed"].map(str::to_owned).into()),
        ..PermissionSpec::default()
    };
    let (name, parent) = (NameSpec::Given(id(name)), parent.map(id));
    let spec = AgentSpec { name, parent, permissions, ..AgentSpec::default() };
    house.pool.create(spec, Initiator::Admin).await.unwrap().capability.reveal().to_owned()
}

/// parent → me → child → grandchild; parent → sibling; stranger. And the caller.
async fn tree(shown: CredentialCase) -> (Fixture, Caller) {
    let house = Fixture::new().await;
    create_trusted_agent(&house, "parent", None).await;
    let early = create_trusted_agent(&house, "me", Some("parent")).await;
    let early = house.dispatcher.capability_caller(early.as_bytes()).unwrap();
    house.call_ok("/", "destroy_agent", r#"{"agent_id":"me"}"#).await;
    let token = create_trusted_agent(&house, "me", Some("parent")).await;
    create_trusted_agent(&house, "child", Some("me")).await;
    create_trusted_agent(&house, "grandchild", Some("child")).await;
    create_trusted_agent(&house, "sibling", Some("parent")).await;
    create_trusted_agent(&house, "stranger", None).await;
    let own = house.dispatcher.capability_caller(token.as_bytes()).unwrap();
    let caller = match shown {
        CredentialCase::Admin => Caller::admin(),
        CredentialCase::Narrowed => Caller::admin().acting_as("me"),
        CredentialCase::Capability => own,
        CredentialCase::CapabilityAndOwnName => own.acting_as("me"),
        CredentialCase::CapabilityAndOtherName => own.acting_as("sibling"),
        CredentialCase::RevokedCapability => early,
    };
    (house, caller)
}

/// The least that `import_agent` takes.
pub(super) const MINIMAL_IMPORT: &str = concat!(
    r#"{"session":{"agent_id":"new","created_at":"2024-01-15T10:30:00","modified_at":"2024-01-15T10:30:00","#,
    r#""messages":[],"system_prompt":"","working_directory":"/","permission_level":"sandboxed"}}"#
);

/// Methods that the daemon does to an agent, and that no agent may do to itself.
const NEVER_ON_SELF: [Method; 4] =
    [Method::ForkAgent, Method::RollbackAgent, Method::RenameAgent, Method::ExportAgent];

/// The door and the parameters to call a method on somebody.
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

fn expected(shown: CredentialCase, method: Method, target: &'static str) -> Outcome {
    let denied = |text: &str| Outcome::Denied(text.to_owned());
    if method.door() == Door::Agent && target == "nobody" {
        return Outcome::NoDoor;
    }
    match shown {
        CredentialCase::CapabilityAndOtherName => {
            return denied("X-Nexus-Agent does not match the agent of the capability token");
        }
        CredentialCase::RevokedCapability => return denied("Invalid API key"),
        CredentialCase::Admin if method == Method::CreateAgent && target == "nobody" => {
            return Outcome::Invalid("Parent agent not found: nobody");
        }
        CredentialCase::Admin if NEVER_ON_SELF.contains(&method) && target == "nobody" => {
            return Outcome::Invalid("Agent not found: nobody");
        }
        CredentialCase::Admin => return Outcome::Allowed,
        CredentialCase::Narrowed | CredentialCase::Capability | CredentialCase::CapabilityAndOwnName => {}
    }
    let (name, below) = (method.name(), ["child", "grandchild"].contains(&target));
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
        Method::DestroyAgent if target == "me" || below => Outcome::Allowed,
        Method::DestroyAgent => denied(&format!("Agent 'me' is not authorized to destroy '{target}'")),
        Method::SetPermissions if target == "me" => {
            denied("Agent 'me' is not authorized to call set_permissions on 'me'")
        }
        _ if target == "me" || below => Outcome::Allowed,
        _ => denied(&format!("Agent 'me' is not authorized to call {name} on '{target}'")),
    }
}

/// What can be seen of everybody, to tell whether anything was done.
async fn observable_state(house: &Fixture) -> Vec<Value> {
    let mut seen = vec![house.call_ok("/", "list_agents", "{}").await];
    for name in house.agent_names().await {
        seen.push(house.call_ok(&name, "get_permissions", "{}").await);
    }
    seen
}

async fn check(shown: CredentialCase, method: Method, target: &'static str) {
    let (house, caller) = tree(shown).await;
    let ((door, params), case) = (call_params(method, target), (shown, method, target));
    let expected = expected(shown, method, target);
    if door != "/" && house.dispatcher.agent_target(door).is_err() {
        assert_eq!(expected, Outcome::NoDoor, "{case:?}");
        return;
    }
    let before = observable_state(&house).await;
    let answer = house.call_as(&caller, door, &request(method.name(), &params)).await;
    match expected {
        Outcome::Allowed => assert!(answer.1.contains(r#""result":"#), "{case:?}: {answer:?}"),
        Outcome::Denied(text) => assert_eq!(answer, denied(&text), "{case:?}"),
        Outcome::Invalid(text) => assert_eq!(answer, error(-32602, text), "{case:?}"),
        Outcome::NoDoor => panic!("{case:?}: there is a door"),
    }
    if answer.1.contains(r#""error":"#) {
        assert_eq!(observable_state(&house).await, before, "{case:?}: a call that was denied did something");
        assert!(house.pool.stop_requested().now_or_never().is_none(), "{case:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn everybody_may_do_exactly_what_it_should() {
    for shown in CREDENTIAL_CASES {
        for &method in Method::ALL {
            for target in TARGETS {
                check(shown, method, target).await;
            }
        }
    }
}

/// The tool that an agent needs to call a method on one below it.
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
async fn an_agent_reaches_those_below_it_by_the_tools_it_has() {
    let tools = ["agent_send", "agent_cancel", "agent_create", "agent_list", "agent_status", "agent_destroy"];
    for disabled in tools {
        for &method in Method::ALL.iter().filter(|method| method.door() == Door::Agent) {
            let (house, caller) = tree(CredentialCase::Capability).await;
            house.call_ok("me", "set_permissions", &format!(r#"{{"disable_tools":["{disabled}"]}}"#)).await;
            for target in ["child", "grandchild"] {
                let (door, params) = call_params(method, target);
                let answer = house.call_as(&caller, door, &request(method.name(), &params)).await;
                if required_tool(method) == disabled {
                    let text = format!("Tool '{disabled}' is disabled by permission policy");
                    assert_eq!(answer, denied(&text), "{} on {target}", method.name());
                } else {
                    assert!(
                        answer.1.contains(r#""result":"#),
                        "{} without {disabled}: {answer:?}",
                        method.name()
                    );
                }
            }
            if method != Method::SetPermissions {
                let (door, params) = call_params(method, "me");
                let (_, own) = house.call_as(&caller, door, &request(method.name(), &params)).await;
                assert!(own.contains(r#""result":"#), "its own methods need no tool: {own}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_reaches_only_those_that_its_grant_names() {
    let house = Fixture::new().await;
    house.create_agent("me", "trusted", None).await;
    house.create_agent("child", "sandboxed", Some("me")).await;
    house.call_ok("me", "set_permissions", r#"{"preset":"sandboxed"}"#).await;
    let caller = Caller::admin().acting_as("me");
    let sent = house.call_as(&caller, "child", &request("send", r#"{"content":"hi"}"#)).await;
    assert_eq!(sent, denied("cannot target agent 'child'; allowed: parent agent"));
    let up = Caller::admin().acting_as("child");
    let sent = house.call_as(&up, "me", &request("send", r#"{"content":"hi"}"#)).await;
    let text = "Agent 'child' is not authorized to call send on 'me'";
    assert_eq!(sent, denied(text), "the tool may reach the parent, the method may not");
    let gone = house.call_as(&caller, "/", &request("destroy_agent", r#"{"agent_id":"child"}"#)).await;
    assert_eq!(
        gone,
        result(r#"{"success":true,"agent_id":"child"}"#),
        "to destroy those below needs no tool"
    );
}

#[tokio::test(start_paused = true)]
async fn an_agents_list_holds_itself_and_those_below() {
    for shown in [CredentialCase::Narrowed, CredentialCase::Capability, CredentialCase::CapabilityAndOwnName]
    {
        let (house, caller) = tree(shown).await;
        let cases: [(&str, &[&str]); 3] = [
            ("{}", &["me", "child", "grandchild"]),
            (r#"{"offset":1,"limit":1}"#, &["child"]),
            (r#"{"offset":3}"#, &[]),
        ];
        for (params, expected) in cases {
            let (_, list) = house.call_as(&caller, "/", &request("list_agents", params)).await;
            let list: Value = serde_json::from_str(&list).unwrap();
            let agents = list["result"]["agents"].as_array().unwrap();
            let names: Vec<_> = agents.iter().map(|agent| agent["agent_id"].as_str().unwrap()).collect();
            assert_eq!((names.as_slice(), &list["result"]["total"]), (expected, &Value::from(3)), "{params}");
        }
    }
}
