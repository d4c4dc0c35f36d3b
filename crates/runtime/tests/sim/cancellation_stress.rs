//! Ten thousand cancels at random points of a turn: every turn ends once, and every history stays valid.

use agent::{RequestId, Role, TurnOutcome};
use runtime::{AgentHandle, Limits};
use testkit::TestRng;

use crate::history::{idle_history_violation, messages};
use crate::world::{
    POOL_TASKS, World, alive_task_count, expect_end, numeric_request_id, run_until_idle, spec_named,
    start_send, with_preset,
};

const CANCELS: usize = 10_000;

const SCRIPTS: &[&str] = &[
    "say a; yield; say b; yield; done",
    "say a; wait; done",
    "flood 40; done",
    "call note x; call note y; done | say b; done",
    "say a; call slow release; call note x; done | say b; done",
    "call step 1; call step 1; done | yield; say b; done",
    "call panics_at_drop release; call panics; done | say b; done",
    "call agent_send {to=worker wait=yes SUB yield; say c; done}; done | say b; done",
    "call agent_send {to=worker wait=yes SUB wait}; call slow release; done | say b; done",
    "done | done",
    "fail",
    "yield; panic",
];

#[tokio::test(start_paused = true)]
async fn each_turn_ends_once_under_ten_thousand_cancels() {
    let world = World::with_limits(Limits { turns_running_max: 3, ..Limits::default() }).await;
    let mut rng = TestRng::new(10_000);
    let mut agents = Vec::new();
    for index in 0..5 {
        agents.push(unrestricted_agent(&world, &format!("a{index}")).await);
    }
    let worker = world.agent("worker").await;
    let mut sent = 0_i64;
    let (mut cancels, mut hits, mut turns) = (0, 0, 0);
    while cancels < CANCELS {
        // Histories grow with every turn; new agents bound the run time of the test.
        let index = rng.below(agents.len());
        if messages(&agents[index]).len() > 100 {
            turns += count_turns(&agents[index]);
            assert!(world.destroy(&agents[index]).await);
            agents[index] = unrestricted_agent(&world, &format!("a{index}")).await;
        }
        let mut sendings = Vec::new();
        for _ in 0..rng.between(1, 4) {
            sent += 1;
            let script = rng.pick(SCRIPTS).replace("SUB", &format!("#n{sent}"));
            let agent = rng.pick(&agents);
            sendings.push((agent.clone(), sent, start_send(agent, sent, &format!("#{sent} {script}"))));
        }
        for _ in 0..rng.between(0, 30) {
            tokio::task::yield_now().await;
        }
        for (agent, request_id, sending) in sendings {
            for _ in 0..rng.between(0, 4) {
                tokio::task::yield_now().await;
            }
            cancels += 1;
            let cancelled = agent.cancel(numeric_request_id(request_id)).await;
            hits += usize::from(cancelled);
            check_outcome(cancelled, sending.await.expect("a send does not panic"));
        }
    }
    run_until_idle().await;
    assert!(hits > CANCELS / 4, "only {hits} of {cancels} cancels found an open turn");
    assert_eq!(
        (world.pool.open_turns(), world.model.observations().live_total, world.tools.observations().live),
        (0, 0, 0)
    );
    assert_eq!(alive_task_count(), agents.len() + 1 + POOL_TASKS);
    turns += agents.iter().map(count_turns).sum::<usize>();
    assert!(turns <= usize::try_from(sent).expect("a small number") && turns > CANCELS / 2, "{turns} turns");
    count_turns(&worker);
    for agent in &agents {
        assert_eq!(expect_end(start_send(agent, 0, "#0 say still here; done")).await.content, "still here");
    }
}

async fn unrestricted_agent(world: &World, name: &str) -> AgentHandle {
    world.create_handle(with_preset(spec_named(name), "yolo")).await
}

/// Checks that a cancel that found the turn ends it as cancelled, and that one that came too late does not.
fn check_outcome(cancelled: bool, response: Result<agent::TurnEnd, agent::Fault>) {
    let outcome = response.map(|end| end.outcome);
    let is_consistent = match &outcome {
        Ok(TurnOutcome::Cancelled) => cancelled,
        Ok(TurnOutcome::Completed) | Err(_) => !cancelled,
        Ok(TurnOutcome::Failed(_) | TurnOutcome::Interrupted(_)) => false,
    };
    assert!(is_consistent, "cancelled: {cancelled}, outcome: {outcome:?}");
}

/// The number of an agent's turns; each has one user message and one end.
fn count_turns(agent: &AgentHandle) -> usize {
    let all = messages(agent);
    assert_eq!(idle_history_violation(&all), None);
    let turns = all.iter().filter(|message| message.role == Role::User).count();
    let ends =
        all.iter().filter(|message| message.role == Role::Assistant && message.tool_calls.is_empty()).count();
    assert_eq!(turns, ends, "one end for each turn");
    let mut scripts: Vec<_> =
        all.iter().filter(|message| message.role == Role::User).map(|message| &message.text).collect();
    scripts.sort();
    scripts.dedup();
    assert_eq!(scripts.len(), turns, "no turn started twice");
    turns
}

#[tokio::test(start_paused = true)]
async fn cancel_of_an_ended_send_finds_nothing() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    for number in 0..100 {
        expect_end(start_send(&agent, number, &format!("#{number} say a; done"))).await;
        assert!(!agent.cancel(RequestId::Number(number)).await);
    }
}
