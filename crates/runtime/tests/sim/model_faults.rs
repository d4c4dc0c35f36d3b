//! Model faults: each one fails one turn and nothing else.

use std::time::Duration;

use agent::{Ending, FaultKind, TurnOutcome};
use runtime::Limits;
use tokio::time::Instant;

use crate::history::{idle_history_violation, messages};
use crate::world::{World, expect_end, expect_fault, numeric_request_id, run_until_idle, start_send};

const IDLE: Duration = Duration::from_secs(120);

#[tokio::test(start_paused = true)]
async fn model_panic_fails_only_its_turn() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let scripts = ["panic-at-call", "say a; yield; panic", "call note; done | panic"];
    for (number, script) in (1..).zip(scripts) {
        let failing = start_send(&agent, number, script);
        let next = start_send(&agent, 100 + number, "say fine; done");
        let fault = expect_fault(failing).await;
        assert_eq!(fault.kind, FaultKind::Internal, "{script}");
        assert_eq!(fault.public, "Internal error: the turn panicked");
        assert!(fault.cause.is_some_and(|cause| cause.starts_with("the model panicked")), "{script}");
        assert_eq!(expect_end(next).await.content, "fine", "after {script}");
    }
    assert_eq!(idle_history_violation(&messages(&agent)), None);
    assert_eq!(world.pool.open_turns(), 0);
}

#[tokio::test(start_paused = true)]
async fn stream_panic_on_drop_does_not_end_the_agent() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let first = start_send(&agent, 1, "panic-at-drop; say a; done");
    let second = start_send(&agent, 2, "panic-at-drop; say b; wait");
    assert_eq!(expect_end(first).await.content, "a", "the response was complete before");
    world.model.wait_called(2).await;
    run_until_idle().await;
    assert!(agent.cancel(numeric_request_id(2)).await);
    let end = expect_end(second).await;
    assert_eq!((end.outcome, end.content.as_str()), (TurnOutcome::Cancelled, "b"));
    assert_eq!(expect_end(start_send(&agent, 3, "say c; done")).await.content, "c");
}

#[tokio::test(start_paused = true)]
async fn failed_turn_commits_its_partial_text() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let fault = expect_fault(start_send(&agent, 1, "say hel; fail")).await;
    assert_eq!((fault.kind, fault.public.as_ref()), (FaultKind::Model, "the model failed"));
    let partial = &messages(&agent)[1];
    assert_eq!((partial.text.as_str(), partial.ending), ("hel", Some(Ending::Failed)));
    assert_eq!(expect_end(start_send(&agent, 2, "say c; done")).await.content, "c");
}

#[tokio::test(start_paused = true)]
async fn stream_without_end_marker_is_a_fault() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    for (number, script) in (1..).zip(["", "say hel", "say hel; call note", "report 1"]) {
        let fault = expect_fault(start_send(&agent, number, script)).await;
        assert_eq!(fault.kind, FaultKind::Model, "{script:?}");
        assert!(fault.public.starts_with("Streaming response was interrupted"), "{script:?}: {fault}");
    }
    assert!(messages(&agent).iter().all(|message| message.tool_calls.is_empty()), "no call was run");
}

#[tokio::test(start_paused = true)]
async fn silent_model_times_out() {
    let world = World::with_limits(Limits { model_idle_timeout: IDLE, ..Limits::default() }).await;
    let agent = world.agent("a").await;
    let started_at = Instant::now();
    let fault = expect_fault(start_send(&agent, 1, "say hel; pass 100000; say lo; wait")).await;
    assert_eq!(fault.public, "API request timed out: the model was silent for 120 s");
    let silent = Instant::now() - started_at - Duration::from_secs(100);
    assert!(silent >= IDLE && silent < IDLE + Duration::from_millis(10), "timed out after {silent:?}");
    assert_eq!(world.model.observations().live_total, 0);
    assert_eq!(messages(&agent)[1].text, "hello");
}

#[tokio::test(start_paused = true)]
async fn model_that_streams_slowly_does_not_time_out() {
    let world = World::with_limits(Limits { model_idle_timeout: IDLE, ..Limits::default() }).await;
    let script = "say a; pass 119000; say b; pass 119000; say c; pass 119000; done";
    assert_eq!(expect_end(start_send(&world.agent("a").await, 1, script)).await.content, "abc");
}

#[tokio::test(start_paused = true)]
async fn commands_do_not_extend_the_idle_timeout() {
    let world = World::with_limits(Limits { model_idle_timeout: IDLE, ..Limits::default() }).await;
    let agent = world.agent("a").await;
    let started_at = Instant::now();
    let sending = start_send(&agent, 1, "wait");
    while !sending.is_finished() {
        let waited = Instant::now() - started_at;
        assert!(waited < IDLE * 2, "still waiting after {waited:?}");
        tokio::time::sleep(Duration::from_secs(50)).await;
        agent.cancel(numeric_request_id(7)).await;
    }
    assert_eq!(expect_fault(sending).await.kind, FaultKind::Model);
}

#[tokio::test(start_paused = true)]
async fn each_model_call_has_its_own_idle_timeout() {
    let world = World::with_limits(Limits { model_idle_timeout: IDLE, ..Limits::default() }).await;
    let script = "pass 100000; call note; done | pass 100000; say b; done";
    assert_eq!(expect_end(start_send(&world.agent("a").await, 1, script)).await.content, "b");
}

#[tokio::test(start_paused = true)]
async fn queued_request_does_not_time_out() {
    let world = World::with_limits(Limits { model_idle_timeout: IDLE, ..Limits::default() }).await;
    let agent = world.agent("a").await;
    let script = "queue; pass 600000; live; pass 119000; queue; pass 600000; live; pass 119000; say a; done";
    assert_eq!(expect_end(start_send(&agent, 1, script)).await.content, "a");
    assert_eq!(messages(&agent)[1].text, "a", "the wait is not in the history");
}

#[tokio::test(start_paused = true)]
async fn heartbeat_resets_the_idle_timeout() {
    let world = World::with_limits(Limits { model_idle_timeout: IDLE, ..Limits::default() }).await;
    let script = "pass 119000; live; pass 119000; say a; pass 119000; live; pass 119000; done";
    assert_eq!(expect_end(start_send(&world.agent("a").await, 1, script)).await.content, "a");
}

#[tokio::test(start_paused = true)]
async fn idle_timeout_starts_after_the_queue_wait() {
    let world = World::with_limits(Limits { model_idle_timeout: IDLE, ..Limits::default() }).await;
    let started_at = Instant::now();
    let fault = expect_fault(start_send(&world.agent("a").await, 1, "queue; pass 600000; live; wait")).await;
    assert_eq!(fault.public, "API request timed out: the model was silent for 120 s");
    let silent = Instant::now() - started_at - Duration::from_secs(600);
    assert!(silent >= IDLE && silent < IDLE + Duration::from_millis(10), "timed out after {silent:?}");
}

#[tokio::test(start_paused = true)]
async fn endless_queue_wait_times_out_after_an_hour() {
    let world = World::with_limits(Limits { model_idle_timeout: IDLE, ..Limits::default() }).await;
    let fault = expect_fault(start_send(&world.agent("a").await, 1, "queue; wait")).await;
    assert_eq!(fault.public, "API request timed out: the model was silent for 3600 s");
}

#[tokio::test(start_paused = true)]
async fn response_beyond_its_limit_ends_the_turn() {
    let world = World::with_limits(Limits { answer_bytes_max: 1_000, ..Limits::default() }).await;
    let agent = world.agent("a").await;
    assert_eq!(expect_end(start_send(&agent, 1, "flood 1000; done")).await.content.len(), 1_000);
    let call = format!("call note {}; done | say so; done", "x".repeat(1_001));
    let thought = format!("say {}; think {}; done", "x".repeat(500), "x".repeat(501));
    for (number, script) in (2..).zip(["flood 1001; wait", call.as_str(), thought.as_str()]) {
        let fault = expect_fault(start_send(&agent, number, script)).await;
        assert!(fault.public.contains("it is longer than 1000 bytes"), "{fault}");
        assert_eq!(world.model.observations().live_total, 0, "the request is cancelled");
    }
    assert_eq!(messages(&agent)[3].text.len(), 1_000, "the partial text is committed");
    let rounds = "flood 900; call note; done | flood 900; done";
    assert_eq!(expect_end(start_send(&agent, 9, rounds)).await.content.len(), 1_800, "per response");
}

#[tokio::test(start_paused = true)]
async fn responses_of_all_turns_share_a_byte_budget() {
    let world = World::with_limits(Limits { running_answers_bytes_max: 1_000, ..Limits::default() }).await;
    let (first, second) = (world.agent("a").await, world.agent("b").await);
    let script = format!("say {}; say {}; wait; done", "x".repeat(65_536), "x".repeat(600));
    let running = start_send(&first, 1, &script);
    run_until_idle().await;
    assert_eq!(expect_end(start_send(&second, 1, "flood 1000; done")).await.content.len(), 1_000);
    let fault = expect_fault(start_send(&second, 2, &script)).await;
    assert!(fault.public.contains("all running turns exceed 1000 bytes"), "{fault}");
    world.model.release_all();
    assert_eq!(expect_end(running).await.content.len(), 66_136, "another turn does not end it");
    let running = start_send(&second, 3, &script);
    run_until_idle().await;
    world.model.release_all();
    expect_end(running).await;
}
