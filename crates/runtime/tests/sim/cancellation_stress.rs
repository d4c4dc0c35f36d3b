//! Ten thousand cancels, each at another moment of a turn: every turn ends once, and every history stays whole.

use agent::{RequestId, Role, TurnOutcome};
use runtime::{AgentHandle, Limits};

use crate::history::{idle_history_violation, messages};
use crate::rng::TestRng;
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
async fn ten_thousand_cancels_leave_one_end_for_each_turn() {
    let world = World::with_limits(Limits { turns_running_max: 3, ..Limits::default() }).await;
    let mut dice = TestRng::new(10_000);
    let mut agents = Vec::new();
    for place in 0..5 {
        agents.push(unrestricted_agent(&world, &format!("a{place}")).await);
    }
    let worker = world.agent("worker").await;
    let mut sent = 0_i64;
    let (mut cancels, mut hits, mut begun) = (0, 0, 0);
    while cancels < CANCELS {
        // Contexts grow with every turn; agents that start anew keep the test quick.
        let place = dice.below(agents.len());
        if messages(&agents[place]).len() > 100 {
            begun += count_turns(&agents[place]);
            assert!(world.destroy(&agents[place]).await);
            agents[place] = unrestricted_agent(&world, &format!("a{place}")).await;
        }
        let mut sendings = Vec::new();
        for _ in 0..dice.between(1, 4) {
            sent += 1;
            let script = dice.pick(SCRIPTS).replace("SUB", &format!("#n{sent}"));
            let agent = dice.pick(&agents);
            sendings.push((agent.clone(), sent, start_send(agent, sent, &format!("#{sent} {script}"))));
        }
        for _ in 0..dice.between(0, 30) {
            tokio::task::yield_now().await;
        }
        for (agent, request_id, sending) in sendings {
            for _ in 0..dice.between(0, 4) {
                tokio::task::yield_now().await;
            }
            cancels += 1;
            let cancelled = agent.cancel(numeric_request_id(request_id)).await;
            hits += usize::from(cancelled);
            check_outcome(cancelled, sending.await.expect("a send does not panic"));
        }
    }
    run_until_idle().await;
    assert!(hits > CANCELS / 4, "only {hits} of {cancels} cancels met an open turn");
    assert_eq!(
        (world.pool.open_turns(), world.model.observations().live_total, world.tools.observations().live),
        (0, 0, 0)
    );
    assert_eq!(alive_task_count(), agents.len() + 1 + POOL_TASKS);
    begun += agents.iter().map(count_turns).sum::<usize>();
    assert!(begun <= usize::try_from(sent).expect("a small number") && begun > CANCELS / 2, "{begun} turns");
    count_turns(&worker);
    for agent in &agents {
        assert_eq!(expect_end(start_send(agent, 0, "#0 say still here; done")).await.content, "still here");
    }
}

async fn unrestricted_agent(world: &World, name: &str) -> AgentHandle {
    world.create_handle(with_preset(spec_named(name), "yolo")).await
}

/// A cancel that found its turn ends it as cancelled; one that did not has come too late.
fn check_outcome(cancelled: bool, answer: Result<agent::TurnEnd, agent::Fault>) {
    let outcome = answer.map(|end| end.outcome);
    let fair = match &outcome {
        Ok(TurnOutcome::Cancelled) => cancelled,
        Ok(TurnOutcome::Completed) | Err(_) => !cancelled,
        Ok(TurnOutcome::Failed(_) | TurnOutcome::Interrupted(_)) => false,
    };
    assert!(fair, "cancelled: {cancelled}, answered: {outcome:?}");
}

/// How many turns an agent had; each has one question and one end.
fn count_turns(agent: &AgentHandle) -> usize {
    let all = messages(agent);
    assert_eq!(idle_history_violation(&all), None);
    let questions = all.iter().filter(|message| message.role == Role::User).count();
    let ends =
        all.iter().filter(|message| message.role == Role::Assistant && message.tool_calls.is_empty()).count();
    assert_eq!(questions, ends, "one end for each turn");
    let mut asked: Vec<_> = all.iter().filter(|one| one.role == Role::User).map(|one| &one.text).collect();
    asked.sort();
    asked.dedup();
    assert_eq!(asked.len(), questions, "no turn began twice");
    questions
}

#[tokio::test(start_paused = true)]
async fn a_cancel_of_a_name_that_is_no_more_hits_nobody() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    for place in 0..100 {
        expect_end(start_send(&agent, place, &format!("#{place} say a; done"))).await;
        assert!(!agent.cancel(RequestId::Number(place)).await);
    }
}
