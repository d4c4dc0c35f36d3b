//! Agents on many threads that send, create, destroy and change at the same time: every send gets a response and no
//! budget is lost. In real time, because only the clock of a single-threaded runtime can be paused; the timeout is
//! reached only by a deadlock.

use std::sync::Arc;
use std::time::Duration;

use agent::permission::{Budget, Resource};
use runtime::{AgentHandle, AgentSpec, ChildPolicy, Limits, PermissionChange, PermissionSpec};
use testkit::TestRng;

use crate::history::{idle_history_violation, messages};
use crate::world::{SendTask, World, spec_named, start_send, with_parent, with_preset};

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
