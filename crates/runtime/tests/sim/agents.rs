//! Creating and destroying agents: names, limits, `main`, and the turns of a destroyed agent.

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
async fn truncated_response_ends_with_a_notice() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let content = expect_end(start_send(&agent, 1, "say So f; cut; done")).await.content;
    assert_eq!(content, "So f\n\n[Response truncated: it reached its token limit]");
}

#[tokio::test(start_paused = true)]
async fn duplicate_name_is_rejected_and_the_agent_unchanged() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "say a; done")).await;
    let fault = world.expect_create_rejected(spec_named("a")).await;
    assert_eq!((fault.kind, fault.public.as_ref()), (FaultKind::Invalid, "Agent already exists: a"));
    assert_eq!(world.pool.agent_count(), 1);
    assert_eq!(world.status(&world.find("a").await).message_count, 2);
}

#[tokio::test(start_paused = true)]
async fn agent_limit_is_enforced() {
    let world = World::with_limits(Limits { agents_max: 2, ..Limits::default() }).await;
    world.agent("a").await;
    world.agent("b").await;
    for fault in [
        world.expect_create_rejected(spec_named("c")).await,
        world.expect_create_rejected(AgentSpec::default()).await,
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
async fn unnamed_agent_gets_eight_unused_hex_digits() {
    let world = World::new().await;
    world.agent("00000002").await;
    let mut names = Vec::new();
    for _ in 0..3 {
        names.push(world.create_handle(AgentSpec::default()).await.id().to_string());
    }
    assert_eq!(names, ["00000001", "00000003", "00000004"]);
}

/// Entropy that always returns the same bytes and counts the calls.
#[derive(Default)]
struct ConstantEntropy {
    fill_count: AtomicUsize,
}

impl Entropy for ConstantEntropy {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), Fault> {
        self.fill_count.fetch_add(1, Ordering::Relaxed);
        bytes.fill(0xab);
        Ok(())
    }
}

/// Entropy that always fails.
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
async fn name_generation_fails_without_random_bytes() {
    let entropy = Arc::new(ConstantEntropy::default());
    let constant = world_with(Arc::<ConstantEntropy>::clone(&entropy)).await;
    assert_eq!(
        constant.create_handle(AgentSpec::default()).await.id().as_str(),
        "abababab",
        "the first name is free"
    );
    let before = entropy.fill_count.load(Ordering::Relaxed);
    let fault = constant.expect_create_rejected(AgentSpec::default()).await;
    assert_eq!((fault.kind, fault.public.as_ref()), (FaultKind::Internal, "could not generate an agent ID"));
    let fills = entropy.fill_count.load(Ordering::Relaxed) - before;
    assert_eq!(fills, 2 * 16, "sixteen attempts, each with an id and a capability");
    let failing = world_with(Arc::new(FailingEntropy)).await;
    for spec in [AgentSpec::default(), spec_named("a")] {
        assert_eq!(failing.expect_create_rejected(spec).await.public, "no random bytes");
    }
    assert!(failing.pool.generate_request_id().is_err());
    assert_eq!((constant.pool.agent_count(), failing.pool.agent_count()), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn main_is_created_once_by_concurrent_requests() {
    for _ in 0..100 {
        let world = World::new().await;
        let barrier = Arc::new(tokio::sync::Barrier::new(4));
        let request_main = || {
            let (pool, barrier) = (world.pool.clone(), Arc::clone(&barrier));
            tokio::spawn(async move {
                barrier.wait().await;
                pool.main_agent().await.expect("the limit is not reached").id().clone()
            })
        };
        for request in [request_main(), request_main(), request_main(), request_main()] {
            assert_eq!(request.await.expect("no panic"), AgentId::main());
        }
        assert_eq!(world.pool.agent_count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn destroyed_agent_cancels_its_sends_and_frees_its_name() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let running = start_send(&agent, 1, "say hel; wait");
    let queued = [start_send(&agent, 2, "say b; done"), start_send(&agent, 3, "say c; done")];
    run_until_idle().await;
    let just_sent = start_send(&agent, 4, "say d; done");
    let mut destroying = Box::pin(world.destroy(&agent));
    assert!((&mut destroying).now_or_never().is_none());
    let successor = world.agent("a").await;
    assert!(without_waiting(destroying).await);
    assert_eq!(expect_end(running).await.content, "hel");
    for sending in queued {
        assert_eq!(without_waiting(expect_end(sending)).await.outcome, TurnOutcome::Cancelled);
    }
    let last = without_waiting(just_sent).await.expect("a send does not panic");
    assert!(
        last.is_ok_and(|end| end.outcome == TurnOutcome::Cancelled) || world.status(&agent).message_count > 0
    );
    assert_eq!(world.model.observations().live_total, 0);
    assert_eq!(expect_end(start_send(&successor, 1, "say new; done")).await.content, "new");
    assert_eq!(texts(&successor), ["say new; done", "new"], "no data of the destroyed agent");
    assert_eq!(world.pool.open_turns(), 0);
}

#[tokio::test(start_paused = true)]
async fn destroyed_agent_is_not_found_by_old_handles() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    expect_end(start_send(&agent, 1, "say a; done")).await;
    assert!(world.destroy(&agent).await);
    assert!(!world.destroy(&agent).await, "a second destroy finds nothing");
    let fault = expect_fault(start_send(&agent, 2, "say b; done")).await;
    assert_eq!((fault.kind, fault.public.as_ref()), (FaultKind::NotFound, "Agent not found: a"));
    assert!(!without_waiting(agent.cancel(numeric_request_id(1))).await);
    assert_eq!(world.status(&agent).message_count, 2, "a loaded history stays readable");
    assert_eq!(world.pool.open_turns(), 0);
}

#[tokio::test(start_paused = true)]
async fn destroy_completes_when_its_caller_is_dropped() {
    let world = World::with_limits(Limits { agent_turns_open_max: 1, ..Limits::default() }).await;
    let agent = world.agent("a").await;
    let running = start_send(&agent, 1, "say hel; wait");
    run_until_idle().await;
    // Enough commands to fill the inbox before the agent's task runs.
    let mut cancels: Vec<_> =
        (0..64).map(|number| Box::pin(agent.cancel(numeric_request_id(100 + number)))).collect();
    for cancel in &mut cancels {
        assert!(tokio::task::unconstrained(cancel).now_or_never().is_none());
    }
    let destroying = Box::pin(world.destroy(&agent));
    assert!(tokio::task::unconstrained(destroying).now_or_never().is_none());
    run_until_idle().await;
    assert!(running.is_finished(), "the agent runs on without a handle");
    assert_eq!(expect_end(running).await.outcome, TurnOutcome::Cancelled);
    for cancel in cancels {
        assert!(!without_waiting(cancel).await);
    }
}

#[tokio::test(start_paused = true)]
async fn agents_end_when_all_handles_are_dropped() {
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
