//! Families on many threads: whoever talks, creates, destroys and changes at the same time, everybody is answered and
//! nothing is lost. Real time, because threads have no other; it is only waited for what hangs.

use std::sync::Arc;
use std::time::Duration;

use agent::permission::{Budget, Resource};
use runtime::{AgentHandle, AgentSpec, ChildPolicy, Limits, PermissionChange, PermissionSpec};

use crate::history::{idle_history_violation, messages};
use crate::rng::TestRng;
use crate::world::{SendTask, World, spec_named, start_send, with_parent, with_preset};

const HANG_TIMEOUT: Duration = Duration::from_secs(60);

/// What agents say to each other: waits in circles, children, and ends.
fn conversation_script(dice: &mut TestRng, place: i64, depth: usize) -> String {
    let to = dice.pick::<&str>(&["a0", "a1", "a2", "a3"]);
    let inner = if depth < 3 {
        conversation_script(dice, place, depth + 1)
    } else {
        format!("#n{place}.{} say end; done", dice.next_u64())
    };
    let call = match dice.below(6) {
        0 => format!("call agent_create {{id=kid{} wait=yes {inner}}}", dice.below(9)),
        1 => format!("call agent_create {{id=kid{} {inner}}}", dice.below(9)),
        2 => format!("call agent_destroy to=kid{}; call note x", dice.below(9)),
        3 => format!("call agent_send {{to={to} {inner}}}; call step 0"),
        _ => format!("call agent_send {{to={to} wait=yes {inner}}}; call note x"),
    };
    format!("#n{place}.{} {call}; done | say so; done", dice.next_u64())
}

async fn expect_all_answered(sendings: Vec<SendTask>) {
    for sending in sendings {
        let answer = tokio::time::timeout(HANG_TIMEOUT, sending).await.expect("a send was lost");
        let answer = answer.expect("a send does not panic");
        assert!(answer.is_ok(), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn families_that_do_everything_at_once_never_hang() {
    for seed in 0..20 {
        let world = World::with_limits(Limits { turns_running_max: 2, ..Limits::default() }).await;
        let mut dice = TestRng::new(seed);
        let mut agents = Vec::new();
        for place in 0..4 {
            agents.push(world.create_handle(with_preset(spec_named(&format!("a{place}")), "yolo")).await);
        }
        let mut sendings = Vec::new();
        for place in 0..40 {
            let script = conversation_script(&mut dice, place, 0);
            sendings.push(start_send(&agents[dice.below(agents.len())], place, &script));
        }
        expect_all_answered(sendings).await;
        assert_eq!(tokio::time::timeout(HANG_TIMEOUT, world.pool.stop(HANG_TIMEOUT)).await, Ok(0));
        assert_eq!((world.pool.open_turns(), world.tools.observations().live), (0, 0));
        for agent in &agents {
            assert_eq!(idle_history_violation(&messages(agent)), None);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_share_is_never_lent_twice_and_always_comes_back() {
    const LIMIT: u64 = 200;
    let world = Arc::new(World::new().await);
    let budget = Budget::unlimited().with_limit(Resource::Turns, Some(LIMIT));
    let permissions =
        PermissionSpec { preset: Some("trusted".to_owned()), budget, ..PermissionSpec::default() };
    let top = world.create_handle(AgentSpec { permissions, ..spec_named("top") }).await;
    let mut busy = Vec::new();
    for thread in 0..4 {
        let (world, top) = (Arc::clone(&world), top.clone());
        busy.push(tokio::spawn(async move {
            let mut dice = TestRng::new(thread);
            for round in 0..50 {
                let name = format!("c{thread}");
                let share = Some(dice.below(60) as u64).filter(|_| dice.percent(70));
                let budget = Budget::unlimited().with_limit(Resource::Turns, share);
                let permissions = PermissionSpec { budget, ..PermissionSpec::default() };
                let spec = AgentSpec { permissions, ..spec_named(&name) };
                let Ok(child) = world.create(with_parent(spec, &top)).await else { continue };
                let sending = start_send(&child.handle, round, &format!("#{thread}.{round} say a; done"));
                let more = Some(dice.below(90) as u64).filter(|_| dice.percent(70));
                let change =
                    PermissionChange { budget: vec![(Resource::Turns, more)], ..PermissionChange::default() };
                // There may not be so much left.
                let _ = world.change_permissions(&child.handle, &change).await;
                expect_all_answered(vec![sending]).await;
                assert!(world.destroy_named(&name, ChildPolicy::Cascade).await);
            }
        }));
    }
    for task in busy {
        tokio::time::timeout(HANG_TIMEOUT, task).await.expect("nobody hangs").expect("nobody panics");
    }
    let turns = |agent: &AgentHandle| world.pool.permissions(agent).resource_usage[0];
    assert_eq!(turns(&top).reserved, 0);
    assert!(turns(&top).used <= LIMIT && turns(&top).used > 0, "{:?}", turns(&top));
}
