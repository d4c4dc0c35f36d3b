//! Cancellation of running, queued and unknown sends, without delay.

use agent::{Role, TurnOutcome};
use runtime::Limits;

use crate::history::{messages, roles, texts};
use crate::world::{World, expect_end, numeric_request_id, run_until_idle, start_send, without_waiting};

#[tokio::test(start_paused = true)]
async fn cancelled_running_send_returns_partial_text() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sending = start_send(&agent, 1, "report 5; say hel; wait; say lo; done");
    run_until_idle().await;
    assert!(without_waiting(agent.cancel(numeric_request_id(1))).await);
    run_until_idle().await;
    assert_eq!(world.model.observations().live_total, 0, "the stream is dropped");
    let end = expect_end(sending).await;
    assert_eq!(end.outcome, TurnOutcome::Cancelled);
    assert_eq!(end.content, "hel");
    assert_eq!(end.usage.map(|usage| usage.input), Some(5));
    assert_eq!(messages(&agent)[1].ending, Some(agent::Ending::Cancelled));
    assert_eq!(expect_end(start_send(&agent, 2, "say next; done")).await.content, "next");
    assert_eq!(world.pool.open_turns(), 0);
}

#[tokio::test(start_paused = true)]
async fn cancelled_queued_send_never_reaches_the_model() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let running = start_send(&agent, 1, "wait; say a; done");
    let queued = start_send(&agent, 2, "say b; done");
    let last = start_send(&agent, 3, "say c; done");
    run_until_idle().await;
    assert!(without_waiting(agent.cancel(numeric_request_id(2))).await);
    let end = without_waiting(expect_end(queued)).await;
    assert_eq!((end.outcome, end.content.as_str()), (TurnOutcome::Cancelled, ""));
    world.model.release_all();
    expect_end(running).await;
    assert_eq!(expect_end(last).await.content, "c");
    assert_eq!(texts(&agent), ["wait; say a; done", "a", "say c; done", "c"]);
}

#[tokio::test(start_paused = true)]
async fn send_waiting_for_a_slot_can_be_cancelled() {
    let world = World::with_limits(Limits { turns_running_max: 1, ..Limits::default() }).await;
    let (first, second) = (world.agent("first").await, world.agent("second").await);
    let running = start_send(&first, 1, "wait; say a; done");
    let queued = start_send(&second, 1, "say b; done");
    run_until_idle().await;
    assert!(without_waiting(second.cancel(numeric_request_id(1))).await);
    assert_eq!(expect_end(queued).await.outcome, TurnOutcome::Cancelled);
    assert_eq!(texts(&second), Vec::<String>::new(), "the turn never started");
    world.model.release_all();
    expect_end(running).await;
    assert_eq!(expect_end(start_send(&second, 2, "say c; done")).await.content, "c", "no slot was lost");
}

#[tokio::test(start_paused = true)]
async fn only_open_turns_can_be_cancelled() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    assert!(!without_waiting(agent.cancel(numeric_request_id(1))).await, "unknown");
    expect_end(start_send(&agent, 1, "say a; done")).await;
    assert!(!without_waiting(agent.cancel(numeric_request_id(1))).await, "ended");
    let sending = start_send(&agent, 5, "wait");
    run_until_idle().await;
    let text = agent::RequestId::Text("5".to_owned());
    assert!(!without_waiting(agent.cancel(text)).await, "a text id differs from a number");
    assert!(without_waiting(agent.cancel(numeric_request_id(5))).await);
    assert!(!without_waiting(agent.cancel(numeric_request_id(5))).await, "cancelled before");
    expect_end(sending).await;
}

#[tokio::test(start_paused = true)]
async fn cancel_in_a_tool_round_records_every_result() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sending = start_send(&agent, 1, "call note x; call note y; done | say so; wait");
    world.model.wait_called(2).await;
    run_until_idle().await;
    assert!(agent.cancel(numeric_request_id(1)).await);
    assert_eq!(expect_end(sending).await.content, "so");
    assert_eq!(roles(&agent), [Role::User, Role::Assistant, Role::Tool, Role::Tool, Role::Assistant]);
}

#[tokio::test(start_paused = true)]
async fn model_that_never_yields_can_be_cancelled() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sending = start_send(&agent, 1, "flood 1000000; done");
    world.model.wait_called(1).await;
    assert!(without_waiting(agent.cancel(numeric_request_id(1))).await, "the model blocked the thread");
    let end = expect_end(sending).await;
    assert_eq!(end.outcome, TurnOutcome::Cancelled);
    assert!(end.content.len() < 1_000_000);
}

#[tokio::test(start_paused = true)]
async fn thousand_stalled_sends_delay_no_control_call() {
    let world = World::with_limits(Limits { turns_running_max: 8, ..Limits::default() }).await;
    let mut agents = Vec::new();
    for index in 0..10 {
        agents.push(world.agent(&format!("a{index}")).await);
    }
    let mut sendings: Vec<_> = (0..1000)
        .map(|index| start_send(&agents[index % 10], i64::try_from(index).unwrap(), "wait"))
        .collect();
    run_until_idle().await;
    assert_eq!(world.pool.open_turns(), 1000);
    let last = sendings.pop().expect("a thousand were sent");
    assert!(without_waiting(agents[9].cancel(numeric_request_id(999))).await);
    assert_eq!(without_waiting(expect_end(last)).await.outcome, TurnOutcome::Cancelled);
    let first = sendings.remove(0);
    assert!(without_waiting(agents[0].cancel(numeric_request_id(0))).await);
    assert_eq!(without_waiting(expect_end(first)).await.outcome, TurnOutcome::Cancelled);
    assert_eq!(world.list().await.len(), 10);
    assert!(without_waiting(world.destroy(&agents[0])).await);
    assert_eq!(world.pool.open_turns(), 1000 - 2 - 99);
    world.pool.abort_turns();
    for sending in sendings {
        assert_eq!(expect_end(sending).await.outcome, TurnOutcome::Cancelled);
    }
    assert_eq!(world.pool.open_turns(), 0);
}
