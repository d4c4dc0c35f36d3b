//! Admission of turns: limits of open and running turns, the fault beyond them, and the release of every permit.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Wake, Waker};

use agent::{FaultKind, RequestId, TurnOutcome};
use futures_util::FutureExt;
use runtime::{Limits, NewMessage, PoolHandle};

use crate::history::{texts, user_texts};
use crate::world::{
    World, expect_end, expect_fault, new_message, numeric_request_id, run_until_idle, start_send,
};

fn assert_busy(fault: &agent::Fault, text: &str) {
    assert!(matches!(fault.kind, FaultKind::Busy { retry_after_ms } if retry_after_ms > 0), "{fault:?}");
    assert_eq!(fault.public, text);
}

#[tokio::test(start_paused = true)]
async fn agent_limit_makes_only_that_agent_busy() {
    let world = World::with_limits(Limits { agent_turns_open_max: 2, ..Limits::default() }).await;
    let (full, other) = (world.agent("full").await, world.agent("other").await);
    let running = start_send(&full, 1, "wait");
    let queued = start_send(&full, 2, "say b; done");
    run_until_idle().await;
    let fault = expect_fault(start_send(&full, 3, "say c; done")).await;
    assert_busy(&fault, "busy: 2 turns are open at this agent");
    assert_eq!(expect_end(start_send(&other, 3, "say d; done")).await.content, "d");
    assert!(full.cancel(numeric_request_id(2)).await);
    assert_eq!(expect_end(queued).await.outcome, TurnOutcome::Cancelled);
    let next = start_send(&full, 3, "say c; done");
    assert!(full.cancel(numeric_request_id(1)).await);
    assert_eq!(expect_end(next).await.content, "c", "a released permit is reused");
    expect_end(running).await;
}

#[tokio::test(start_paused = true)]
async fn pool_limit_makes_every_agent_busy() {
    let world = World::with_limits(Limits { turns_open_max: 2, ..Limits::default() }).await;
    let (first, second) = (world.agent("first").await, world.agent("second").await);
    let open = [start_send(&first, 1, "wait"), start_send(&first, 2, "wait")];
    run_until_idle().await;
    assert_busy(&expect_fault(start_send(&second, 1, "say a; done")).await, "busy: 2 turns are open");
    assert_eq!(world.pool.open_turns(), 2);
    assert!(world.destroy(&first).await);
    assert_eq!(world.pool.open_turns(), 0);
    assert_eq!(expect_end(start_send(&second, 1, "say a; done")).await.content, "a");
    for sending in open {
        assert_eq!(expect_end(sending).await.outcome, TurnOutcome::Cancelled);
    }
}

#[tokio::test(start_paused = true)]
async fn rejected_send_leaves_nothing_behind() {
    let world = World::with_limits(Limits { agent_turns_open_max: 1, ..Limits::default() }).await;
    let agent = world.agent("a").await;
    let running = start_send(&agent, 1, "wait; say a; done");
    run_until_idle().await;
    expect_fault(start_send(&agent, 2, "say b; done")).await;
    assert_eq!(world.pool.open_turns(), 1);
    world.model.release_all();
    expect_end(running).await;
    assert_eq!(user_texts(&agent), ["wait; say a; done"]);
}

#[tokio::test(start_paused = true)]
async fn turns_beyond_the_limit_run_in_fifo_order() {
    let world = World::with_limits(Limits { turns_running_max: 1, ..Limits::default() }).await;
    let agents: Vec<_> = world.agents(["a", "b", "c"]).await;
    let sendings: Vec<_> = agents.iter().map(|agent| start_send(agent, 1, "wait; say x; done")).collect();
    run_until_idle().await;
    assert_eq!(world.model.observations().prompts.len(), 1, "the others wait for a slot");
    for (finished, sending) in sendings.into_iter().enumerate() {
        assert!(world.model.release_one());
        assert_eq!(expect_end(sending).await.content, "x");
        run_until_idle().await;
        assert_eq!(world.model.observations().prompts.len(), 3.min(finished + 2));
    }
    assert_eq!(world.model.observations().live_max, 1);
}

#[tokio::test(start_paused = true)]
async fn turns_of_one_agent_run_one_at_a_time() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let scripts = ["#1 say a; yield; done", "#2 wait; say b; done", "#3 say c; done"];
    let sendings: Vec<_> =
        (1..).zip(scripts).map(|(number, script)| start_send(&agent, number, script)).collect();
    run_until_idle().await;
    assert_eq!(user_texts(&agent), &scripts[..2], "the third is queued");
    world.model.release_all();
    for sending in sendings {
        expect_end(sending).await;
    }
    assert_eq!(texts(&agent), [scripts[0], "a", scripts[1], "b", scripts[2], "c"]);
    assert_eq!(world.model.observations().overlapping_agents, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn request_id_with_other_content_is_rejected() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let text_message =
        |script: &str| NewMessage { request_id: RequestId::Text("7".to_owned()), ..new_message(0, script) };
    let running = start_send(&agent, 7, "wait; say a; done");
    let queued = start_send(&agent, 8, "say b; done");
    run_until_idle().await;
    for used in [7, 8] {
        let fault = expect_fault(start_send(&agent, used, "say c; done")).await;
        assert_eq!(fault.kind, FaultKind::Invalid);
        assert_eq!(fault.public, format!("request_id was used before with other content: {used}"));
    }
    assert_eq!(world.pool.open_turns(), 2, "a rejected send releases its permit");
    let mut text_id = Box::pin(agent.send(text_message("say d; done")));
    assert!((&mut text_id).now_or_never().is_none());
    world.model.release_all();
    assert_eq!(expect_end(running).await.content, "a");
    assert_eq!(expect_end(queued).await.content, "b");
    assert_eq!(text_id.await.expect("a text id differs from a number").content, "d");
    let fault = expect_fault(start_send(&agent, 7, "say e; done")).await;
    assert_eq!(fault.kind, FaultKind::Invalid, "an ended send retains its request id");
}

#[tokio::test(start_paused = true)]
async fn turn_continues_when_its_sender_is_dropped() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let mut sending = Box::pin(agent.send(new_message(1, "wait; say a; done")));
    assert!((&mut sending).now_or_never().is_none());
    drop(sending);
    run_until_idle().await;
    assert_eq!(world.pool.open_turns(), 1);
    world.model.release_all();
    run_until_idle().await;
    assert_eq!(world.pool.open_turns(), 0);
    assert_eq!(texts(&agent), ["wait; say a; done", "a"]);
}

/// A waker that reads the pool's open turns when the response arrives.
struct WakeProbe {
    pool: PoolHandle,
    open_turns_at_response: AtomicUsize,
}

impl Wake for WakeProbe {
    fn wake(self: Arc<Self>) {
        self.open_turns_at_response.store(self.pool.open_turns(), Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn permit_is_released_before_the_response() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let probe = Arc::new(WakeProbe {
        pool: world.pool.clone(),
        open_turns_at_response: AtomicUsize::new(usize::MAX),
    });
    let waker = Waker::from(Arc::clone(&probe));
    let mut sending = Box::pin(agent.send(new_message(1, "say a; done")));
    assert!(sending.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!(world.pool.open_turns(), 1);
    run_until_idle().await;
    assert_eq!(probe.open_turns_at_response.load(Ordering::Relaxed), 0, "the sender may send again at once");
}

#[test]
fn concurrent_callers_never_exceed_the_permits() {
    // Nothing drives this runtime after the agent is created: an accepted turn stays open.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime can be created");
    let _entered = runtime.enter();
    for _ in 0..500 {
        let (_world, agent) = runtime.block_on(async {
            let world = World::with_limits(Limits { turns_open_max: 1, ..Limits::default() }).await;
            let agent = world.agent("a").await;
            (world, agent)
        });
        let barrier = Barrier::new(4);
        let accepted = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for caller in 0..4 {
                let (agent, barrier, accepted) = (&agent, &barrier, &accepted);
                scope.spawn(move || {
                    let sending = agent.send(new_message(caller, "done"));
                    barrier.wait();
                    accepted.fetch_add(usize::from(sending.now_or_never().is_none()), Ordering::Relaxed);
                });
            }
        });
        assert_eq!(accepted.into_inner(), 1, "one permit, one turn");
    }
}
