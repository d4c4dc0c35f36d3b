//! Agents that sleep: when they do, when they do not, and that nobody can tell once they are awake again.

use std::sync::Arc;
use std::time::Duration;

use agent::permission::{Budget, Resource};
use agent::{FaultKind, TurnOutcome};
use runtime::{AgentHandle, AgentLiveness, AgentSpec, Initiator, PermissionChange, ChildPolicy, EventScope, Limits, PermissionSpec};

use crate::history::{questions, results, texts};
use crate::restarts::portrait;
use crate::world::{
    World, below, end_of, fault_of, id, is_busy, message, named, numeric_request_id, preset, settle, start, tasks,
};

const IDLE: Duration = Duration::from_secs(600);

fn sleepy() -> Limits {
    Limits { idle_before_sleep: IDLE, ..Limits::default() }
}

/// So that whoever may go to sleep does.
async fn a_while() {
    tokio::time::sleep(IDLE * 2 + Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_nobody_needs_goes_to_sleep_after_its_time_and_not_before() {
    let world = World::with(sleepy()).await;
    world.agent("a").await;
    tokio::time::sleep(IDLE - Duration::from_secs(1)).await;
    assert_eq!(world.live().await, ["a"]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.live().await, Vec::<String>::new());
    assert_eq!((world.names().await.len(), world.pool.agent_count()), (1, 1), "it is there all the same");
    assert_eq!(tasks(), crate::world::POOL_TASKS, "it costs no task");
    assert_eq!(end_of(start(&world.find("a").await, 1, "#1 say a; done")).await.content, "a");
    assert_eq!(world.live().await, ["a"]);
    a_while().await;
    assert_eq!(world.live().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn without_a_time_nobody_goes_to_sleep() {
    let world = World::with(Limits { idle_before_sleep: Duration::ZERO, ..Limits::default() }).await;
    world.agent("a").await;
    tokio::time::sleep(Duration::from_secs(1_000_000)).await;
    assert_eq!(world.live().await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn nobody_sleeps_while_it_works_or_somebody_holds_it_or_listens_to_it() {
    let limits = Limits { model_idle_timeout: IDLE * 100, ..sleepy() };
    let world = World::with(limits).await;
    let held = world.agent("held").await;
    world.agent("heard").await;
    world.agent("works").await;
    world.agent("rests").await;
    let listening = world.pool.subscribe(EventScope::Agent(world.find("heard").await), None).await;
    let mut listening = listening.expect("the journal can be read");
    world.find("works").await.submit_committed(message(1, "#1 wait; say a; done")).await.expect("it is kept");
    a_while().await;
    assert_eq!(world.live().await, ["held", "heard", "works"]);
    end_of(start(&world.find("heard").await, 1, "#2 say b; done")).await;
    listening.next().await.expect("it hears");
    world.model.release_all();
    a_while().await;
    assert_eq!(world.live().await, ["held", "heard"]);
    drop((held, listening));
    a_while().await;
    assert_eq!(world.live().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_listener_to_everybody_keeps_nobody_awake() {
    let world = World::with(sleepy()).await;
    world.agent("a").await;
    let _listening = world.pool.subscribe(EventScope::All, None).await.expect("the journal can be read");
    a_while().await;
    assert_eq!(world.live().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn sleep_changes_nothing_of_an_agent() {
    let world = World::with(sleepy()).await;
    let parent = world.trusted("p").await;
    let child = world.child("c", &parent).await;
    end_of(start(&child, 1, "#1 report 3; call note x; done | say a; done")).await;
    fault_of(start(&parent, 1, "#2 say hel; fail")).await;
    let before = [portrait(&world, &parent), portrait(&world, &child)];
    drop((parent, child));
    a_while().await;
    assert_eq!(world.live().await, Vec::<String>::new());
    let (parent, child) = (world.find("p").await, world.find("c").await);
    assert_eq!([portrait(&world, &parent), portrait(&world, &child)], before);
    assert_eq!(end_of(start(&child, 1, "#1 report 3; call note x; done | say a; done")).await.content, "a");
}

#[tokio::test(start_paused = true)]
async fn a_hundred_first_requests_wake_an_agent_once() {
    let world = World::new().await;
    let serial = world.agent("a").await.agent_ref().serial();
    let world = Arc::new(world.restart().await);
    world.store.set_commit_yields(5);
    let asking: Vec<_> = (0..100)
        .map(|place| {
            let world = Arc::clone(&world);
            tokio::spawn(async move {
                let agent = world.find("a").await;
                let script = format!("#{place} say {place}; done");
                let end = agent.send(message(place, &script)).await.expect("it is answered");
                assert_eq!(end.content, place.to_string());
                agent
            })
        })
        .collect();
    let mut agents: Vec<AgentHandle> = Vec::new();
    for asked in asking {
        agents.push(asked.await.expect("nobody panics"));
    }
    assert_eq!(world.store.history_read_count(serial), 1, "it was read once");
    assert!(agents.iter().all(|agent| agent.is_same_agent(&agents[0])));
    assert_eq!(
        (questions(&agents[0]).len(), tasks()),
        (100, 1 + crate::world::POOL_TASKS),
        "one task owns it"
    );
}

#[tokio::test(start_paused = true)]
async fn thousands_of_agents_live_in_turn_where_few_may_live_at_once() {
    const AGENTS: usize = 2000;
    const LIVE: usize = 50;
    let world = World::with(Limits { live_agents_max: LIVE, ..Limits::default() }).await;
    for place in 0..AGENTS {
        world.agent(&format!("a{place}")).await;
        assert!(tasks() <= LIVE + crate::world::POOL_TASKS + 1, "{} tasks", tasks());
    }
    assert_eq!((world.pool.agent_count(), world.names().await.len()), (AGENTS, AGENTS));
    assert!(world.live().await.len() <= LIVE);
    for place in (0..AGENTS).step_by(7) {
        let agent = world.find(&format!("a{place}")).await;
        assert_eq!(end_of(start(&agent, 1, &format!("#{place} say a; done"))).await.content, "a");
        assert!(tasks() <= LIVE + crate::world::POOL_TASKS + 2, "{} tasks", tasks());
    }
    let world = world.restart().await;
    assert_eq!((world.pool.agent_count(), world.live().await.len()), (AGENTS, 0));
    assert_eq!(texts(&world.find("a7").await).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn those_that_rest_longest_make_room_and_those_at_work_do_not() {
    let world = World::with(Limits { live_agents_max: 3, ..Limits::default() }).await;
    for name in ["a", "b", "c"] {
        world.agent(name).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    end_of(start(&world.find("a").await, 1, "#1 say a; done")).await;
    settle().await;
    world.agent("d").await;
    assert_eq!(world.live().await, ["a", "c", "d"], "b was asked for nothing for the longest time");
    let held = [world.find("a").await, world.find("c").await, world.find("d").await];
    let fault = world.pool.find(&id("b")).await.err().expect("all of them are needed");
    assert!(is_busy(&fault) && fault.public == "busy: 3 agents are at work", "{fault:?}");
    assert!(is_busy(&world.refusal(named("e")).await));
    assert_eq!(world.names().await, ["a", "b", "c", "d"], "a list wakes nobody");
    drop(held);
    assert_eq!(world.find("b").await.id().as_str(), "b");
}

fn turns(spec: AgentSpec, limit: u64) -> AgentSpec {
    let budget = Budget::unlimited().with_limit(Resource::Turns, Some(limit));
    AgentSpec { permissions: PermissionSpec { budget, ..spec.permissions.clone() }, ..spec }
}

fn used(world: &World, agent: &AgentHandle) -> (u64, u64, Option<u64>) {
    let one = world.pool.permissions(agent).resource_usage[0];
    (one.used, one.reserved, one.remaining)
}

#[tokio::test(start_paused = true)]
async fn parent_and_child_look_at_one_budget_whoever_wakes_first() {
    for parent_first in [true, false] {
        let world = World::with(sleepy()).await;
        let parent = world.make(turns(preset(named("p"), "trusted"), 5)).await;
        world.child("c", &parent).await;
        drop(parent);
        a_while().await;
        assert_eq!(world.live().await, Vec::<String>::new());
        let (parent, child) = if parent_first {
            let parent = world.find("p").await;
            (parent, world.find("c").await)
        } else {
            let child = world.find("c").await;
            (world.find("p").await, child)
        };
        end_of(start(&child, 1, "#1 say a; done")).await;
        end_of(start(&parent, 1, "#2 say b; done")).await;
        assert_eq!((used(&world, &parent), used(&world, &child)), ((2, 0, Some(3)), (1, 0, Some(3))));
        // One of them sleeps while the other uses more.
        drop(parent);
        a_while().await;
        end_of(start(&child, 2, "#3 say c; done")).await;
        drop(child);
        a_while().await;
        let parent = world.find("p").await;
        assert_eq!(used(&world, &parent), (3, 0, Some(2)), "parent first: {parent_first}");
        assert!(world.find("c").await.is_descendant_of(&parent));
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_at_a_parent_counts_for_a_child_that_slept_meanwhile() {
    let world = World::with(sleepy()).await;
    let parent = world.trusted("p").await;
    drop(world.child("c", &parent).await);
    a_while().await;
    assert_eq!(world.live().await, ["p"]);
    let change = PermissionChange { disable_tools: Some(vec!["note".into()]), ..PermissionChange::default() };
    world.change_permissions(&parent, &change).await.expect("less is always allowed");
    let child = world.find("c").await;
    end_of(start(&child, 1, "#1 call note x; done | say a; done")).await;
    assert!(results(&child)[0].starts_with("Permission denied"), "{:?}", results(&child));
}

#[tokio::test(start_paused = true)]
async fn a_sleeping_agent_is_destroyed_with_everybody_below_it() {
    let world = World::with(sleepy()).await;
    let parent = world.make(turns(preset(named("p"), "trusted"), 9)).await;
    let child = world.make(turns(below(preset(named("c"), "sandboxed"), &parent), 4)).await;
    let token = world.create(named("x")).await.expect("there is room").capability;
    drop((parent, child));
    a_while().await;
    assert!(world.destroy_named("c", ChildPolicy::Cascade).await);
    assert_eq!(world.live().await, Vec::<String>::new(), "nobody is woken for it");
    assert_eq!(used(&world, &world.find("p").await), (0, 0, Some(9)), "its share came back");
    a_while().await;
    let gone = world.pool.find_ref(&id("p")).expect("it is there");
    assert!(world.destroy_named("p", ChildPolicy::Cascade).await && world.destroy_named("x", ChildPolicy::Cascade).await);
    assert!(!world.end(&gone, ChildPolicy::Cascade).await, "a second time there is nobody");
    assert_eq!((world.names().await.len(), world.pool.agent_count()), (0, 0));
    assert!(world.pool.find_ref_by_capability(token.reveal().as_bytes()).is_none());
    assert_eq!(world.pool.wake(&gone).await.err().map(|fault| fault.kind), Some(FaultKind::NotFound));
    let world = world.restart().await;
    assert_eq!(world.names().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_destroyed_while_it_wakes_is_not_there() {
    for (reads, delay) in (0..12).flat_map(|reads| (0..12).map(move |delay| (reads, delay))) {
        let world = World::new().await;
        world.agent("a").await.submit_committed(message(1, "#1 wait; say a; done")).await.expect("it is kept");
        settle().await;
        let plan = world.next_life();
        world.kill().await;
        let world = World::open(plan).await;
        world.store.set_commit_yields(reads);
        let target = world.pool.find_ref(&id("a")).expect("it is there");
        let (woken, destroyed) = tokio::join!(world.pool.wake(&target), async {
            for _ in 0..delay {
                tokio::task::yield_now().await;
            }
            world.pool.destroy(&target, ChildPolicy::Cascade, Initiator::Admin).await
        });
        assert_eq!(destroyed, Ok(true));
        settle().await;
        if let Ok(handle) = woken {
            // Whoever was faster has an agent that is gone.
            let fault = fault_of(start(&handle, 2, "#2 say b; done")).await;
            assert_eq!(fault.kind, FaultKind::NotFound, "{fault:?}");
        }
        settle().await;
        let left = (world.pool.open_turns(), world.model.seen().live_total, tasks());
        assert_eq!(left, (0, 0, crate::world::POOL_TASKS), "nothing lives on, {reads} and {delay}");
        assert_eq!(world.names().await, Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_while_an_agent_falls_asleep_finds_one_agent() {
    for delay in 0..40 {
        let world = World::with(Limits { live_agents_max: 1, ..Limits::default() }).await;
        world.store.set_commit_yields(2);
        world.agent("a").await;
        world.agent("b").await;
        let ask = |name: &'static str, request: i64, delay: usize| {
            let pool = world.pool.clone();
            async move {
                for _ in 0..delay {
                    tokio::task::yield_now().await;
                }
                loop {
                    let text = format!("#{name}{request} say {name}; done");
                    // The other may be at work.
                    if let Ok(Some(agent)) = pool.find(&id(name)).await {
                        return agent.send(message(request, &text)).await.expect("it is answered").content;
                    }
                    tokio::task::yield_now().await;
                }
            }
        };
        let asked =
            tokio::join!(ask("a", 1, 0), ask("b", 1, delay), ask("a", 2, delay), ask("b", 2, 2 * delay));
        assert_eq!(asked, ("a".into(), "b".into(), "a".into(), "b".into()));
        for name in ["a", "b"] {
            let agent = world.find(name).await;
            assert_eq!(questions(&agent).len(), 2, "{name} after {delay}");
        }
        assert_eq!(world.model.seen().overlaps, Vec::<String>::new(), "an agent has one owner");
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_talks_to_a_sleeping_one_wakes_it() {
    let world = World::with(sleepy()).await;
    let parent = world.trusted("p").await;
    drop(world.child("c", &parent).await);
    a_while().await;
    assert_eq!(world.live().await, ["p"]);
    let script = "#1 call agent_list; call agent_send {to=c wait=yes #2 say hi; done}; done | say so; done";
    assert_eq!(end_of(start(&parent, 1, script)).await.content, "so");
    assert_eq!(results(&parent), ["p c", "said 'hi'"]);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_of_a_send_that_ended_before_its_agent_slept_finds_nothing() {
    let world = World::with(sleepy()).await;
    let agent = world.agent("a").await;
    end_of(start(&agent, 1, "#1 say a; done")).await;
    drop(agent);
    a_while().await;
    let agent = world.find("a").await;
    assert!(!agent.cancel(numeric_request_id(1)).await);
    let sending = start(&agent, 2, "#2 say hel; wait");
    settle().await;
    assert!(agent.cancel(numeric_request_id(2)).await);
    assert_eq!(end_of(sending).await.outcome, TurnOutcome::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_turn_whose_sender_went_away_is_finished_before_its_agent_sleeps() {
    let world = World::with(Limits { idle_before_sleep: Duration::from_secs(1), ..Limits::default() }).await;
    world
        .agent("a")
        .await
        .submit_committed(message(1, "#1 say hel; pass 60000; say lo; done"))
        .await
        .expect("it is kept");
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(world.live().await, ["a"]);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(world.live().await, Vec::<String>::new());
    assert_eq!(texts(&world.find("a").await)[1], "hello");
    assert_eq!(world.listed("a").await.state, AgentLiveness::Live);
}
