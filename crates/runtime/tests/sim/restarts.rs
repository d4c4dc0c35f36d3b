//! What outlives the daemon: everything an agent is and has, whether it was stopped, killed, or only slept.

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

/// Everything that can be seen of an agent.
pub(crate) fn describe_agent(world: &World, agent: &AgentHandle) -> String {
    let mut summary = world.summary(agent);
    summary.state = AgentLiveness::Live;
    let parts = [
        format!("{summary:?}"),
        format!("{:?}", messages(agent)),
        format!("{:?}", agent.record()),
        format!("{:?}", world.pool.permissions(agent)),
        format!("{:?} {:?} {:?}", agent.tokens(), agent.context(), agent.tool_names()),
    ];
    parts.join("\n")
}

async fn describe_all_agents(world: &World) -> Vec<String> {
    let mut portraits = Vec::new();
    for name in world.names().await {
        portraits.push(describe_agent(world, &world.find(&name).await));
    }
    portraits
}

fn budget() -> Budget {
    let budget =
        Budget::unlimited().with_limit(Resource::Turns, Some(10)).with_limit(Resource::ToolCalls, Some(20));
    budget.with_limit(Resource::Tokens, Some(1000)).with_limit(Resource::WallMs, Some(100_000))
}

/// A family that has done something of everything.
async fn create_tree(world: &World) {
    let permissions =
        PermissionSpec { preset: Some("trusted".into()), budget: budget(), ..PermissionSpec::default() };
    let parent = world.create_handle(AgentSpec { permissions, ..spec_named("p") }).await;
    let permissions = PermissionSpec {
        disable_tools: vec!["step".into()],
        write_paths: Some(vec!["deep".into()]),
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
    world.change_permissions(&child, &change).await.expect("it is its own");
    world.finish(&child).await;
}

#[tokio::test(start_paused = true)]
async fn everything_survives_a_kill_a_stop_and_sleep() {
    let world = World::new().await;
    create_tree(&world).await;
    let before = describe_all_agents(&world).await;
    assert_eq!(before.len(), 3);
    let world = world.restart().await;
    assert_eq!(world.live_names().await, Vec::<String>::new(), "nobody is woken for nothing");
    assert_eq!(describe_all_agents(&world).await, before, "after a kill");
    let world = world.stop_and_start().await;
    assert_eq!(describe_all_agents(&world).await, before, "after a stop");
    assert_eq!(world.model.observations().prompts.len(), 0, "no model was asked for that");
}

#[tokio::test(start_paused = true)]
async fn a_list_shows_the_same_of_an_agent_whether_it_sleeps_or_not() {
    let world = World::new().await;
    create_tree(&world).await;
    let shown = |list: Vec<runtime::AgentStatus>| -> Vec<String> {
        let awake = |mut one: runtime::AgentStatus| {
            one.state = AgentLiveness::Live;
            format!("{one:?}")
        };
        list.into_iter().map(awake).collect()
    };
    let before = shown(world.list().await);
    let world = world.restart().await;
    let asleep = world.list().await;
    assert!(asleep.iter().all(|agent| agent.state == AgentLiveness::Asleep));
    assert_eq!(shown(asleep), before);
}

#[tokio::test(start_paused = true)]
async fn a_woken_agent_goes_on_where_it_was() {
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
    let asked: Vec<_> = request.messages.iter().map(|message| message.text.as_str()).collect();
    assert_eq!(asked.len(), 8, "{asked:?}");
    assert_eq!(asked[6], "hel", "what had failed before is there too");
    assert_eq!(tool_texts(&child).split_off(2)[0], "deep/z beneath /work/a");
    assert!(tool_texts(&child)[3].contains("Tool 'step' is disabled"), "{:?}", tool_texts(&child));
    let turns = world.pool.permissions(&child).resource_usage[0];
    assert_eq!((turns.limit, turns.used, turns.remaining), (Some(4), 3, Some(1)));
    assert_eq!(idle_history_violation(&messages(&child)), None);
}

#[tokio::test(start_paused = true)]
async fn a_capability_outlives_the_daemon_and_not_its_agent() {
    let world = World::new().await;
    let token = world.create(spec_named("a")).await.expect("there is room").capability;
    let gone = world.create(spec_named("b")).await.expect("there is room");
    world.destroy(&gone.handle).await;
    let world = world.restart().await;
    let found = world.pool.find_ref_by_capability(token.reveal().as_bytes()).expect("it is known");
    assert_eq!(found.id().as_str(), "a");
    assert!(world.pool.find_ref_by_capability(gone.capability.reveal().as_bytes()).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_child_is_held_under_its_sleeping_parents_ceiling() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    world.child_agent("c", &parent).await;
    let change = PermissionChange { disable_tools: Some(vec!["note".into()]), ..PermissionChange::default() };
    world.change_permissions(&parent, &change).await.expect("less is always allowed");
    drop(parent);
    let world = world.restart().await;
    let child = world.find("c").await;
    assert_eq!(world.live_names().await, ["c"], "the parent sleeps on");
    expect_end(start_send(&child, 1, "call note x; call slow 1; done | say so; done")).await;
    assert_eq!(tool_texts(&child)[0], "Permission denied: Tool 'note' is disabled by permission policy");
    let parent = world.find("p").await;
    world
        .change_permissions(
            &parent,
            &PermissionChange { disable_tools: Some(Vec::new()), ..PermissionChange::default() },
        )
        .await
        .expect("allowed");
    expect_end(start_send(&child, 2, "#2 call note y; done | say so; done")).await;
    assert_eq!(tool_texts(&child)[2], "noted y", "both look at one place in the tree");
}

#[tokio::test(start_paused = true)]
async fn what_is_set_aside_stays_set_aside_and_comes_back_once() {
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
        let one = world.pool.permissions(agent).resource_usage[0];
        (one.limit, one.used, one.reserved, one.remaining)
    };
    let world = world.restart().await;
    let parent = world.find("p").await;
    assert_eq!(account(&world, &parent), (Some(10), 0, 6, Some(4)));
    let permissions = PermissionSpec { budget: turns(5), ..PermissionSpec::default() };
    let fault =
        world.expect_create_refused(AgentSpec { permissions, ..with_parent(spec_named("d"), &parent) }).await;
    assert_eq!(fault.kind, FaultKind::Denied, "{fault}");
    assert!(world.destroy_named("c", ChildPolicy::Cascade).await, "it sleeps, and is destroyed all the same");
    assert_eq!(account(&world, &parent), (Some(10), 1, 0, Some(9)));
    drop(parent);
    let world = world.restart().await;
    assert_eq!(account(&world, &world.find("p").await), (Some(10), 1, 0, Some(9)));
}

#[tokio::test(start_paused = true)]
async fn temporary_agents_do_not_outlive_the_daemon_and_their_children_do() {
    let world = World::new().await;
    let temporary = world
        .create_handle(with_preset(
            AgentSpec { name: NameSpec::NextTemporary, ..AgentSpec::default() },
            "yolo",
        ))
        .await;
    let named_so = world.create(spec_named(".t")).await.expect("there is room");
    let kept = world.child_agent("kept", &temporary).await;
    world.child_agent(".u", &temporary).await;
    let (may, token) = (world.pool.permissions(&kept).may, named_so.capability);
    drop((temporary, kept));
    let world = world.restart().await;
    assert_eq!(world.names().await, ["kept"]);
    assert!(world.pool.find_ref_by_capability(token.reveal().as_bytes()).is_none());
    let kept = world.find("kept").await;
    assert_eq!(
        (world.summary(&kept).depth, world.pool.permissions(&kept).may),
        (1, may),
        "under the ceiling it had"
    );
    let next = world.create_handle(AgentSpec { name: NameSpec::NextTemporary, ..AgentSpec::default() }).await;
    assert_eq!(next.id().as_str(), ".1", "its name is free");
    assert!(!kept.is_descendant_of(&next), "and whoever gets it adopts nobody");
}

#[tokio::test(start_paused = true)]
async fn orphans_keep_the_ceiling_they_had() {
    let world = World::new().await;
    let parent = world.trusted_agent("p").await;
    let change = PermissionChange { disable_tools: Some(vec!["note".into()]), ..PermissionChange::default() };
    let orphan = world.child_agent("o", &parent).await;
    world.change_permissions(&parent, &change).await.expect("less is always allowed");
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
        presets.add(name, "trusted", narrowing.clone()).expect("a good preset");
    }
    runtime::PoolOptions { presets, ..WorldOptions::default().pool_options }
}

#[tokio::test(start_paused = true)]
async fn a_preset_means_what_it_means_now_and_one_that_is_gone_allows_nothing() {
    let plan = WorldOptions {
        pool_options: options_with_presets(&[("mine", Narrowing::default())]),
        ..WorldOptions::default()
    };
    let world = World::open(plan).await;
    let agent = world.create_handle(with_preset(spec_named("a"), "mine")).await;
    world.create_handle(with_parent(spec_named("c"), &agent)).await;
    expect_end(start_send(&agent, 1, "#1 call note x; done | say so; done")).await;
    drop(agent);
    let narrower = Narrowing { disable_tools: vec![Arc::from("note")], ..Narrowing::default() };
    let plan =
        WorldOptions { pool_options: options_with_presets(&[("mine", narrower)]), ..world.restart_options() };
    world.kill().await;
    let world = World::open(plan).await;
    let agent = world.find("a").await;
    expect_end(start_send(&agent, 2, "#2 call note x; call slow 1; done | say so; done")).await;
    assert!(tool_texts(&agent)[1].starts_with("Permission denied"), "{:?}", tool_texts(&agent));
    assert_eq!(tool_texts(&agent)[2], "took 1");
    drop(agent);
    let plan = WorldOptions { pool_options: options_with_presets(&[]), ..world.restart_options() };
    world.kill().await;
    let world = World::open(plan).await;
    let agent = world.find("a").await;
    assert_eq!(texts(&agent).len(), 9, "it can be read");
    assert_eq!((agent.tool_names().len(), world.summary(&agent).preset.as_ref()), (0, "mine"));
    expect_end(start_send(&agent, 3, "#3 call note x; call read y; done | say so; done")).await;
    assert!(tool_texts(&agent)[3..].iter().all(|result| result.starts_with("Permission denied")));
    let child = world.find("c").await;
    expect_end(start_send(&child, 1, "#4 call note x; done | say so; done")).await;
    assert!(tool_texts(&child)[0].starts_with("Permission denied"), "nor to anybody below it");
    assert_eq!(
        world.expect_create_refused(with_parent(spec_named("d"), &agent)).await.kind,
        FaultKind::Denied
    );
}

#[tokio::test(start_paused = true)]
async fn an_agent_whose_model_is_gone_can_be_read_and_says_so_when_it_is_asked() {
    let world =
        World::open(WorldOptions { models: vec!["scripted/one", "scripted/two"], ..WorldOptions::default() })
            .await;
    let agent =
        world.create_handle(AgentSpec { model: Some("scripted/two".into()), ..spec_named("a") }).await;
    expect_end(start_send(&agent, 1, "#1 say a; done")).await;
    drop(agent);
    let plan = WorldOptions { models: vec!["scripted/one"], ..world.restart_options() };
    world.kill().await;
    let world = World::open(plan).await;
    let agent = world.find("a").await;
    assert_eq!((texts(&agent).len(), agent.record().model.as_deref()), (2, Some("scripted/two")));
    let fault = expect_fault(start_send(&agent, 2, "#2 say b; done")).await;
    assert_eq!(fault.kind, FaultKind::Model);
    assert!(fault.public.contains("no such model: scripted/two"), "{fault}");
    assert_eq!(idle_history_violation(&messages(&agent)), None);
    let plan = world.restart_options();
    drop(agent);
    world.kill().await;
    let world = World::open(WorldOptions { models: vec!["scripted/two"], ..plan }).await;
    assert_eq!(
        expect_end(start_send(&world.find("a").await, 3, "#3 say c; done")).await.content,
        "c",
        "when it is back"
    );
}

#[tokio::test(start_paused = true)]
async fn second_sets_and_rights_that_were_changed_are_those_of_later() {
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
    world.change_permissions(&agent, &change).await.expect("it is allowed");
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
        .expect("more");
    let permissions = world.pool.permissions(&agent);
    assert_eq!(permissions.resource_usage[0].limit, Some(7), "a change of one thing changes no other");
    assert!(!permissions.may_grant.tools.contains("note") && permissions.may.tools.contains("slow"));
}

#[tokio::test(start_paused = true)]
async fn serials_are_never_given_twice() {
    let world = World::new().await;
    let first = world.agent("a").await.agent_ref().serial();
    world.destroy_named("a", ChildPolicy::Cascade).await;
    let world = world.restart().await;
    let second = world.agent("a").await.agent_ref().serial();
    assert!(second > first, "{first} and {second}");
    let world = world.restart().await;
    assert_eq!(world.find("a").await.agent_ref().serial(), second);
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_everybody_had_asked_for_is_not_asked_for_again_by_itself() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    world.finish(&agent).await;
    assert!(world.pool.is_stopping());
    drop(agent);
    let world = world.stop_and_start().await;
    assert!(!world.pool.is_stopping());
    let agent = world.find("a").await;
    assert!(world.summary(&agent).should_shutdown);
    assert_eq!(expect_end(start_send(&agent, 1, "say a; done")).await.content, "a");
}

#[tokio::test(start_paused = true)]
async fn turns_that_a_stop_cancels_are_over_and_those_that_nobody_waits_for_go_on() {
    let world = World::new().await;
    let (waited, left) = (world.agent("waited").await, world.agent("left").await);
    let sending = start_send(&waited, 1, "#1 say hel; wait; say lo; done");
    let leaving = start_send(&left, 1, "#2 say hel; pass 20000; say lo; done");
    run_until_idle().await;
    leaving.abort();
    assert!(leaving.await.is_err_and(|fault| fault.is_cancelled()));
    drop((waited, left));
    let world = world.stop_and_start().await;
    assert_eq!(expect_end(sending).await.outcome, TurnOutcome::Cancelled);
    let left = world.find("left").await;
    assert_eq!(world.pool.open_turns(), 1);
    assert_eq!(
        expect_end(start_send(&left, 1, "#2 say hel; pass 20000; say lo; done")).await.content,
        "hello"
    );
    assert_eq!(texts(&left).len(), 2);
    assert_eq!(texts(&world.find("waited").await), ["#1 say hel; wait; say lo; done", "hel"]);
    assert!(!left.cancel(numeric_request_id(1)).await);
    assert!(world.pool.find(&agent_id("nobody")).await.expect("it can be looked for").is_none());
}

#[tokio::test(start_paused = true)]
async fn what_was_set_aside_for_an_agent_that_was_never_kept_is_not_set_aside_after_a_crash() {
    let turns = |limit| Budget::unlimited().with_limit(Resource::Turns, Some(limit));
    let world = World::new().await;
    let permissions =
        PermissionSpec { preset: Some("trusted".into()), budget: turns(10), ..PermissionSpec::default() };
    let parent = world.create_handle(AgentSpec { permissions, ..spec_named("p") }).await;
    let other = world.agent("x").await.agent_ref();
    // Whoever is destroyed has the tree for itself until that is kept.
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
    parent.submit(crate::world::new_message(1, "#1 say a; done")).expect("there is room");
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
async fn what_was_set_aside_for_an_agent_that_was_destroyed_comes_back_whenever_the_daemon_is_killed() {
    let turns = |limit| Budget::unlimited().with_limit(Resource::Turns, Some(limit));
    for calls in 1..4 {
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
        world.store.die_after(calls);
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
            "killed behind {calls} calls"
        );
    }
}
