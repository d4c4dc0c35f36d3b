//! State that survives a stop, a kill and sleep: everything an agent is and has.

use std::sync::Arc;

use agent::journal::RestartPolicy;
use agent::permission::{Budget, Narrowing, Presets, Resource};
use agent::{FaultKind, TurnOutcome};
use runtime::{
    AgentHandle, AgentLiveness, AgentSpec, ChildPolicy, MayGrantSpec, NameSpec, PermissionChange,
    PermissionSpec,
};

use crate::history::{idle_history_violation, messages, texts, tool_texts};
use crate::world::{
    World, WorldOptions, agent_id, expect_end, expect_fault, numeric_request_id, run_until_idle, spec_named,
    start_send, with_parent, with_preset,
};

/// Everything that is visible of an agent.
pub(crate) fn describe_agent(world: &World, agent: &AgentHandle) -> String {
    let mut status = world.status(agent);
    status.state = AgentLiveness::Live;
    let parts = [
        format!("{status:?}"),
        format!("{:?}", messages(agent)),
        format!("{:?}", agent.record()),
        format!("{:?}", world.pool.permissions(agent)),
        format!("{:?} {:?} {:?}", agent.tokens(), agent.context(), agent.tool_names()),
    ];
    parts.join("\n")
}

async fn describe_all_agents(world: &World) -> Vec<String> {
    let mut descriptions = Vec::new();
    for name in world.names().await {
        descriptions.push(describe_agent(world, &world.find(&name).await));
    }
    descriptions
}

fn budget() -> Budget {
    let budget =
        Budget::unlimited().with_limit(Resource::Turns, Some(10)).with_limit(Resource::ToolCalls, Some(20));
    budget.with_limit(Resource::Tokens, Some(1000)).with_limit(Resource::WallMs, Some(100_000))
}

/// A tree of agents with a varied history.
async fn create_tree(world: &World) {
    let permissions =
        PermissionSpec { preset: Some("trusted".into()), budget: budget(), ..PermissionSpec::default() };
    let parent = world.create_handle(AgentSpec { permissions, ..spec_named("p") }).await;
    let permissions = PermissionSpec {
        disable_tools: vec!["step".into()],
        write_paths: Some(vec!["deep".into()]),
        tools: Some(["write", "read", "step", "note"].map(str::to_owned).to_vec()),
        commands: Some(vec!["cargo".into()]),
        budget: Budget::unlimited()
            .with_limit(Resource::Turns, Some(4))
            .with_limit(Resource::Children, Some(3)),
        ..PermissionSpec::default()
    };
    let child = AgentSpec {
        permissions,
        cwd: Some("a".into()),
        model: Some("scripted/one".into()),
        system_prompt: Some("be brief".into()),
        on_restart: Some(RestartPolicy::Mark),
        origin: Some("somewhere".into()),
        ..with_parent(spec_named("c"), &parent)
    };
    let child = world.create_handle(child).await;
    world.child_agent("g", &parent).await;
    expect_end(start_send(&parent, 1, "#1 report 7; call note x; done | pass 300; say so; done")).await;
    expect_end(start_send(&child, 1, "#2 report 5; call write deep/y; call step 1; done | say done; done"))
        .await;
    expect_fault(start_send(&child, 2, "#3 say hel; fail")).await;
    let change = PermissionChange { write_paths: Some(vec!["deep".into()]), ..PermissionChange::default() };
    world.change_permissions(&child, &change).await.expect("its own path");
    world.finish(&child).await;
}

#[tokio::test(start_paused = true)]
async fn all_state_survives_kill_stop_and_sleep() {
    let world = World::new().await;
    create_tree(&world).await;
    let before = describe_all_agents(&world).await;
    assert_eq!(before.len(), 3);
    let world = world.restart().await;
    assert_eq!(world.live_names().await, Vec::<String>::new(), "no agent is woken at startup");
    assert_eq!(describe_all_agents(&world).await, before, "after a kill");
    let world = world.stop_and_start().await;
    assert_eq!(describe_all_agents(&world).await, before, "after a stop");
    assert_eq!(world.model.observations().prompts.len(), 0, "no model call");
}

#[tokio::test(start_paused = true)]
async fn list_is_equal_for_sleeping_and_live_agents() {
    let world = World::new().await;
    create_tree(&world).await;
    let descriptions = |list: Vec<runtime::AgentStatus>| -> Vec<String> {
        let describe = |mut status: runtime::AgentStatus| {
            status.state = AgentLiveness::Live;
            format!("{status:?}")
        };
        list.into_iter().map(describe).collect()
    };
    let before = descriptions(world.list().await);
    let world = world.restart().await;
    let asleep = world.list().await;
    assert!(asleep.iter().all(|agent| agent.state == AgentLiveness::Asleep));
    assert_eq!(descriptions(asleep), before);
}

#[tokio::test(start_paused = true)]
async fn woken_agent_continues_its_conversation() {
    let world = World::new().await;
    create_tree(&world).await;
    let world = world.restart().await;
    let child = world.find("c").await;
    assert_eq!(
        expect_end(start_send(&child, 9, "#9 call read deep/z; call step 1; done | say on; done"))
            .await
            .content,
        "on"
    );
    let request = world.model.observations().requests[0].clone();
    assert_eq!(request.system.as_deref(), Some("be brief"));
    let texts: Vec<_> = request.messages.iter().map(|message| message.text.as_str()).collect();
    assert_eq!(texts.len(), 8, "{texts:?}");
    assert_eq!(texts[6], "hel", "the failed turn is included");
    assert_eq!(tool_texts(&child).split_off(2)[0], "deep/z beneath /work/a");
    assert!(tool_texts(&child)[3].contains("Tool 'step' is disabled"), "{:?}", tool_texts(&child));
    let turns = world.pool.permissions(&child).resource_usage[0];
    assert_eq!((turns.limit, turns.used, turns.remaining), (Some(4), 3, Some(1)));
    assert_eq!(idle_history_violation(&messages(&child)), None);
}

#[tokio::test(start_paused = true)]
async fn capability_survives_a_restart_but_not_its_agent() {
    let world = World::new().await;
    let token = world.create(spec_named("a")).await.expect("the agent is created").capability;
    let destroyed = world.create(spec_named("b")).await.expect("the agent is created");
    world.destroy(&destroyed.handle).await;
    let world = world.restart().await;
    let found =
        world.pool.find_ref_by_capability(token.reveal().as_bytes()).expect("the capability is known");
    assert_eq!(found.id().as_str(), "a");
    assert!(world.pool.find_ref_by_capability(destroyed.capability.reveal().as_bytes()).is_none());
}

#[tokio::test(start_paused = true)]
async fn sleeping_parents_ceiling_limits_its_child() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    world.child_agent("c", &parent).await;
    let change = PermissionChange { disable_tools: Some(vec!["note".into()]), ..PermissionChange::default() };
    world.change_permissions(&parent, &change).await.expect("fewer permissions are always allowed");
    drop(parent);
    let world = world.restart().await;
    let child = world.find("c").await;
    assert_eq!(world.live_names().await, ["c"], "the parent stays asleep");
    expect_end(start_send(&child, 1, "call note x; call slow 1; done | say so; done")).await;
    let denied = "Permission denied: Tool 'note' is disabled by permission policy";
    assert!(tool_texts(&child)[0].starts_with(denied), "{:?}", tool_texts(&child));
    let parent = world.find("p").await;
    world
        .change_permissions(
            &parent,
            &PermissionChange { disable_tools: Some(Vec::new()), ..PermissionChange::default() },
        )
        .await
        .expect("allowed");
    expect_end(start_send(&child, 2, "#2 call note y; done | say so; done")).await;
    assert_eq!(tool_texts(&child)[2], "noted y", "both share one node of the tree");
}

#[tokio::test(start_paused = true)]
async fn reserved_budget_survives_and_is_refunded_once() {
    let world = World::new().await;
    let turns = |limit| Budget::unlimited().with_limit(Resource::Turns, Some(limit));
    let permissions =
        PermissionSpec { preset: Some("trusted".into()), budget: turns(10), ..PermissionSpec::default() };
    let parent = world.create_handle(AgentSpec { permissions, ..spec_named("p") }).await;
    let permissions = PermissionSpec { budget: turns(6), ..PermissionSpec::default() };
    let child = world.create_handle(AgentSpec { permissions, ..with_parent(spec_named("c"), &parent) }).await;
    expect_end(start_send(&child, 1, "#1 say a; done")).await;
    drop((parent, child));
    let account = |world: &World, agent: &AgentHandle| {
        let usage = world.pool.permissions(agent).resource_usage[0];
        (usage.limit, usage.used, usage.reserved, usage.remaining)
    };
    let world = world.restart().await;
    let parent = world.find("p").await;
    assert_eq!(account(&world, &parent), (Some(10), 0, 6, Some(4)));
    let permissions = PermissionSpec { budget: turns(5), ..PermissionSpec::default() };
    let fault = world
        .expect_create_rejected(AgentSpec { permissions, ..with_parent(spec_named("d"), &parent) })
        .await;
    assert_eq!(fault.kind, FaultKind::Denied, "{fault}");
    assert!(world.destroy_named("c", ChildPolicy::Cascade).await, "a sleeping agent can be destroyed");
    assert_eq!(account(&world, &parent), (Some(10), 1, 0, Some(9)));
    drop(parent);
    let world = world.restart().await;
    assert_eq!(account(&world, &world.find("p").await), (Some(10), 1, 0, Some(9)));
}

#[tokio::test(start_paused = true)]
async fn temporary_agents_end_with_the_daemon_but_not_children() {
    let world = World::new().await;
    let temporary = world
        .create_handle(with_preset(
            AgentSpec { name: NameSpec::NextTemporary, ..AgentSpec::default() },
            "yolo",
        ))
        .await;
    let named = world.create(spec_named(".t")).await.expect("the agent is created");
    let orphan = world.child_agent("orphan", &temporary).await;
    world.child_agent(".u", &temporary).await;
    let (may, token) = (world.pool.permissions(&orphan).may, named.capability);
    drop((temporary, orphan));
    let world = world.restart().await;
    assert_eq!(world.names().await, ["orphan"]);
    assert!(world.pool.find_ref_by_capability(token.reveal().as_bytes()).is_none());
    let orphan = world.find("orphan").await;
    assert_eq!(
        (world.status(&orphan).depth, world.pool.permissions(&orphan).may),
        (1, may),
        "the same ceiling"
    );
    let next = world.create_handle(AgentSpec { name: NameSpec::NextTemporary, ..AgentSpec::default() }).await;
    assert_eq!(next.id().as_str(), ".1", "its name is free");
    assert!(!orphan.is_descendant_of(&next), "the new agent does not adopt the orphan");
}

#[tokio::test(start_paused = true)]
async fn orphans_retain_their_ceiling_after_a_restart() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    let change = PermissionChange { disable_tools: Some(vec!["note".into()]), ..PermissionChange::default() };
    let orphan = world.child_agent("o", &parent).await;
    world.change_permissions(&parent, &change).await.expect("fewer permissions are always allowed");
    assert!(world.destroy_named("p", ChildPolicy::Orphan).await);
    let before = describe_agent(&world, &orphan);
    drop((parent, orphan));
    let world = world.restart().await;
    let orphan = world.find("o").await;
    assert_eq!(describe_agent(&world, &orphan), before);
    expect_end(start_send(&orphan, 1, "call note x; done | say so; done")).await;
    assert!(tool_texts(&orphan)[0].starts_with("Permission denied"), "{:?}", tool_texts(&orphan));
    let successor = world.trusted_agent("p").await;
    assert!(!orphan.is_descendant_of(&successor));
}

fn options_with_presets(extra: &[(&str, Narrowing)]) -> runtime::PoolOptions {
    let mut presets = Presets::builtin(&[]);
    for (name, narrowing) in extra {
        presets.add(name, "trusted", narrowing.clone()).expect("a valid preset");
    }
    runtime::PoolOptions { presets, ..WorldOptions::default().pool_options }
}

#[tokio::test(start_paused = true)]
async fn preset_changes_apply_and_a_removed_preset_denies_all() {
    let options = WorldOptions {
        pool_options: options_with_presets(&[("mine", Narrowing::default())]),
        ..WorldOptions::default()
    };
    let world = World::open(options).await;
    let agent = world.create_handle(with_preset(spec_named("a"), "mine")).await;
    world.create_handle(with_parent(spec_named("c"), &agent)).await;
    expect_end(start_send(&agent, 1, "#1 call note x; done | say so; done")).await;
    drop(agent);
    let narrower = Narrowing { disable_tools: vec![Arc::from("note")], ..Narrowing::default() };
    let options =
        WorldOptions { pool_options: options_with_presets(&[("mine", narrower)]), ..world.restart_options() };
    world.kill().await;
    let world = World::open(options).await;
    let agent = world.find("a").await;
    expect_end(start_send(&agent, 2, "#2 call note x; call slow 1; done | say so; done")).await;
    assert!(tool_texts(&agent)[1].starts_with("Permission denied"), "{:?}", tool_texts(&agent));
    assert_eq!(tool_texts(&agent)[2], "took 1");
    drop(agent);
    let options = WorldOptions { pool_options: options_with_presets(&[]), ..world.restart_options() };
    world.kill().await;
    let world = World::open(options).await;
    let agent = world.find("a").await;
    assert_eq!(texts(&agent).len(), 9, "the history is readable");
    assert_eq!((agent.tool_names().len(), world.status(&agent).preset.as_ref()), (0, "mine"));
    expect_end(start_send(&agent, 3, "#3 call note x; call read y; done | say so; done")).await;
    assert!(tool_texts(&agent)[3..].iter().all(|result| result.starts_with("Permission denied")));
    let child = world.find("c").await;
    expect_end(start_send(&child, 1, "#4 call note x; done | say so; done")).await;
    assert!(tool_texts(&child)[0].starts_with("Permission denied"), "its descendants are denied too");
    assert_eq!(
        world.expect_create_rejected(with_parent(spec_named("d"), &agent)).await.kind,
        FaultKind::Denied
    );
}

#[tokio::test(start_paused = true)]
async fn agent_with_removed_model_is_readable_but_fails() {
    let world =
        World::open(WorldOptions { models: vec!["scripted/one", "scripted/two"], ..WorldOptions::default() })
            .await;
    let agent =
        world.create_handle(AgentSpec { model: Some("scripted/two".into()), ..spec_named("a") }).await;
    expect_end(start_send(&agent, 1, "#1 say a; done")).await;
    drop(agent);
    let options = WorldOptions { models: vec!["scripted/one"], ..world.restart_options() };
    world.kill().await;
    let world = World::open(options).await;
    let agent = world.find("a").await;
    assert_eq!((texts(&agent).len(), agent.record().model.as_deref()), (2, Some("scripted/two")));
    let fault = expect_fault(start_send(&agent, 2, "#2 say b; done")).await;
    assert_eq!(fault.kind, FaultKind::Model);
    assert!(fault.public.contains("no such model: scripted/two"), "{fault}");
    assert_eq!(idle_history_violation(&messages(&agent)), None);
    let options = world.restart_options();
    drop(agent);
    world.kill().await;
    let world = World::open(WorldOptions { models: vec!["scripted/two"], ..options }).await;
    assert_eq!(
        expect_end(start_send(&world.find("a").await, 3, "#3 say c; done")).await.content,
        "c",
        "after the model is back"
    );
}

#[tokio::test(start_paused = true)]
async fn changed_permissions_survive_a_restart() {
    let world = World::new().await;
    let may_grant = MayGrantSpec { disable_tools: vec!["note".into()], ..MayGrantSpec::default() };
    let permissions = PermissionSpec {
        preset: Some("trusted".into()),
        may_grant: Some(may_grant),
        may_create: Some(vec!["sandboxed".into()]),
        ..PermissionSpec::default()
    };
    let agent = world.create_handle(AgentSpec { permissions, ..spec_named("a") }).await;
    let change = PermissionChange {
        disable_tools: Some(vec!["slow".into()]),
        budget: vec![(Resource::Turns, Some(7))],
        ..PermissionChange::default()
    };
    world.change_permissions(&agent, &change).await.expect("allowed");
    let before = describe_agent(&world, &agent);
    drop(agent);
    let world = world.restart().await;
    let agent = world.find("a").await;
    assert_eq!(describe_agent(&world, &agent), before);
    world
        .change_permissions(
            &agent,
            &PermissionChange { disable_tools: Some(Vec::new()), ..PermissionChange::default() },
        )
        .await
        .expect("allowed");
    let permissions = world.pool.permissions(&agent);
    assert_eq!(permissions.resource_usage[0].limit, Some(7), "a change leaves other limits");
    assert!(!permissions.may_grant.tools.contains("note") && permissions.may.tools.contains("slow"));
}

#[tokio::test(start_paused = true)]
async fn serials_are_never_reused() {
    let world = World::new().await;
    let first = world.agent("a").await.agent_ref().serial();
    world.destroy_named("a", ChildPolicy::Cascade).await;
    let world = world.restart().await;
    let second = world.agent("a").await.agent_ref().serial();
    assert!(second > first, "{first}, then {second}");
    let world = world.restart().await;
    assert_eq!(world.find("a").await.agent_ref().serial(), second);
}

#[tokio::test(start_paused = true)]
async fn requested_stop_is_not_repeated_after_a_restart() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.finish(&agent).await;
    assert!(world.pool.is_stopping());
    drop(agent);
    let world = world.stop_and_start().await;
    assert!(!world.pool.is_stopping());
    let agent = world.find("a").await;
    assert!(world.status(&agent).should_shutdown);
    assert_eq!(expect_end(start_send(&agent, 1, "say a; done")).await.content, "a");
}

#[tokio::test(start_paused = true)]
async fn stop_cancels_awaited_turns_and_resumes_detached_ones() {
    let world = World::new().await;
    let (awaited, detached) = (world.agent("awaited").await, world.agent("detached").await);
    let sending = start_send(&awaited, 1, "#1 say hel; wait; say lo; done");
    let dropped = start_send(&detached, 1, "#2 say hel; pass 20000; say lo; done");
    run_until_idle().await;
    dropped.abort();
    assert!(dropped.await.is_err_and(|fault| fault.is_cancelled()));
    drop((awaited, detached));
    let world = world.stop_and_start().await;
    assert_eq!(expect_end(sending).await.outcome, TurnOutcome::Cancelled);
    let detached = world.find("detached").await;
    assert_eq!(world.pool.open_turns(), 1);
    assert_eq!(
        expect_end(start_send(&detached, 1, "#2 say hel; pass 20000; say lo; done")).await.content,
        "hello"
    );
    assert_eq!(texts(&detached).len(), 2);
    assert_eq!(texts(&world.find("awaited").await), ["#1 say hel; wait; say lo; done", "hel"]);
    assert!(!detached.cancel(numeric_request_id(1)).await);
    assert!(world.pool.find(&agent_id("missing")).await.expect("the lookup succeeds").is_none());
}

#[tokio::test(start_paused = true)]
async fn budget_of_an_uncommitted_agent_is_free_after_a_crash() {
    let turns = |limit| Budget::unlimited().with_limit(Resource::Turns, Some(limit));
    let world = World::new().await;
    let permissions =
        PermissionSpec { preset: Some("trusted".into()), budget: turns(10), ..PermissionSpec::default() };
    let parent = world.create_handle(AgentSpec { permissions, ..spec_named("p") }).await;
    let other = world.child_agent("x", &parent).await.agent_ref();
    // A destroy holds the lock of its tree until its commit.
    world.store.hold();
    let destroying = {
        let pool = world.pool.clone();
        tokio::spawn(
            async move { pool.destroy(&other, ChildPolicy::Cascade, runtime::Initiator::Admin).await },
        )
    };
    run_until_idle().await;
    let permissions = PermissionSpec { budget: turns(4), ..PermissionSpec::default() };
    let creating = {
        let (pool, spec) =
            (world.pool.clone(), AgentSpec { permissions, ..with_parent(spec_named("c"), &parent) });
        tokio::spawn(async move { pool.create(spec, runtime::Initiator::Admin).await.map(drop) })
    };
    run_until_idle().await;
    parent.submit(crate::world::new_message(1, "#1 say a; done")).expect("accepted");
    drop(parent);
    run_until_idle().await;
    world.store.die_after(2);
    world.store.release();
    run_until_idle().await;
    destroying.abort();
    creating.abort();
    let world = world.restart().await;
    run_until_idle().await;
    assert_eq!(world.names().await, ["p"]);
    let turns = world.pool.permissions(&world.find("p").await).resource_usage[0];
    assert_eq!((turns.reserved, turns.remaining), (0, Some(9)));
}

#[tokio::test(start_paused = true)]
async fn budget_of_a_destroyed_agent_is_refunded_after_a_crash() {
    let turns = |limit| Budget::unlimited().with_limit(Resource::Turns, Some(limit));
    for appends in 1..4 {
        let world = World::new().await;
        let permissions =
            PermissionSpec { preset: Some("trusted".into()), budget: turns(10), ..PermissionSpec::default() };
        let parent = world.create_handle(AgentSpec { permissions, ..spec_named("p") }).await;
        let permissions = PermissionSpec { budget: turns(6), ..PermissionSpec::default() };
        let child =
            world.create_handle(AgentSpec { permissions, ..with_parent(spec_named("c"), &parent) }).await;
        expect_end(start_send(&child, 1, "#1 say a; done")).await;
        let target = child.agent_ref();
        drop((parent, child));
        world.store.die_after(appends);
        let destroying = {
            let pool = world.pool.clone();
            tokio::spawn(async move {
                pool.destroy(&target, ChildPolicy::Cascade, runtime::Initiator::Admin).await
            })
        };
        run_until_idle().await;
        destroying.abort();
        let world = world.restart().await;
        assert_eq!(world.names().await, ["p"]);
        let turns = world.pool.permissions(&world.find("p").await).resource_usage[0];
        assert_eq!(
            (turns.used, turns.reserved, turns.remaining),
            (1, 0, Some(9)),
            "killed after {appends} appends"
        );
    }
}
