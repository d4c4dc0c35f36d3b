//! Stopping: who asks for it, the grace turns get, and that nothing is left behind, whoever comes in meanwhile.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use agent::outside::{Clock, Timestamp};
use agent::{FaultKind, TurnOutcome};
use futures_util::FutureExt;
use runtime::{AgentSpec, ChildPolicy, Initiator, Limits, PoolHandle};
use tokio::time::Instant;

use crate::world::{
    NOW, World, alive_task_count, expect_end, expect_fault, is_busy, run_until_idle, spec_named, start_send,
    without_waiting,
};

const GRACE: Duration = Duration::from_secs(10);

fn is_stop_requested(pool: &PoolHandle) -> bool {
    pool.stop_requested().now_or_never().is_some()
}

#[tokio::test(start_paused = true)]
async fn a_stop_is_wanted_when_the_last_agent_is_finished() {
    let world = World::new().await;
    let (first, second) = (world.agent("first").await, world.agent("second").await);
    world.finish(&first).await;
    world.finish(&first).await;
    assert!(!is_stop_requested(&world.pool), "one of two is finished");
    assert!(world.summary(&first).should_shutdown && !world.summary(&second).should_shutdown);
    assert_eq!(
        expect_end(start_send(&first, 1, "say a; done")).await.content,
        "a",
        "a finished agent still answers"
    );
    world.finish(&second).await;
    assert!(is_stop_requested(&world.pool));
    let fault = world.expect_create_refused(spec_named("third")).await;
    assert!(is_busy(&fault) && fault.public == "Server shutting down", "{fault:?}");
    assert_eq!(expect_end(start_send(&first, 2, "say b; done")).await.content, "b", "until it is stopped");
}

#[tokio::test(start_paused = true)]
async fn a_stop_is_wanted_when_the_last_unfinished_agent_is_destroyed() {
    let world = World::new().await;
    let finished = world.agent("finished").await;
    world.agent("unfinished").await;
    world.finish(&finished).await;
    assert!(world.destroy_named("unfinished", ChildPolicy::Cascade).await);
    assert!(is_stop_requested(&world.pool));
}

#[tokio::test(start_paused = true)]
async fn an_empty_pool_goes_on() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    assert!(world.destroy(&agent).await);
    assert!(!is_stop_requested(&world.pool), "its last agent was destroyed");
    let fault = world.pool.mark_agent_finished(&agent, Initiator::Admin).await.expect_err("it is gone");
    assert_eq!(fault.kind, FaultKind::NotFound);
    assert!(!is_stop_requested(&world.pool), "an agent that is gone decides nothing");
    world.agent("b").await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_turns_that_end_in_time() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sendings =
        [start_send(&agent, 1, "say a; pass 4000; done"), start_send(&agent, 2, "say b; pass 4000; done")];
    run_until_idle().await;
    let before = Instant::now();
    assert_eq!(world.pool.stop(GRACE).await, 0);
    assert!(Instant::now() - before < GRACE);
    for (sending, said) in sendings.into_iter().zip(["a", "b"]) {
        let end = expect_end(sending).await;
        assert_eq!((end.outcome, end.content.as_str()), (TurnOutcome::Completed, said));
    }
    assert_eq!(
        (world.pool.agent_count(), world.pool.open_turns(), alive_task_count()),
        (1, 0, 0),
        "agents outlive a stop"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stop_cancels_what_does_not_end_in_time() {
    let world = World::with_limits(Limits { turns_running_max: 2, ..Limits::default() }).await;
    let agents = world.agents(["a", "b", "c"]).await;
    let in_time = start_send(&agents[0], 1, "say done; pass 3000; done");
    let late: Vec<_> = agents.iter().map(|agent| start_send(agent, 2, "say hel; wait")).collect();
    run_until_idle().await;
    let before = Instant::now();
    assert_eq!(world.pool.stop(GRACE).await, 3);
    assert_eq!(Instant::now() - before, GRACE);
    assert_eq!(expect_end(in_time).await.outcome, TurnOutcome::Completed);
    for sending in late {
        assert_eq!(expect_end(sending).await.outcome, TurnOutcome::Cancelled);
    }
    assert_eq!(world.model.observations().live_total, 0);
    assert_eq!(alive_task_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_left_to_the_next_start_takes_nobody_with_it() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let left = start_send(&agent, 1, "#1 panic-at-drop; say hel; wait");
    run_until_idle().await;
    let waiting = start_send(&agent, 2, "#2 say b; done");
    run_until_idle().await;
    left.abort();
    run_until_idle().await;
    assert_eq!(world.pool.stop(Duration::ZERO).await, 2);
    assert_eq!(expect_end(waiting).await.outcome, TurnOutcome::Cancelled, "whoever waits is answered");
    assert_eq!((world.model.observations().live_total, alive_task_count()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn an_abort_cuts_the_grace_short() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sendings = [start_send(&agent, 1, "say hel; wait"), start_send(&agent, 2, "wait")];
    run_until_idle().await;
    let mut stopping = Box::pin(world.pool.stop(GRACE));
    assert!((&mut stopping).now_or_never().is_none());
    world.pool.abort_turns();
    assert_eq!(without_waiting(stopping).await, 0, "they were cancelled before the grace was over");
    for (sending, said) in sendings.into_iter().zip(["hel", ""]) {
        let end = expect_end(sending).await;
        assert_eq!((end.outcome, end.content.as_str()), (TurnOutcome::Cancelled, said));
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_gets_in_once_a_stop_has_begun() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sending = start_send(&agent, 1, "wait; say a; done");
    run_until_idle().await;
    let mut stopping = Box::pin(world.pool.stop(GRACE));
    assert!((&mut stopping).now_or_never().is_none());
    assert!(is_stop_requested(&world.pool));
    let refused = [
        expect_fault(start_send(&agent, 2, "say b; done")).await,
        world.expect_create_refused(AgentSpec::default()).await,
        world.pool.main_agent().await.err().expect("not even main"),
    ];
    for fault in refused {
        assert!(is_busy(&fault) && fault.public == "Server shutting down", "{fault:?}");
    }
    world.model.release_all();
    assert_eq!(stopping.await, 0);
    assert_eq!(expect_end(sending).await.content, "a");
    assert!(is_busy(&expect_fault(start_send(&agent, 3, "say c; done")).await), "also afterwards");
    assert_eq!(without_waiting(world.pool.stop(GRACE)).await, 0, "a second stop has nothing to do");
}

#[tokio::test(start_paused = true)]
async fn an_empty_pool_stops_at_once() {
    assert_eq!(without_waiting(World::new().await.pool.stop(GRACE)).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_is_given_up_can_be_made_again() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sending = start_send(&agent, 1, "wait");
    run_until_idle().await;
    let mut stopping = Box::pin(world.pool.stop(GRACE));
    assert!((&mut stopping).now_or_never().is_none());
    drop(stopping);
    assert_eq!(world.pool.stop(Duration::ZERO).await, 1);
    assert_eq!(expect_end(sending).await.outcome, TurnOutcome::Cancelled);
    assert_eq!(alive_task_count(), 0);
}

/// A clock that can be held up: says when it was asked, and waits for a word.
#[derive(Default)]
struct BlockingClock {
    hold: Mutex<Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>>,
}

impl Clock for BlockingClock {
    fn now(&self) -> Timestamp {
        if let Some((asked, go_on)) = self.hold.lock().ok().and_then(|mut hold| hold.take()) {
            let _ = asked.send(());
            let _ = go_on.recv();
        }
        NOW
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_being_created_does_not_slip_in_behind_a_stop() {
    let clock = Arc::new(BlockingClock::default());
    let world = World::with_clock(Arc::<BlockingClock>::clone(&clock), Limits::default()).await;
    let (asked, was_asked) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel();
    *clock.hold.lock().expect("nobody panicked") = Some((asked, goes_on));
    let pool = world.pool.clone();
    let creating = tokio::spawn(async move {
        let created = pool.create(spec_named("late"), Initiator::Admin).await;
        created.map(|created| created.handle.id().clone())
    });
    tokio::task::spawn_blocking(move || was_asked.recv().expect("the clock was asked"))
        .await
        .expect("it was");
    let pool = world.pool.clone();
    let stopping = tokio::spawn(async move { pool.stop(GRACE).await });
    world.pool.stop_requested().await;
    go_on.send(()).expect("the clock waits");
    let created = creating.await.expect("create does not panic");
    let stopped =
        tokio::time::timeout(GRACE, stopping).await.expect("a stop waits for nobody but those at work");
    assert_eq!(stopped.expect("a stop does not panic"), 0);
    match created {
        Ok(id) => assert_eq!(world.names().await, [id.to_string()], "what was said to be kept is kept"),
        Err(fault) => {
            assert!(is_busy(&fault), "{fault:?} after the stop");
            assert_eq!(world.pool.agent_count(), 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sends_that_race_with_a_destroy_are_always_answered() {
    let world = World::new().await;
    for _ in 0..300 {
        let agent = world.agent("a").await;
        let sendings: Vec<_> = (0..4).map(|place| start_send(&agent, place, "wait")).collect();
        let (pool, target) = (world.pool.clone(), agent.agent_ref());
        let destroying =
            tokio::spawn(async move { pool.destroy(&target, ChildPolicy::Cascade, Initiator::Admin).await });
        assert_eq!(destroying.await.expect("destroy does not panic"), Ok(true));
        for sending in sendings {
            let answer = tokio::time::timeout(Duration::from_secs(30), sending).await;
            let answer = answer.expect("a send was lost").expect("a send does not panic");
            let gone = |fault: agent::Fault| fault.kind == FaultKind::NotFound;
            assert!(answer.map_or_else(gone, |end| end.outcome == TurnOutcome::Cancelled));
        }
    }
    assert_eq!(world.pool.stop(GRACE).await, 0);
}
