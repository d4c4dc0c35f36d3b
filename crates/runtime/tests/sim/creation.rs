//! Creating agents: first messages, and that a rejected create leaves nothing behind.

use agent::permission::{Budget, Level, NameSet, Resource};
use agent::{Fault, FaultKind};
use runtime::{AgentHandle, AgentSpec, Initiator, Limits, PermissionChange, PermissionSpec};

use crate::history::{texts, tool_texts, user_texts};
use crate::world::{
    POOL_TASKS, World, agent_id, alive_task_count, expect_end, is_busy, run_until_idle, spec_named,
    start_send, with_first_message, with_parent, with_preset, without_waiting,
};

/// Everything that a rejected create could alter.
async fn fingerprint(world: &World) -> impl PartialEq + std::fmt::Debug + use<> {
    let names = world.names().await;
    let mut accounts = Vec::new();
    for name in &names {
        let agent = world.find(name).await;
        let permissions = world.pool.permissions(&agent);
        let account =
            |usage: &runtime::ResourceUsage| (usage.limit, usage.used, usage.reserved, usage.remaining);
        let usages: Vec<_> = permissions.resource_usage.iter().map(account).collect();
        accounts.push((usages, world.status(&agent).child_count, world.status(&agent).open_turns));
    }
    (names, accounts, world.pool.agent_count(), world.pool.open_turns(), alive_task_count())
}

fn with_permissions(spec: AgentSpec, permissions: PermissionSpec) -> AgentSpec {
    AgentSpec { permissions, ..spec }
}

fn to_strings(items: &[&str]) -> Option<Vec<String>> {
    Some(items.iter().map(ToString::to_string).collect())
}

/// A parent with a few limits.
async fn create_parent(world: &World) -> AgentHandle {
    let budget =
        Budget::unlimited().with_limit(Resource::Turns, Some(10)).with_limit(Resource::Children, Some(2));
    world
        .create_handle(with_permissions(
            spec_named("p"),
            PermissionSpec { preset: Some("trusted".to_owned()), budget, ..PermissionSpec::default() },
        ))
        .await
}

fn invalid_specs(parent: &AgentHandle) -> Vec<(&'static str, AgentSpec)> {
    let child = || with_first_message(with_parent(spec_named("new"), parent), "say never; done");
    let with = |change: fn(&mut PermissionSpec)| {
        let mut spec = child();
        change(&mut spec.permissions);
        spec
    };
    vec![
        ("Agent already exists", with_parent(spec_named("sibling"), parent)),
        ("preset must be one of", with_preset(child(), "nonsense")),
        ("exceeds parent ceiling", with_preset(child(), "trusted")),
        (
            "preset must be one of",
            AgentSpec { level_max: Some(Level::Trusted), ..with_preset(spec_named("new"), "yolo") },
        ),
        ("Parent agent not found", AgentSpec { parent: Some(agent_id("missing")), ..child() }),
        ("no such directory", AgentSpec { cwd: Some("nowhere".to_owned()), ..child() }),
        ("no such model", AgentSpec { model: Some("other/model".to_owned()), ..child() }),
        (
            "outside parent's allowed paths",
            with(|permissions| permissions.write_paths = to_strings(&["/elsewhere"])),
        ),
        ("the path is empty", with(|permissions| permissions.write_paths = to_strings(&[""]))),
        ("exceeds parent ceiling", with(|permissions| permissions.may_create = to_strings(&["trusted"]))),
        (
            "what the parent has left",
            with(|permissions| {
                permissions.budget = Budget::unlimited().with_limit(Resource::Turns, Some(11));
            }),
        ),
        (
            "what the parent has left",
            with(|permissions| {
                let tool_calls = Budget::unlimited().with_limit(Resource::ToolCalls, Some(1));
                permissions.budget = tool_calls.with_limit(Resource::Turns, Some(11));
            }),
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn rejected_create_leaves_nothing_behind() {
    let world = World::new().await;
    let parent = create_parent(&world).await;
    world.child_agent("sibling", &parent).await;
    let before = fingerprint(&world).await;
    for (expected, spec) in invalid_specs(&parent) {
        let fault = world.expect_create_rejected(spec).await;
        assert!(fault.public.contains(expected), "{fault} instead of {expected}");
        run_until_idle().await;
        assert_eq!(fingerprint(&world).await, before, "after: {fault}");
    }
    world.create_handle(with_first_message(with_parent(spec_named("new"), &parent), "say a; done")).await;
    let before = fingerprint(&world).await;
    let fault = world
        .expect_create_rejected(with_first_message(
            with_parent(spec_named("one-too-many"), &parent),
            "say never; done",
        ))
        .await;
    assert_eq!((fault.kind, fault.public.contains("the budget of children")), (FaultKind::Denied, true));
    assert_eq!(fingerprint(&world).await, before);
}

#[tokio::test(start_paused = true)]
async fn agent_without_permission_to_create_leaves_nothing() {
    let world = World::new().await;
    let (parent, plain) = (create_parent(&world).await, world.agent("plain").await);
    let before = fingerprint(&world).await;
    let expect_rejected = async |spec: AgentSpec, creator: &AgentHandle| -> Fault {
        world.pool.create(spec, Initiator::Agent(creator)).await.err().expect("the create is rejected")
    };
    let widened = PermissionSpec { may_create: to_strings(&["worker"]), ..PermissionSpec::default() };
    let rejections = [
        (
            "Tool 'agent_create' is disabled",
            expect_rejected(with_first_message(spec_named("new"), "say x; done"), &plain).await,
        ),
        ("requester does not match", expect_rejected(with_parent(spec_named("new"), &plain), &parent).await),
        ("exceeds parent ceiling", expect_rejected(with_preset(spec_named("new"), "trusted"), &parent).await),
        (
            "only an admin may widen",
            expect_rejected(with_permissions(spec_named("new"), widened), &parent).await,
        ),
    ];
    for (expected, fault) in rejections {
        assert_eq!(fault.kind, FaultKind::Denied);
        assert!(fault.public.contains(expected), "{fault} instead of {expected}");
    }
    assert_eq!(fingerprint(&world).await, before);
    assert!(world.destroy(&plain).await);
    let fault = expect_rejected(with_first_message(spec_named("new"), "say x; done"), &plain).await;
    assert!(fault.public.contains("agent_create"), "{fault}");
}

#[tokio::test(start_paused = true)]
async fn destroyed_parent_gets_no_children() {
    let world = World::new().await;
    let parent = create_parent(&world).await;
    assert!(world.destroy(&parent).await);
    let fault = world
        .pool
        .create(with_first_message(spec_named("new"), "say x; done"), Initiator::Agent(&parent))
        .await
        .err();
    assert_eq!(fault.expect("the parent is destroyed").public, "Parent agent not found: p");
    run_until_idle().await;
    assert_eq!((world.pool.agent_count(), world.pool.open_turns(), alive_task_count()), (0, 0, POOL_TASKS));
}

#[tokio::test(start_paused = true)]
async fn create_is_rejected_without_a_permit_for_its_message() {
    let world = World::with_limits(Limits { turns_open_max: 1, ..Limits::default() }).await;
    let parent = create_parent(&world).await;
    let sending = start_send(&parent, 1, "wait; say a; done");
    run_until_idle().await;
    let before = fingerprint(&world).await;
    let fault = world
        .expect_create_rejected(with_first_message(with_parent(spec_named("new"), &parent), "say x; done"))
        .await;
    assert!(is_busy(&fault), "{fault:?}");
    assert_eq!(fingerprint(&world).await, before);
    world.model.release_all();
    expect_end(sending).await;
    world.create_handle(with_first_message(with_parent(spec_named("new"), &parent), "say x; done")).await;
}

#[tokio::test(start_paused = true)]
async fn create_rejected_by_agent_limit_drops_its_message() {
    let world = World::with_limits(Limits { agents_max: 1, ..Limits::default() }).await;
    let parent = create_parent(&world).await;
    let before = fingerprint(&world).await;
    assert!(is_busy(
        &world
            .expect_create_rejected(with_first_message(
                with_parent(spec_named("new"), &parent),
                "say x; done"
            ))
            .await
    ));
    assert_eq!(fingerprint(&world).await, before);
}

#[tokio::test(start_paused = true)]
async fn first_message_runs_before_any_other() {
    let world = World::new().await;
    let created = world
        .create(with_first_message(spec_named("a"), "#1 say first; done"))
        .await
        .expect("the agent is created");
    let second = start_send(&created.handle, 2, "#2 say second; done");
    let (_, response) = created.initial.expect("a first message");
    assert_eq!(response.await.expect("the turn succeeds").content, "first");
    expect_end(second).await;
    assert_eq!(texts(&created.handle), ["#1 say first; done", "first", "#2 say second; done", "second"]);
}

#[tokio::test(start_paused = true)]
async fn first_message_runs_detached_and_can_be_cancelled() {
    let world = World::new().await;
    let detached = world.create_handle(with_first_message(spec_named("a"), "say first; done")).await;
    run_until_idle().await;
    assert_eq!(texts(&detached), ["say first; done", "first"]);
    let created = world
        .create(with_first_message(spec_named("b"), "say hel; wait"))
        .await
        .expect("the agent is created");
    let (request_id, response) = created.initial.expect("a first message");
    run_until_idle().await;
    assert!(without_waiting(created.handle.cancel(request_id)).await);
    assert_eq!(response.await.expect("the turn ends").content, "hel");
}

#[tokio::test(start_paused = true)]
async fn agent_grants_tools_and_commands_within_its_own() {
    let world = World::new().await;
    let permissions = PermissionSpec {
        preset: Some("trusted".to_owned()),
        commands: to_strings(&["cargo"]),
        ..PermissionSpec::default()
    };
    let parent = world.create_handle(AgentSpec { permissions, ..spec_named("p") }).await;
    let script =
        "call agent_create {id=x run=cargo only=note}; call agent_create {id=y run=rm}; done | say so; done";
    expect_end(start_send(&parent, 1, script)).await;
    let texts = tool_texts(&parent);
    assert!(
        texts[1].contains("allowed_command 'rm' is not among the commands the parent may grant"),
        "{texts:?}"
    );
    let child = world.find("x").await;
    let may = world.pool.permissions(&child).may;
    assert_eq!((may.tools, may.commands), (NameSet::only(["note"]), NameSet::only(["cargo"])));
}

#[tokio::test(start_paused = true)]
async fn agent_creates_children_with_and_without_waiting() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    let script = "call agent_create {id=x wait=yes say hi; done}; call agent_create {id=y wait; say yo; done}; \
                  call agent_create {id=z preset=worker cwd=a}; done | say so; done";
    assert_eq!(without_waiting(expect_end(start_send(&parent, 1, script))).await.content, "so");
    assert_eq!(tool_texts(&parent), ["created x, which replied 'hi'", "created y", "created z"]);
    let children = world.children(&parent).await;
    let created: Vec<_> =
        children.iter().map(|child| (child.id.as_str(), &*child.preset, child.cwd.as_str())).collect();
    assert_eq!(
        created,
        [("x", "sandboxed", "/work"), ("y", "sandboxed", "/work"), ("z", "worker", "/work/a")]
    );
    let detached = world.find("y").await;
    assert_eq!((world.pool.open_turns(), user_texts(&detached).len()), (1, 1), "its turn runs on");
    world.model.release_all();
    run_until_idle().await;
    assert_eq!(texts(&detached)[1], "yo");
}

#[tokio::test(start_paused = true)]
async fn cancelled_waiting_create_leaves_an_idle_child() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    let sending = start_send(&parent, 1, "call agent_create {id=x wait=yes say hel; wait}; done");
    run_until_idle().await;
    assert!(without_waiting(parent.cancel(crate::world::numeric_request_id(1))).await);
    expect_end(sending).await;
    run_until_idle().await;
    assert_eq!(world.names().await, ["p", "x"]);
    assert_eq!((world.pool.open_turns(), world.model.observations().live_total), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn child_may_wait_for_a_parent_that_does_not_wait() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    let child = "#c call agent_send {to=p wait=yes #q say yes; done}; done | say heard; done";
    let script = format!("call agent_create {{id=x {child}}}; done | say so; done");
    assert_eq!(expect_end(start_send(&parent, 1, &script)).await.content, "so");
    run_until_idle().await;
    let child = world.find("x").await;
    assert_eq!(tool_texts(&child), ["replied 'yes'"]);
}

#[tokio::test(start_paused = true)]
async fn parent_with_narrowed_permissions_creates_nothing() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    let change = PermissionChange { preset: Some("worker".to_owned()), ..PermissionChange::default() };
    world.change_permissions(&parent, &change).await.expect("a narrower preset");
    expect_end(start_send(&parent, 1, "call agent_create {id=x say hi; done}; done | say so; done")).await;
    assert_eq!(
        tool_texts(&parent),
        ["Permission denied: Tool 'agent_create' is disabled by permission policy; it needs may_create"]
    );
    assert_eq!(
        world.expect_create_rejected(with_parent(spec_named("x"), &parent)).await.kind,
        FaultKind::Denied,
        "not even by an admin"
    );
    assert_eq!(world.names().await, ["p"]);
}
