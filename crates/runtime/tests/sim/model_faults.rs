//! What a model can do wrong, and that it costs one turn and no more.

use std::time::Duration;

use agent::{Ending, FaultKind, TurnOutcome};
use runtime::Limits;
use tokio::time::Instant;

use crate::history::{idle_history_violation, messages};
use crate::world::{World, expect_end, expect_fault, numeric_request_id, run_until_idle, start_send};

const IDLE: Duration = Duration::from_secs(120);

#[tokio::test(start_paused = true)]
async fn a_panic_fails_its_turn_alone() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let scripts = ["panic-at-ask", "say a; yield; panic", "call note; done | panic"];
    for (place, script) in (1..).zip(scripts) {
        let waiting_before = start_send(&agent, place, script);
        let behind = start_send(&agent, 100 + place, "say fine; done");
        let fault = expect_fault(waiting_before).await;
        assert_eq!(fault.kind, FaultKind::Internal, "{script}");
        assert_eq!(fault.public, "Internal error: the turn panicked");
        assert!(fault.cause.is_some_and(|cause| cause.starts_with("the model panicked")), "{script}");
        assert_eq!(expect_end(behind).await.content, "fine", "after {script}");
    }
    assert_eq!(idle_history_violation(&messages(&agent)), None);
    assert_eq!(world.pool.open_turns(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_panics_when_dropped_does_not_take_the_agent_with_it() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let whole = start_send(&agent, 1, "panic-at-drop; say a; done");
    let behind = start_send(&agent, 2, "panic-at-drop; say b; wait");
    assert_eq!(expect_end(whole).await.content, "a", "the answer was there before");
    world.model.wait_called(2).await;
    run_until_idle().await;
    assert!(agent.cancel(numeric_request_id(2)).await);
    let end = expect_end(behind).await;
    assert_eq!((end.outcome, end.content.as_str()), (TurnOutcome::Cancelled, "b"));
    assert_eq!(expect_end(start_send(&agent, 3, "say c; done")).await.content, "c");
}

#[tokio::test(start_paused = true)]
async fn a_failed_turn_keeps_what_was_said_and_the_agent_goes_on() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let fault = expect_fault(start_send(&agent, 1, "say hel; fail")).await;
    assert_eq!((fault.kind, fault.public.as_ref()), (FaultKind::Model, "the model failed"));
    let broken = &messages(&agent)[1];
    assert_eq!((broken.text.as_str(), broken.ending), ("hel", Some(Ending::Failed)));
    assert_eq!(expect_end(start_send(&agent, 2, "say c; done")).await.content, "c");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_just_ends_is_no_answer() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    for (place, script) in (1..).zip(["", "say hel", "say hel; call note", "report 1"]) {
        let fault = expect_fault(start_send(&agent, place, script)).await;
        assert_eq!(fault.kind, FaultKind::Model, "{script:?}");
        assert!(fault.public.starts_with("Streaming response was interrupted"), "{script:?}: {fault}");
    }
    assert!(messages(&agent).iter().all(|message| message.tool_calls.is_empty()), "no call was run");
}

#[tokio::test(start_paused = true)]
async fn a_silent_model_is_given_up_after_its_time() {
    let world = World::with_limits(Limits { model_idle_timeout: IDLE, ..Limits::default() }).await;
    let agent = world.agent("a").await;
    let before = Instant::now();
    let fault = expect_fault(start_send(&agent, 1, "say hel; pass 100000; say lo; wait")).await;
    assert_eq!(fault.public, "API request timed out: the model was silent for 120 s");
    let silent = Instant::now() - before - Duration::from_secs(100);
    assert!(silent >= IDLE && silent < IDLE + Duration::from_millis(10), "given up after {silent:?}");
    assert_eq!(world.model.observations().live_total, 0);
    assert_eq!(messages(&agent)[1].text, "hello");
}

#[tokio::test(start_paused = true)]
async fn a_model_that_says_something_now_and_then_is_never_given_up() {
    let world = World::with_limits(Limits { model_idle_timeout: IDLE, ..Limits::default() }).await;
    let script = "say a; pass 119000; say b; pass 119000; say c; pass 119000; done";
    assert_eq!(expect_end(start_send(&world.agent("a").await, 1, script)).await.content, "abc");
}

#[tokio::test(start_paused = true)]
async fn commands_give_a_silent_model_no_more_time() {
    let world = World::with_limits(Limits { model_idle_timeout: IDLE, ..Limits::default() }).await;
    let agent = world.agent("a").await;
    let before = Instant::now();
    let sending = start_send(&agent, 1, "wait");
    while !sending.is_finished() {
        let waited = Instant::now() - before;
        assert!(waited < IDLE * 2, "still waiting after {waited:?}");
        tokio::time::sleep(Duration::from_secs(50)).await;
        agent.cancel(numeric_request_id(7)).await;
    }
    assert_eq!(expect_fault(sending).await.kind, FaultKind::Model);
}

#[tokio::test(start_paused = true)]
async fn each_question_of_a_turn_has_its_own_time() {
    let world = World::with_limits(Limits { model_idle_timeout: IDLE, ..Limits::default() }).await;
    let script = "pass 100000; call note; done | pass 100000; say b; done";
    assert_eq!(expect_end(start_send(&world.agent("a").await, 1, script)).await.content, "b");
}

#[tokio::test(start_paused = true)]
async fn a_question_that_waits_for_its_place_is_not_silent() {
    let world = World::with_limits(Limits { model_idle_timeout: IDLE, ..Limits::default() }).await;
    let agent = world.agent("a").await;
    let script = "queue; pass 600000; live; pass 119000; queue; pass 600000; live; pass 119000; say a; done";
    assert_eq!(expect_end(start_send(&agent, 1, script)).await.content, "a");
    assert_eq!(messages(&agent)[1].text, "a", "nothing of the wait is in the history");
}

#[tokio::test(start_paused = true)]
async fn a_model_that_shows_that_it_is_at_it_is_not_silent() {
    let world = World::with_limits(Limits { model_idle_timeout: IDLE, ..Limits::default() }).await;
    let script = "pass 119000; live; pass 119000; say a; pass 119000; live; pass 119000; done";
    assert_eq!(expect_end(start_send(&world.agent("a").await, 1, script)).await.content, "a");
}

#[tokio::test(start_paused = true)]
async fn behind_a_wait_a_silent_model_has_its_time_and_no_more() {
    let world = World::with_limits(Limits { model_idle_timeout: IDLE, ..Limits::default() }).await;
    let before = Instant::now();
    let fault = expect_fault(start_send(&world.agent("a").await, 1, "queue; pass 600000; live; wait")).await;
    assert_eq!(fault.public, "API request timed out: the model was silent for 120 s");
    let silent = Instant::now() - before - Duration::from_secs(600);
    assert!(silent >= IDLE && silent < IDLE + Duration::from_millis(10), "given up after {silent:?}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_nobody_ends_is_ended_after_an_hour() {
    let world = World::with_limits(Limits { model_idle_timeout: IDLE, ..Limits::default() }).await;
    let fault = expect_fault(start_send(&world.agent("a").await, 1, "queue; wait")).await;
    assert_eq!(fault.public, "API request timed out: the model was silent for 3600 s");
}
