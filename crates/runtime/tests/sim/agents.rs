//! Agents come and go: names, how many, `main`, and what becomes of the work of one that is destroyed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent::outside::Entropy;
use agent::{AgentId, Fault, FaultKind, TurnOutcome};
use futures_util::FutureExt;
use runtime::{AgentSpec, ChildPolicy, Limits};

use crate::history::texts;
use crate::world::{
    World, WorldOptions, alive_task_count, expect_end, expect_fault, is_busy, numeric_request_id,
    run_until_idle, spec_named, start_send, without_waiting,
};

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_as_long_as_it_may_be_says_so() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let content = expect_end(start_send(&agent, 1, "say So f; cut; done")).await.content;
    assert_eq!(content, "So f\n\n[Response truncated: it reached its token limit]");
}

#[tokio::test(start_paused = true)]
async fn a_taken_name_is_refused_and_the_agent_stays_as_it_is() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "say a; done")).await;
    let fault = world.expect_create_refused(spec_named("a")).await;
    assert_eq!((fault.kind, fault.public.as_ref()), (FaultKind::Invalid, "Agent already exists: a"));
    assert_eq!(world.pool.agent_count(), 1);
    assert_eq!(world.summary(&world.find("a").await).message_count, 2);
}

#[tokio::test(start_paused = true)]
async fn there_are_never_more_agents_than_allowed() {
    let world = World::with_limits(Limits { agents_max: 2, ..Limits::default() }).await;
    world.agent("a").await;
    world.agent("b").await;
    for fault in [
        world.expect_create_refused(spec_named("c")).await,
        world.expect_create_refused(AgentSpec::default()).await,
    ] {
        assert!(is_busy(&fault), "{fault:?}");
        assert_eq!(fault.public, "busy: 2 agents exist");
    }
    assert!(world.pool.main_agent().await.is_err_and(|fault| is_busy(&fault)));
    assert!(world.destroy_named("a", ChildPolicy::Cascade).await);
    world.agent("c").await;
    assert_eq!(world.names().await, ["b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_without_a_name_gets_eight_hex_digits_that_nobody_has() {
    let world = World::new().await;
    // Each agent takes random bytes twice: for its name, and for its capability.
    world.agent("00000002").await;
    let mut made = Vec::new();
    for _ in 0..3 {
        made.push(world.create_handle(AgentSpec::default()).await.id().to_string());
    }
    assert_eq!(made, ["00000004", "00000006", "00000008"]);
}

/// Always the same bytes, and a limit to how often one may ask for them.
#[derive(Default)]
struct ConstantEntropy {
    fill_count: AtomicUsize,
}

impl Entropy for ConstantEntropy {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), Fault> {
        assert!(self.fill_count.fetch_add(1, Ordering::Relaxed) < 1000, "asked for ever");
        bytes.fill(0xab);
        Ok(())
    }
}

/// No bytes at all.
struct FailingEntropy;

impl Entropy for FailingEntropy {
    fn fill(&self, _: &mut [u8]) -> Result<(), Fault> {
        Err(Fault::new(FaultKind::Internal, "no random bytes"))
    }
}

async fn world_with(entropy: Arc<dyn Entropy>) -> World {
    World::open(WorldOptions { entropy, ..WorldOptions::default() }).await
}

#[tokio::test(start_paused = true)]
async fn without_random_bytes_a_name_is_refused_and_not_sought_for_ever() {
    let stuck = world_with(Arc::new(ConstantEntropy::default())).await;
    assert_eq!(
        stuck.create_handle(AgentSpec::default()).await.id().as_str(),
        "abababab",
        "the first is free"
    );
    let fault = stuck.expect_create_refused(AgentSpec::default()).await;
    assert_eq!((fault.kind, fault.public.as_ref()), (FaultKind::Internal, "could not generate an agent ID"));
    let dry = world_with(Arc::new(FailingEntropy)).await;
    for spec in [AgentSpec::default(), spec_named("a")] {
        assert_eq!(dry.expect_create_refused(spec).await.public, "no random bytes");
    }
    assert!(dry.pool.generate_request_id().is_err());
    assert_eq!((stuck.pool.agent_count(), dry.pool.agent_count()), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn main_is_created_once_however_many_ask_for_it_at_once() {
    for _ in 0..100 {
        let world = World::new().await;
        let together = Arc::new(tokio::sync::Barrier::new(4));
        let ask = || {
            let (pool, together) = (world.pool.clone(), Arc::clone(&together));
            tokio::spawn(async move {
                together.wait().await;
                pool.main_agent().await.expect("there is room").id().clone()
            })
        };
        for asking in [ask(), ask(), ask(), ask()] {
            assert_eq!(asking.await.expect("nobody panics"), AgentId::main());
        }
        assert_eq!(world.pool.agent_count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_destroyed_agent_answers_all_its_sends_and_frees_its_name_at_once() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let running = start_send(&agent, 1, "say hel; wait");
    let waiting = [start_send(&agent, 2, "say b; done"), start_send(&agent, 3, "say c; done")];
    run_until_idle().await;
    let just_sent = start_send(&agent, 4, "say d; done");
    let mut destroying = Box::pin(world.destroy(&agent));
    assert!((&mut destroying).now_or_never().is_none());
    let successor = world.agent("a").await;
    assert!(without_waiting(destroying).await);
    assert_eq!(expect_end(running).await.content, "hel");
    for sending in waiting {
        assert_eq!(without_waiting(expect_end(sending)).await.outcome, TurnOutcome::Cancelled);
    }
    let last = without_waiting(just_sent).await.expect("a send does not panic");
    assert!(
        last.is_ok_and(|end| end.outcome == TurnOutcome::Cancelled)
            || world.summary(&agent).message_count > 0
    );
    assert_eq!(world.model.observations().live_total, 0);
    assert_eq!(expect_end(start_send(&successor, 1, "say new; done")).await.content, "new");
    assert_eq!(texts(&successor), ["say new; done", "new"], "nothing of the old life is left");
    assert_eq!(world.pool.open_turns(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_destroyed_agent_is_gone_for_whoever_still_knows_it() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "say a; done")).await;
    assert!(world.destroy(&agent).await);
    assert!(!world.destroy(&agent).await, "there is nothing left to destroy");
    let fault = expect_fault(start_send(&agent, 2, "say b; done")).await;
    assert_eq!((fault.kind, fault.public.as_ref()), (FaultKind::NotFound, "Agent not found: a"));
    assert!(!without_waiting(agent.cancel(numeric_request_id(1))).await);
    assert_eq!(world.summary(&agent).message_count, 2, "what was read before can still be read");
    assert_eq!(world.pool.open_turns(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_destroy_whose_caller_goes_away_ends_the_agent_all_the_same() {
    let world = World::with_limits(Limits { agent_turns_open_max: 1, ..Limits::default() }).await;
    let agent = world.agent("a").await;
    let running = start_send(&agent, 1, "say hel; wait");
    run_until_idle().await;
    // So many commands that the inbox is full before the agent's task gets to run.
    let mut cancels: Vec<_> =
        (0..64).map(|place| Box::pin(agent.cancel(numeric_request_id(100 + place)))).collect();
    for cancel in &mut cancels {
        assert!(tokio::task::unconstrained(cancel).now_or_never().is_none());
    }
    let destroying = Box::pin(world.destroy(&agent));
    assert!(tokio::task::unconstrained(destroying).now_or_never().is_none());
    run_until_idle().await;
    assert!(running.is_finished(), "the agent lives on, and nobody can reach it");
    assert_eq!(expect_end(running).await.outcome, TurnOutcome::Cancelled);
    for cancel in cancels {
        assert!(!without_waiting(cancel).await);
    }
}

#[tokio::test(start_paused = true)]
async fn agents_end_when_everybody_who_knew_them_has_gone() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sending = start_send(&agent, 1, "say hel; wait");
    run_until_idle().await;
    sending.abort();
    assert!(sending.await.is_err_and(|fault| fault.is_cancelled()));
    let model = Arc::clone(&world.model);
    drop((agent, world));
    run_until_idle().await;
    assert_eq!(model.observations().live_total, 0);
    assert_eq!(alive_task_count(), 0);
}
