//! Sleeping agents: when they go to sleep, when not, and that they are unchanged after waking.

use std::sync::Arc;
use std::time::Duration;

use agent::permission::{Budget, Resource};
use agent::{FaultKind, TurnOutcome};
use runtime::{
    AgentHandle, AgentLiveness, AgentSpec, ChildPolicy, EventScope, Initiator, Limits, PermissionChange,
    PermissionSpec,
};

use crate::history::{texts, tool_texts, user_texts};
use crate::restarts::describe_agent;
use crate::world::{
    World, agent_id, alive_task_count, expect_end, expect_fault, is_busy, new_message, numeric_request_id,
    run_until_idle, spec_named, start_send, with_parent, with_preset,
};

const IDLE: Duration = Duration::from_secs(600);

fn idle_sleep_limits() -> Limits {
    Limits { idle_before_sleep: IDLE, ..Limits::default() }
}

/// Waits long enough for idle agents to go to sleep.
async fn pass_idle_time() {
    tokio::time::sleep(IDLE * 2 + Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn idle_agent_sleeps_after_its_idle_time() {
    let world = World::with_limits(idle_sleep_limits()).await;
    world.agent("a").await;
    tokio::time::sleep(IDLE - Duration::from_secs(1)).await;
    assert_eq!(world.live_names().await, ["a"]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.live_names().await, Vec::<String>::new());
    assert_eq!((world.names().await.len(), world.pool.agent_count()), (1, 1), "the agent still exists");
    assert_eq!(alive_task_count(), crate::world::POOL_TASKS, "a sleeping agent has no task");
    assert_eq!(expect_end(start_send(&world.find("a").await, 1, "#1 say a; done")).await.content, "a");
    assert_eq!(world.live_names().await, ["a"]);
    pass_idle_time().await;
    assert_eq!(world.live_names().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn zero_idle_time_disables_sleep() {
    let world = World::with_limits(Limits { idle_before_sleep: Duration::ZERO, ..Limits::default() }).await;
    world.agent("a").await;
    tokio::time::sleep(Duration::from_secs(1_000_000)).await;
    assert_eq!(world.live_names().await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn turns_handles_and_subscriptions_prevent_sleep() {
    let limits = Limits { model_idle_timeout: IDLE * 100, ..idle_sleep_limits() };
    let world = World::with_limits(limits).await;
    let held = world.agent("held").await;
    world.agent("subscribed").await;
    world.agent("working").await;
    world.agent("idle").await;
    let subscription = world.pool.subscribe(EventScope::Agent(world.find("subscribed").await), None).await;
    let mut subscription = subscription.expect("the journal is readable");
    world
        .find("working")
        .await
        .submit_committed(new_message(1, "#1 wait; say a; done"))
        .await
        .expect("it is committed");
    pass_idle_time().await;
    assert_eq!(world.live_names().await, ["held", "subscribed", "working"]);
    expect_end(start_send(&world.find("subscribed").await, 1, "#2 say b; done")).await;
    subscription.next().await.expect("an event");
    world.model.release_all();
    pass_idle_time().await;
    assert_eq!(world.live_names().await, ["held", "subscribed"]);
    drop((held, subscription));
    pass_idle_time().await;
    assert_eq!(world.live_names().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn subscription_to_all_agents_does_not_prevent_sleep() {
    let world = World::with_limits(idle_sleep_limits()).await;
    world.agent("a").await;
    let _subscription = world.pool.subscribe(EventScope::All, None).await.expect("the journal is readable");
    pass_idle_time().await;
    assert_eq!(world.live_names().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn sleep_leaves_an_agent_unchanged() {
    let world = World::with_limits(idle_sleep_limits()).await;
    let parent = world.trusted_agent("p").await;
    let child = world.child_agent("c", &parent).await;
    expect_end(start_send(&child, 1, "#1 report 3; call note x; done | say a; done")).await;
    expect_fault(start_send(&parent, 1, "#2 say hel; fail")).await;
    let before = [describe_agent(&world, &parent), describe_agent(&world, &child)];
    drop((parent, child));
    pass_idle_time().await;
    assert_eq!(world.live_names().await, Vec::<String>::new());
    let (parent, child) = (world.find("p").await, world.find("c").await);
    assert_eq!([describe_agent(&world, &parent), describe_agent(&world, &child)], before);
    assert_eq!(
        expect_end(start_send(&child, 1, "#1 report 3; call note x; done | say a; done")).await.content,
        "a"
    );
}

#[tokio::test(start_paused = true)]
async fn hundred_concurrent_requests_wake_an_agent_once() {
    let world = World::new().await;
    let serial = world.agent("a").await.agent_ref().serial();
    let world = Arc::new(world.restart().await);
    world.store.set_commit_yields(5);
    let tasks: Vec<_> = (0..100)
        .map(|number| {
            let world = Arc::clone(&world);
            tokio::spawn(async move {
                let agent = world.find("a").await;
                let script = format!("#{number} say {number}; done");
                let end = agent.send(new_message(number, &script)).await.expect("the turn succeeds");
                assert_eq!(end.content, number.to_string());
                agent
            })
        })
        .collect();
    let mut agents: Vec<AgentHandle> = Vec::new();
    for task in tasks {
        agents.push(task.await.expect("no panic"));
    }
    assert_eq!(world.store.history_read_count(serial), 1, "the history was read once");
    assert!(agents.iter().all(|agent| agent.is_same_agent(&agents[0])));
    assert_eq!(
        (user_texts(&agents[0]).len(), alive_task_count()),
        (100, 1 + crate::world::POOL_TASKS),
        "one task owns it"
    );
}

#[tokio::test(start_paused = true)]
async fn many_agents_share_few_live_slots() {
    const AGENTS: usize = 2000;
    const LIVE: usize = 50;
    let world = World::with_limits(Limits { live_agents_max: LIVE, ..Limits::default() }).await;
    for number in 0..AGENTS {
        world.agent(&format!("a{number}")).await;
        assert!(alive_task_count() <= LIVE + crate::world::POOL_TASKS + 1, "{} tasks", alive_task_count());
    }
    assert_eq!((world.pool.agent_count(), world.names().await.len()), (AGENTS, AGENTS));
    assert!(world.live_names().await.len() <= LIVE);
    for number in (0..AGENTS).step_by(7) {
        let agent = world.find(&format!("a{number}")).await;
        assert_eq!(expect_end(start_send(&agent, 1, &format!("#{number} say a; done"))).await.content, "a");
        assert!(alive_task_count() <= LIVE + crate::world::POOL_TASKS + 2, "{} tasks", alive_task_count());
    }
    let world = world.restart().await;
    assert_eq!((world.pool.agent_count(), world.live_names().await.len()), (AGENTS, 0));
    assert_eq!(texts(&world.find("a7").await).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn longest_idle_agents_are_evicted_first() {
    let world = World::with_limits(Limits { live_agents_max: 3, ..Limits::default() }).await;
    for name in ["a", "b", "c"] {
        world.agent(name).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    expect_end(start_send(&world.find("a").await, 1, "#1 say a; done")).await;
    run_until_idle().await;
    world.agent("d").await;
    assert_eq!(world.live_names().await, ["a", "c", "d"], "b was idle longest");
    let held = [world.find("a").await, world.find("c").await, world.find("d").await];
    let fault = world.pool.find(&agent_id("b")).await.err().expect("all are in use");
    assert!(is_busy(&fault) && fault.public == "busy: 3 agents are working", "{fault:?}");
    assert!(is_busy(&world.expect_create_rejected(spec_named("e")).await));
    assert_eq!(world.names().await, ["a", "b", "c", "d"], "a list wakes no agent");
    drop(held);
    assert_eq!(world.find("b").await.id().as_str(), "b");
}

fn with_turn_limit(spec: AgentSpec, limit: u64) -> AgentSpec {
    let budget = Budget::unlimited().with_limit(Resource::Turns, Some(limit));
    AgentSpec { permissions: PermissionSpec { budget, ..spec.permissions.clone() }, ..spec }
}

fn turn_usage(world: &World, agent: &AgentHandle) -> (u64, u64, Option<u64>) {
    let usage = world.pool.permissions(agent).resource_usage[0];
    (usage.used, usage.reserved, usage.remaining)
}

#[tokio::test(start_paused = true)]
async fn woken_parent_and_child_share_one_budget() {
    for parent_first in [true, false] {
        let world = World::with_limits(idle_sleep_limits()).await;
        let parent = world.create_handle(with_turn_limit(with_preset(spec_named("p"), "trusted"), 5)).await;
        world.child_agent("c", &parent).await;
        drop(parent);
        pass_idle_time().await;
        assert_eq!(world.live_names().await, Vec::<String>::new());
        let (parent, child) = if parent_first {
            let parent = world.find("p").await;
            (parent, world.find("c").await)
        } else {
            let child = world.find("c").await;
            (world.find("p").await, child)
        };
        expect_end(start_send(&child, 1, "#1 say a; done")).await;
        expect_end(start_send(&parent, 1, "#2 say b; done")).await;
        assert_eq!(
            (turn_usage(&world, &parent), turn_usage(&world, &child)),
            ((2, 0, Some(3)), (1, 0, Some(3)))
        );
        // One of them sleeps while the other consumes more.
        drop(parent);
        pass_idle_time().await;
        expect_end(start_send(&child, 2, "#3 say c; done")).await;
        drop(child);
        pass_idle_time().await;
        let parent = world.find("p").await;
        assert_eq!(turn_usage(&world, &parent), (3, 0, Some(2)), "parent first: {parent_first}");
        assert!(world.find("c").await.is_descendant_of(&parent));
    }
}

#[tokio::test(start_paused = true)]
async fn parents_change_applies_to_a_sleeping_child() {
    let world = World::with_limits(idle_sleep_limits()).await;
    let parent = world.trusted_agent("p").await;
    drop(world.child_agent("c", &parent).await);
    pass_idle_time().await;
    assert_eq!(world.live_names().await, ["p"]);
    let change = PermissionChange { disable_tools: Some(vec!["note".into()]), ..PermissionChange::default() };
    world.change_permissions(&parent, &change).await.expect("fewer permissions are always allowed");
    let child = world.find("c").await;
    expect_end(start_send(&child, 1, "#1 call note x; done | say a; done")).await;
    assert!(tool_texts(&child)[0].starts_with("Permission denied"), "{:?}", tool_texts(&child));
}

#[tokio::test(start_paused = true)]
async fn sleeping_agent_is_destroyed_with_its_descendants() {
    let world = World::with_limits(idle_sleep_limits()).await;
    let parent = world.create_handle(with_turn_limit(with_preset(spec_named("p"), "trusted"), 9)).await;
    let child = world
        .create_handle(with_turn_limit(with_parent(with_preset(spec_named("c"), "sandboxed"), &parent), 4))
        .await;
    let token = world.create(spec_named("x")).await.expect("the agent is created").capability;
    drop((parent, child));
    pass_idle_time().await;
    assert!(world.destroy_named("c", ChildPolicy::Cascade).await);
    assert_eq!(world.live_names().await, Vec::<String>::new(), "no agent is woken for it");
    assert_eq!(turn_usage(&world, &world.find("p").await), (0, 0, Some(9)), "its budget is refunded");
    pass_idle_time().await;
    let destroyed = world.pool.find_ref(&agent_id("p")).expect("the agent exists");
    assert!(
        world.destroy_named("p", ChildPolicy::Cascade).await
            && world.destroy_named("x", ChildPolicy::Cascade).await
    );
    assert!(!world.destroy_ref(&destroyed, ChildPolicy::Cascade).await, "a second destroy finds nothing");
    assert_eq!((world.names().await.len(), world.pool.agent_count()), (0, 0));
    assert!(world.pool.find_ref_by_capability(token.reveal().as_bytes()).is_none());
    assert_eq!(world.pool.wake(&destroyed).await.err().map(|fault| fault.kind), Some(FaultKind::NotFound));
    let world = world.restart().await;
    assert_eq!(world.names().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn agent_destroyed_while_waking_does_not_exist() {
    for (yields, delay) in (0..12).flat_map(|yields| (0..12).map(move |delay| (yields, delay))) {
        let world = World::new().await;
        world
            .agent("a")
            .await
            .submit_committed(new_message(1, "#1 wait; say a; done"))
            .await
            .expect("it is committed");
        run_until_idle().await;
        let options = world.restart_options();
        world.kill().await;
        let world = World::open(options).await;
        world.store.set_commit_yields(yields);
        let target = world.pool.find_ref(&agent_id("a")).expect("the agent exists");
        let (woken, destroyed) = tokio::join!(world.pool.wake(&target), async {
            for _ in 0..delay {
                tokio::task::yield_now().await;
            }
            world.pool.destroy(&target, ChildPolicy::Cascade, Initiator::Admin).await
        });
        assert_eq!(destroyed, Ok(true));
        run_until_idle().await;
        if let Ok(handle) = woken {
            // If the wake was faster, the handle belongs to a destroyed agent.
            let fault = expect_fault(start_send(&handle, 2, "#2 say b; done")).await;
            assert_eq!(fault.kind, FaultKind::NotFound, "{fault:?}");
        }
        run_until_idle().await;
        let left = (world.pool.open_turns(), world.model.observations().live_total, alive_task_count());
        assert_eq!(left, (0, 0, crate::world::POOL_TASKS), "nothing is left, {yields} and {delay}");
        assert_eq!(world.names().await, Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn child_wakes_in_the_slot_of_its_parent() {
    let world = World::with_limits(Limits { live_agents_max: 1, ..Limits::default() }).await;
    let parent = world.trusted_agent("p").await.agent_ref();
    world.create(AgentSpec { parent: Some(agent_id("p")), ..spec_named("c") }).await.expect("it is created");
    world.pool.wake(&parent).await.expect("the child sleeps");
    // The parent ends while the store reads the child.
    world.store.set_commit_yields(5);
    let child = world.pool.find(&agent_id("c")).await.expect("the parent's node is restored or still there");
    assert_eq!(child.map(|child| world.status(&child).parent), Some(Some(agent_id("p"))));
}

#[tokio::test(start_paused = true)]
async fn requests_during_eviction_find_one_agent() {
    for delay in 0..40 {
        let world = World::with_limits(Limits { live_agents_max: 1, ..Limits::default() }).await;
        world.store.set_commit_yields(2);
        world.agent("a").await;
        world.agent("b").await;
        let send_when_possible = |name: &'static str, request: i64, delay: usize| {
            let pool = world.pool.clone();
            async move {
                for _ in 0..delay {
                    tokio::task::yield_now().await;
                }
                loop {
                    let text = format!("#{name}{request} say {name}; done");
                    // The other agent may be busy.
                    if let Ok(Some(agent)) = pool.find(&agent_id(name)).await {
                        return agent
                            .send(new_message(request, &text))
                            .await
                            .expect("the turn succeeds")
                            .content;
                    }
                    tokio::task::yield_now().await;
                }
            }
        };
        let contents = tokio::join!(
            send_when_possible("a", 1, 0),
            send_when_possible("b", 1, delay),
            send_when_possible("a", 2, delay),
            send_when_possible("b", 2, 2 * delay)
        );
        assert_eq!(contents, ("a".into(), "b".into(), "a".into(), "b".into()));
        for name in ["a", "b"] {
            let agent = world.find(name).await;
            assert_eq!(user_texts(&agent).len(), 2, "{name} after {delay}");
        }
        assert_eq!(
            world.model.observations().overlapping_agents,
            Vec::<String>::new(),
            "an agent has one owner"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn send_from_an_agent_wakes_its_target() {
    let world = World::with_limits(idle_sleep_limits()).await;
    let parent = world.trusted_agent("p").await;
    drop(world.child_agent("c", &parent).await);
    pass_idle_time().await;
    assert_eq!(world.live_names().await, ["p"]);
    let script = "#1 call agent_list; call agent_send {to=c wait=yes #2 say hi; done}; done | say so; done";
    assert_eq!(expect_end(start_send(&parent, 1, script)).await.content, "so");
    assert_eq!(tool_texts(&parent), ["p c", "replied 'hi'"]);
}

#[tokio::test(start_paused = true)]
async fn cancel_of_an_ended_send_after_sleep_finds_nothing() {
    let world = World::with_limits(idle_sleep_limits()).await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "#1 say a; done")).await;
    drop(agent);
    pass_idle_time().await;
    let agent = world.find("a").await;
    assert!(!agent.cancel(numeric_request_id(1)).await);
    let sending = start_send(&agent, 2, "#2 say hel; wait");
    run_until_idle().await;
    assert!(agent.cancel(numeric_request_id(2)).await);
    assert_eq!(expect_end(sending).await.outcome, TurnOutcome::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn detached_turn_ends_before_its_agent_sleeps() {
    let world =
        World::with_limits(Limits { idle_before_sleep: Duration::from_secs(1), ..Limits::default() }).await;
    world
        .agent("a")
        .await
        .submit_committed(new_message(1, "#1 say hel; pass 60000; say lo; done"))
        .await
        .expect("it is committed");
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(world.live_names().await, ["a"]);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(world.live_names().await, Vec::<String>::new());
    assert_eq!(texts(&world.find("a").await)[1], "hello");
    assert_eq!(world.listed_status("a").await.state, AgentLiveness::Live);
}
