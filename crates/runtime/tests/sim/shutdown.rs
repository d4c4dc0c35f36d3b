//! Stopping: stop requests, the grace period for turns, and that nothing is left running.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use agent::{FaultKind, TurnOutcome};
use futures_util::FutureExt;
use runtime::{AgentSpec, ChildPolicy, Initiator, Limits, PoolHandle};
use testkit::TestClock;
use tokio::time::Instant;

use crate::world::{
    World, alive_task_count, expect_end, expect_fault, is_busy, run_until_idle, spec_named, start_send,
    without_waiting,
};

const GRACE: Duration = Duration::from_secs(10);

fn is_stop_requested(pool: &PoolHandle) -> bool {
    pool.stop_requested().now_or_never().is_some()
}

#[tokio::test(start_paused = true)]
async fn stop_is_requested_when_all_agents_are_finished() {
    let world = World::new().await;
    let (first, second) = (world.agent("first").await, world.agent("second").await);
    world.finish(&first).await;
    world.finish(&first).await;
    assert!(!is_stop_requested(&world.pool), "only one of two is finished");
    assert!(world.status(&first).should_shutdown && !world.status(&second).should_shutdown);
    assert_eq!(
        expect_end(start_send(&first, 1, "say a; done")).await.content,
        "a",
        "a finished agent still responds"
    );
    world.finish(&second).await;
    assert!(is_stop_requested(&world.pool));
    let fault = world.expect_create_rejected(spec_named("third")).await;
    assert!(is_busy(&fault) && fault.public == "Server shutting down", "{fault:?}");
    assert_eq!(
        expect_end(start_send(&first, 2, "say b; done")).await.content,
        "b",
        "until the pool is stopped"
    );
}

#[tokio::test(start_paused = true)]
async fn destroying_the_last_unfinished_agent_requests_stop() {
    let world = World::new().await;
    let finished = world.agent("finished").await;
    world.agent("unfinished").await;
    world.finish(&finished).await;
    assert!(world.destroy_named("unfinished", ChildPolicy::Cascade).await);
    assert!(is_stop_requested(&world.pool));
}

#[tokio::test(start_paused = true)]
async fn empty_pool_requests_no_stop() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    assert!(world.destroy(&agent).await);
    assert!(!is_stop_requested(&world.pool), "its last agent was destroyed");
    let fault =
        world.pool.mark_agent_finished(&agent, Initiator::Admin).await.expect_err("the agent is destroyed");
    assert_eq!(fault.kind, FaultKind::NotFound);
    assert!(!is_stop_requested(&world.pool), "a destroyed agent does not count");
    world.agent("b").await;
}

#[tokio::test(start_paused = true)]
async fn stop_waits_for_turns_within_the_grace_period() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sendings =
        [start_send(&agent, 1, "say a; pass 4000; done"), start_send(&agent, 2, "say b; pass 4000; done")];
    run_until_idle().await;
    let started_at = Instant::now();
    assert_eq!(world.pool.stop(GRACE).await, 0);
    assert!(Instant::now() - started_at < GRACE);
    for (sending, content) in sendings.into_iter().zip(["a", "b"]) {
        let end = expect_end(sending).await;
        assert_eq!((end.outcome, end.content.as_str()), (TurnOutcome::Completed, content));
    }
    assert_eq!(
        (world.pool.agent_count(), world.pool.open_turns(), alive_task_count()),
        (1, 0, 0),
        "agents survive a stop"
    );
}

#[tokio::test(start_paused = true)]
async fn stop_cancels_turns_after_the_grace_period() {
    let world = World::with_limits(Limits { turns_running_max: 2, ..Limits::default() }).await;
    let agents = world.agents(["a", "b", "c"]).await;
    let in_time = start_send(&agents[0], 1, "say done; pass 3000; done");
    let late: Vec<_> = agents.iter().map(|agent| start_send(agent, 2, "say hel; wait")).collect();
    run_until_idle().await;
    let started_at = Instant::now();
    assert_eq!(world.pool.stop(GRACE).await, 3);
    assert_eq!(Instant::now() - started_at, GRACE);
    assert_eq!(expect_end(in_time).await.outcome, TurnOutcome::Completed);
    for sending in late {
        assert_eq!(expect_end(sending).await.outcome, TurnOutcome::Cancelled);
    }
    assert_eq!(world.model.observations().live_total, 0);
    assert_eq!(alive_task_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn detached_turn_does_not_affect_other_sends_at_stop() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let detached = start_send(&agent, 1, "#1 panic-at-drop; say hel; wait");
    run_until_idle().await;
    let queued = start_send(&agent, 2, "#2 say b; done");
    run_until_idle().await;
    detached.abort();
    run_until_idle().await;
    assert_eq!(world.pool.stop(Duration::ZERO).await, 2);
    assert_eq!(expect_end(queued).await.outcome, TurnOutcome::Cancelled, "a waiting sender gets a response");
    assert_eq!((world.model.observations().live_total, alive_task_count()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn abort_ends_the_grace_period() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sendings = [start_send(&agent, 1, "say hel; wait"), start_send(&agent, 2, "wait")];
    run_until_idle().await;
    let mut stop = Box::pin(world.pool.stop(GRACE));
    assert!((&mut stop).now_or_never().is_none());
    world.pool.abort_turns();
    assert_eq!(without_waiting(stop).await, 0, "cancelled before the grace period ended");
    for (sending, content) in sendings.into_iter().zip(["hel", ""]) {
        let end = expect_end(sending).await;
        assert_eq!((end.outcome, end.content.as_str()), (TurnOutcome::Cancelled, content));
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_accepted_during_a_stop() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sending = start_send(&agent, 1, "wait; say a; done");
    run_until_idle().await;
    let mut stop = Box::pin(world.pool.stop(GRACE));
    assert!((&mut stop).now_or_never().is_none());
    assert!(is_stop_requested(&world.pool));
    let faults = [
        expect_fault(start_send(&agent, 2, "say b; done")).await,
        world.expect_create_rejected(AgentSpec::default()).await,
        world.pool.main_agent().await.err().expect("not even main"),
    ];
    for fault in faults {
        assert!(is_busy(&fault) && fault.public == "Server shutting down", "{fault:?}");
    }
    world.model.release_all();
    assert_eq!(stop.await, 0);
    assert_eq!(expect_end(sending).await.content, "a");
    assert!(is_busy(&expect_fault(start_send(&agent, 3, "say c; done")).await), "also afterwards");
    assert_eq!(without_waiting(world.pool.stop(GRACE)).await, 0, "a second stop cancels nothing");
}

#[tokio::test(start_paused = true)]
async fn idle_pool_stops_at_once() {
    assert_eq!(without_waiting(World::new().await.pool.stop(GRACE)).await, 0);
}

#[tokio::test(start_paused = true)]
async fn dropped_stop_can_be_repeated() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sending = start_send(&agent, 1, "wait");
    run_until_idle().await;
    let mut stop = Box::pin(world.pool.stop(GRACE));
    assert!((&mut stop).now_or_never().is_none());
    drop(stop);
    assert_eq!(world.pool.stop(Duration::ZERO).await, 1);
    assert_eq!(expect_end(sending).await.outcome, TurnOutcome::Cancelled);
    assert_eq!(alive_task_count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn create_does_not_complete_after_a_stop() {
    // The clock of the create signals the call, then waits for permission to return.
    let hold = Arc::new(Mutex::new(None::<(mpsc::Sender<()>, mpsc::Receiver<()>)>));
    let held = Arc::clone(&hold);
    let clock = TestClock::calling(move || {
        if let Some((called, resume)) = held.lock().ok().and_then(|mut hold| hold.take()) {
            let _ = called.send(());
            let _ = resume.recv();
        }
    });
    let world = World::with_clock(Arc::new(clock), Limits::default()).await;
    let (called, was_called) = mpsc::channel();
    let (resume, resumed) = mpsc::channel();
    *hold.lock().expect("no panic") = Some((called, resumed));
    let pool = world.pool.clone();
    let creating = tokio::spawn(async move {
        let created = pool.create(spec_named("late"), Initiator::Admin).await;
        created.map(|created| created.handle.id().clone())
    });
    tokio::task::spawn_blocking(move || was_called.recv().expect("the clock was called"))
        .await
        .expect("no panic");
    let pool = world.pool.clone();
    let stop = tokio::spawn(async move { pool.stop(GRACE).await });
    world.pool.stop_requested().await;
    resume.send(()).expect("the clock waits");
    let created = creating.await.expect("create does not panic");
    let stopped = tokio::time::timeout(GRACE, stop).await.expect("the stop waits only for running work");
    assert_eq!(stopped.expect("a stop does not panic"), 0);
    match created {
        Ok(id) => assert_eq!(world.names().await, [id.to_string()], "an acknowledged create is committed"),
        Err(fault) => {
            assert!(is_busy(&fault), "{fault:?} after the stop");
            assert_eq!(world.pool.agent_count(), 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sends_that_race_with_a_destroy_get_a_response() {
    let world = World::new().await;
    for _ in 0..300 {
        let agent = world.agent("a").await;
        let sendings: Vec<_> = (0..4).map(|number| start_send(&agent, number, "wait")).collect();
        let (pool, target) = (world.pool.clone(), agent.agent_ref());
        let destroying =
            tokio::spawn(async move { pool.destroy(&target, ChildPolicy::Cascade, Initiator::Admin).await });
        assert_eq!(destroying.await.expect("destroy does not panic"), Ok(true));
        for sending in sendings {
            let response = tokio::time::timeout(Duration::from_secs(30), sending).await;
            let response = response.expect("a send was lost").expect("a send does not panic");
            let is_not_found = |fault: agent::Fault| fault.kind == FaultKind::NotFound;
            assert!(response.map_or_else(is_not_found, |end| end.outcome == TurnOutcome::Cancelled));
        }
    }
    assert_eq!(world.pool.stop(GRACE).await, 0);
}
