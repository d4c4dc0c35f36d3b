//! Agents on many threads that send, create, destroy and change at the same time: every send gets a response and no
//! budget is lost. In real time, because only the clock of a single-threaded runtime can be paused; the timeout is
//! reached only by a deadlock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use agent::permission::{Budget, Resource};
use agent::{AgentId, Fault, FaultKind};
use runtime::{
    AgentHandle, AgentSpec, ChildPolicy, Initiator, Limits, PermissionChange, PermissionSpec, PoolHandle,
};
use testkit::TestRng;

use crate::history::{idle_history_violation, messages};
use crate::world::{SendTask, World, agent_id, spec_named, start_send, with_parent, with_preset};

const HANG_TIMEOUT: Duration = Duration::from_secs(60);

/// A script in which agents call each other: wait cycles, creates and destroys.
fn conversation_script(rng: &mut TestRng, number: i64, depth: usize) -> String {
    let to = rng.pick::<&str>(&["a0", "a1", "a2", "a3"]);
    let inner = if depth < 3 {
        conversation_script(rng, number, depth + 1)
    } else {
        format!("#n{number}.{} say end; done", rng.next_u64())
    };
    let call = match rng.below(6) {
        0 => format!("call agent_create {{id=child{} wait=yes {inner}}}", rng.below(9)),
        1 => format!("call agent_create {{id=child{} {inner}}}", rng.below(9)),
        2 => format!("call agent_destroy to=child{}; call note x", rng.below(9)),
        3 => format!("call agent_send {{to={to} {inner}}}; call step 0"),
        _ => format!("call agent_send {{to={to} wait=yes {inner}}}; call note x"),
    };
    format!("#n{number}.{} {call}; done | say so; done", rng.next_u64())
}

async fn expect_all_succeed(sendings: Vec<SendTask>) {
    for sending in sendings {
        let response = tokio::time::timeout(HANG_TIMEOUT, sending).await.expect("a send was lost");
        let response = response.expect("a send does not panic");
        assert!(response.is_ok(), "{response:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_operations_never_deadlock() {
    for seed in 0..20 {
        let world = World::with_limits(Limits { turns_running_max: 2, ..Limits::default() }).await;
        let mut rng = TestRng::new(seed);
        let mut agents = Vec::new();
        for index in 0..4 {
            agents.push(world.create_handle(with_preset(spec_named(&format!("a{index}")), "yolo")).await);
        }
        let mut sendings = Vec::new();
        for number in 0..40 {
            let script = conversation_script(&mut rng, number, 0);
            sendings.push(start_send(&agents[rng.below(agents.len())], number, &script));
        }
        expect_all_succeed(sendings).await;
        assert_eq!(tokio::time::timeout(HANG_TIMEOUT, world.pool.stop(HANG_TIMEOUT)).await, Ok(0));
        assert_eq!((world.pool.open_turns(), world.tools.observations().live), (0, 0));
        for agent in &agents {
            assert_eq!(idle_history_violation(&messages(agent)), None);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn budget_is_never_granted_twice_and_always_refunded() {
    const LIMIT: u64 = 200;
    let world = Arc::new(World::new().await);
    let budget = Budget::unlimited().with_limit(Resource::Turns, Some(LIMIT));
    let permissions =
        PermissionSpec { preset: Some("trusted".to_owned()), budget, ..PermissionSpec::default() };
    let top = world.create_handle(AgentSpec { permissions, ..spec_named("top") }).await;
    let mut tasks = Vec::new();
    for thread in 0..4 {
        let (world, top) = (Arc::clone(&world), top.clone());
        tasks.push(tokio::spawn(async move {
            let mut rng = TestRng::new(thread);
            for round in 0..50 {
                let name = format!("c{thread}");
                let limit = Some(rng.below(60) as u64).filter(|_| rng.percent(70));
                let budget = Budget::unlimited().with_limit(Resource::Turns, limit);
                let permissions = PermissionSpec { budget, ..PermissionSpec::default() };
                let spec = AgentSpec { permissions, ..spec_named(&name) };
                let Ok(child) = world.create(with_parent(spec, &top)).await else { continue };
                let sending = start_send(&child.handle, round, &format!("#{thread}.{round} say a; done"));
                let raised = Some(rng.below(90) as u64).filter(|_| rng.percent(70));
                let change = PermissionChange {
                    budget: vec![(Resource::Turns, raised)],
                    ..PermissionChange::default()
                };
                // The parent may not have enough budget left.
                let _ = world.change_permissions(&child.handle, &change).await;
                expect_all_succeed(vec![sending]).await;
                assert!(world.destroy_named(&name, ChildPolicy::Cascade).await);
            }
        }));
    }
    for task in tasks {
        tokio::time::timeout(HANG_TIMEOUT, task).await.expect("no deadlock").expect("no panic");
    }
    let turns = |agent: &AgentHandle| world.pool.permissions(agent).resource_usage[0];
    assert_eq!(turns(&top).reserved, 0);
    assert!(turns(&top).used <= LIMIT && turns(&top).used > 0, "{:?}", turns(&top));
}

/// Creates, destroys or renames one of a few agents, which other threads change at the same time.
async fn change_tree(pool: &PoolHandle, rng: &mut TestRng) -> Result<(), Fault> {
    let name = |rng: &mut TestRng| agent_id(rng.pick::<&str>(&["a", "b", "c", "d", "e", "f"]));
    let id = name(rng);
    match (rng.below(4), pool.find_ref(&id)) {
        (0, Some(agent)) => pool.destroy(&agent, ChildPolicy::Cascade, Initiator::Admin).await.map(drop),
        (1, Some(agent)) => pool.rename(&agent, name(rng), Initiator::Admin).await.map(drop),
        _ => {
            let parent = Some(name(rng)).filter(|_| rng.percent(70));
            let spec = AgentSpec { parent, ..with_preset(spec_named(id.as_str()), "yolo") };
            pool.create(spec, Initiator::Admin).await.map(drop)
        }
    }
}

/// The parent of each agent. Fails if an id is used twice or a parent does not exist.
async fn parents(world: &World) -> BTreeMap<AgentId, Option<AgentId>> {
    let agents = world.list().await;
    let ids: BTreeSet<_> = agents.iter().map(|agent| agent.id.clone()).collect();
    assert_eq!((ids.len(), world.pool.agent_count()), (agents.len(), agents.len()), "ids are unique");
    let parents: BTreeMap<_, _> = agents.into_iter().map(|agent| (agent.id, agent.parent)).collect();
    assert!(parents.values().flatten().all(|parent| ids.contains(parent)), "no orphan: {parents:?}");
    parents
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn trees_changed_on_many_threads_stay_consistent() {
    for round in 0..10 {
        let world = World::new().await;
        world.store.set_commit_yields(3);
        let change = |thread: u64| {
            let pool = world.pool.clone();
            tokio::spawn(async move {
                let mut rng = TestRng::new(round * 4 + thread);
                for _ in 0..100 {
                    if let Err(fault) = change_tree(&pool, &mut rng).await {
                        let is_expected = match fault.kind {
                            FaultKind::Invalid | FaultKind::NotFound | FaultKind::Busy { .. } => true,
                            _ => fault.public.contains("max nesting depth"),
                        };
                        assert!(is_expected, "{fault:?}");
                    }
                }
            })
        };
        for task in [change(0), change(1), change(2), change(3)] {
            tokio::time::timeout(HANG_TIMEOUT, task).await.expect("no deadlock").expect("no panic");
        }
        let before = parents(&world).await;
        assert_eq!(parents(&world.stop_and_start().await).await, before, "the store agrees");
    }
}
