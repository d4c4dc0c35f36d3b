//! Places for turns: how many may be open and running, what those beyond are told, and that every place comes back.

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
async fn a_full_agent_is_busy_and_others_are_not() {
    let world = World::with_limits(Limits { agent_turns_open_max: 2, ..Limits::default() }).await;
    let (full, other) = (world.agent("full").await, world.agent("other").await);
    let running = start_send(&full, 1, "wait");
    let waiting = start_send(&full, 2, "say b; done");
    run_until_idle().await;
    let fault = expect_fault(start_send(&full, 3, "say c; done")).await;
    assert_busy(&fault, "busy: 2 turns are open at this agent");
    assert_eq!(expect_end(start_send(&other, 3, "say d; done")).await.content, "d");
    assert!(full.cancel(numeric_request_id(2)).await);
    assert_eq!(expect_end(waiting).await.outcome, TurnOutcome::Cancelled);
    let next = start_send(&full, 3, "say c; done");
    assert!(full.cancel(numeric_request_id(1)).await);
    assert_eq!(expect_end(next).await.content, "c", "a place that came back is given away again");
    expect_end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_full_pool_is_busy_for_every_agent() {
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
async fn a_refused_send_leaves_nothing_behind() {
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
async fn turns_beyond_the_limit_wait_and_run_in_the_order_they_came() {
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
async fn one_agents_turns_run_one_after_the_other() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let scripts = ["#1 say a; yield; done", "#2 wait; say b; done", "#3 say c; done"];
    let sendings: Vec<_> =
        (1..).zip(scripts).map(|(number, script)| start_send(&agent, number, script)).collect();
    run_until_idle().await;
    assert_eq!(user_texts(&agent), &scripts[..2], "the third waits");
    world.model.release_all();
    for sending in sendings {
        expect_end(sending).await;
    }
    assert_eq!(texts(&agent), [scripts[0], "a", scripts[1], "b", scripts[2], "c"]);
    assert_eq!(world.model.observations().overlapping_agents, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_name_belongs_to_one_send() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let text =
        |script: &str| NewMessage { request_id: RequestId::Text("7".to_owned()), ..new_message(0, script) };
    let running = start_send(&agent, 7, "wait; say a; done");
    let waiting = start_send(&agent, 8, "say b; done");
    run_until_idle().await;
    for taken in [7, 8] {
        let fault = expect_fault(start_send(&agent, taken, "say c; done")).await;
        assert_eq!(fault.kind, FaultKind::Invalid);
        assert_eq!(fault.public, format!("request_id was used before with other content: {taken}"));
    }
    assert_eq!(world.pool.open_turns(), 2, "a refused name gives its place back");
    let mut other_name = Box::pin(agent.send(text("say d; done")));
    assert!((&mut other_name).now_or_never().is_none());
    world.model.release_all();
    assert_eq!(expect_end(running).await.content, "a");
    assert_eq!(expect_end(waiting).await.content, "b");
    assert_eq!(other_name.await.expect("a text is not a number").content, "d");
    let fault = expect_fault(start_send(&agent, 7, "say e; done")).await;
    assert_eq!(fault.kind, FaultKind::Invalid, "an ended send keeps its name");
}

#[tokio::test(start_paused = true)]
async fn a_sender_that_goes_away_does_not_end_its_turn() {
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

/// Looks at the pool in the very moment in which an answer arrives.
struct WakeProbe {
    pool: PoolHandle,
    open_turns_at_answer: AtomicUsize,
}

impl Wake for WakeProbe {
    fn wake(self: Arc<Self>) {
        self.open_turns_at_answer.store(self.pool.open_turns(), Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_is_free_before_its_answer_is_out() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let doorbell =
        Arc::new(WakeProbe { pool: world.pool.clone(), open_turns_at_answer: AtomicUsize::new(usize::MAX) });
    let waker = Waker::from(Arc::clone(&doorbell));
    let mut sending = Box::pin(agent.send(new_message(1, "say a; done")));
    assert!(sending.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!(world.pool.open_turns(), 1);
    run_until_idle().await;
    assert_eq!(doorbell.open_turns_at_answer.load(Ordering::Relaxed), 0, "who is answered may send again");
}

#[test]
fn callers_on_many_threads_never_get_more_places_than_there_are() {
    // Nobody drives this runtime once the agent is there: what is accepted stays open.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime can be made");
    let _entered = runtime.enter();
    for _ in 0..500 {
        let (_world, agent) = runtime.block_on(async {
            let world = World::with_limits(Limits { turns_open_max: 1, ..Limits::default() }).await;
            let agent = world.agent("a").await;
            (world, agent)
        });
        let together = Barrier::new(4);
        let accepted = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for caller in 0..4 {
                let (agent, together, accepted) = (&agent, &together, &accepted);
                scope.spawn(move || {
                    let sending = agent.send(new_message(caller, "done"));
                    together.wait();
                    accepted.fetch_add(usize::from(sending.now_or_never().is_none()), Ordering::Relaxed);
                });
            }
        });
        assert_eq!(accepted.into_inner(), 1, "one place, one turn");
    }
}
