//! Cancelling: running, waiting and unknown sends, and that nothing keeps a cancel waiting.

use agent::{Role, TurnOutcome};
use runtime::Limits;

use crate::history::{messages, roles, texts};
use crate::world::{World, at_once, end_of, numeric_request_id, settle, start};

#[tokio::test(start_paused = true)]
async fn a_running_send_ends_now_with_what_was_said() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sending = start(&agent, 1, "report 5; say hel; wait; say lo; done");
    settle().await;
    assert!(at_once(agent.cancel(numeric_request_id(1))).await);
    settle().await;
    assert_eq!(world.model.seen().live_total, 0, "the stream is dropped");
    let end = end_of(sending).await;
    assert_eq!(end.outcome, TurnOutcome::Cancelled);
    assert_eq!(end.content, "hel");
    assert_eq!(end.usage.map(|usage| usage.input), Some(5));
    assert_eq!(messages(&agent)[1].ending, Some(agent::Ending::Cancelled));
    assert_eq!(end_of(start(&agent, 2, "say next; done")).await.content, "next");
    assert_eq!(world.pool.open_turns(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_send_ends_now_and_never_reaches_the_model() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let running = start(&agent, 1, "wait; say a; done");
    let waiting = start(&agent, 2, "say b; done");
    let behind = start(&agent, 3, "say c; done");
    settle().await;
    assert!(at_once(agent.cancel(numeric_request_id(2))).await);
    let end = at_once(end_of(waiting)).await;
    assert_eq!((end.outcome, end.content.as_str()), (TurnOutcome::Cancelled, ""));
    world.model.release_all();
    end_of(running).await;
    assert_eq!(end_of(behind).await.content, "c");
    assert_eq!(texts(&agent), ["wait; say a; done", "a", "say c; done", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_send_that_waits_for_a_slot_can_be_cancelled() {
    let world = World::with(Limits { turns_running_max: 1, ..Limits::default() }).await;
    let (first, second) = (world.agent("first").await, world.agent("second").await);
    let running = start(&first, 1, "wait; say a; done");
    let waiting = start(&second, 1, "say b; done");
    settle().await;
    assert!(at_once(second.cancel(numeric_request_id(1))).await);
    assert_eq!(end_of(waiting).await.outcome, TurnOutcome::Cancelled);
    assert_eq!(texts(&second), Vec::<String>::new(), "it never began");
    world.model.release_all();
    end_of(running).await;
    assert_eq!(end_of(start(&second, 2, "say c; done")).await.content, "c", "no slot was lost");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_open_cannot_be_cancelled() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    assert!(!at_once(agent.cancel(numeric_request_id(1))).await, "it never was");
    end_of(start(&agent, 1, "say a; done")).await;
    assert!(!at_once(agent.cancel(numeric_request_id(1))).await, "it has ended");
    let sending = start(&agent, 5, "wait");
    settle().await;
    let text = agent::RequestId::Text("5".to_owned());
    assert!(!at_once(agent.cancel(text)).await, "a text is not a number");
    assert!(at_once(agent.cancel(numeric_request_id(5))).await);
    assert!(!at_once(agent.cancel(numeric_request_id(5))).await, "it was cancelled before");
    end_of(sending).await;
}

#[tokio::test(start_paused = true)]
async fn a_cancel_in_a_tool_round_answers_every_call() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sending = start(&agent, 1, "call note x; call note y; done | say so; wait");
    world.model.asked(2).await;
    settle().await;
    assert!(agent.cancel(numeric_request_id(1)).await);
    assert_eq!(end_of(sending).await.content, "so");
    assert_eq!(roles(&agent), [Role::User, Role::Assistant, Role::Tool, Role::Tool, Role::Assistant]);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_never_pauses_can_be_cancelled() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sending = start(&agent, 1, "flood 1000000; done");
    world.model.asked(1).await;
    assert!(at_once(agent.cancel(numeric_request_id(1))).await, "the model left nobody else the thread");
    let end = end_of(sending).await;
    assert_eq!(end.outcome, TurnOutcome::Cancelled);
    assert!(end.content.len() < 1_000_000);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_stalled_sends_keep_no_control_call_waiting() {
    let world = World::with(Limits { turns_running_max: 8, ..Limits::default() }).await;
    let mut agents = Vec::new();
    for place in 0..10 {
        agents.push(world.agent(&format!("a{place}")).await);
    }
    let mut sendings: Vec<_> =
        (0..1000).map(|place| start(&agents[place % 10], i64::try_from(place).unwrap(), "wait")).collect();
    settle().await;
    assert_eq!(world.pool.open_turns(), 1000);
    let last = sendings.pop().expect("a thousand were sent");
    assert!(at_once(agents[9].cancel(numeric_request_id(999))).await);
    assert_eq!(at_once(end_of(last)).await.outcome, TurnOutcome::Cancelled);
    let first = sendings.remove(0);
    assert!(at_once(agents[0].cancel(numeric_request_id(0))).await);
    assert_eq!(at_once(end_of(first)).await.outcome, TurnOutcome::Cancelled);
    assert_eq!(world.list().await.len(), 10);
    assert!(at_once(world.destroy(&agents[0])).await);
    assert_eq!(world.pool.open_turns(), 1000 - 2 - 99);
    world.pool.abort_turns();
    for sending in sendings {
        assert_eq!(end_of(sending).await.outcome, TurnOutcome::Cancelled);
    }
    assert_eq!(world.pool.open_turns(), 0);
}
