//! Steering: instructions sent to a running turn.

use agent::{MessageSource, STEERS_MAX, TurnOutcome};

use crate::history::{idle_history_violation, messages, texts};
use crate::world::{World, expect_end, numeric_request_id, run_until_idle, start_send, without_waiting};

const STEER_SCRIPT: &str = "#s say steered; done";

#[tokio::test(start_paused = true)]
async fn instruction_is_in_the_next_model_call() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sending = start_send(&agent, 1, "call slow release; done | say never; done");
    world.tools.wait_started(1).await;
    assert_eq!(
        without_waiting(agent.steer(STEER_SCRIPT.to_owned(), MessageSource::default())).await,
        Some(numeric_request_id(1))
    );
    world.tools.release_all();
    assert_eq!(expect_end(sending).await.content, "steered");
    assert_eq!(texts(&agent)[3..], [STEER_SCRIPT, "steered"]);
    assert_eq!(idle_history_violation(&messages(&agent)), None);
}

#[tokio::test(start_paused = true)]
async fn instruction_during_the_last_response_adds_a_round() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sending = start_send(&agent, 1, "say first; wait; done");
    run_until_idle().await;
    assert_eq!(
        without_waiting(agent.steer(STEER_SCRIPT.to_owned(), MessageSource::default())).await,
        Some(numeric_request_id(1))
    );
    world.model.release_all();
    assert_eq!(expect_end(sending).await.content, "firststeered");
}

#[tokio::test(start_paused = true)]
async fn instruction_is_committed_when_the_turn_is_cancelled() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sending = start_send(&agent, 1, "say first; wait; done");
    run_until_idle().await;
    assert!(agent.steer(STEER_SCRIPT.to_owned(), MessageSource::default()).await.is_some());
    assert!(agent.cancel(numeric_request_id(1)).await);
    assert_eq!(expect_end(sending).await.outcome, TurnOutcome::Cancelled);
    assert_eq!(texts(&agent)[1..], [STEER_SCRIPT, "first"]);
}

#[tokio::test(start_paused = true)]
async fn steer_without_a_running_turn_is_rejected() {
    let world =
        World::with_limits(runtime::Limits { turns_running_max: 1, ..runtime::Limits::default() }).await;
    let (first, second) = (world.agent("a").await, world.agent("b").await);
    let steer = || without_waiting(second.steer(STEER_SCRIPT.to_owned(), MessageSource::default()));
    assert_eq!(steer().await, None, "the agent is idle");
    let sendings = [start_send(&first, 1, "wait; say a; done"), start_send(&second, 1, "say b; done")];
    run_until_idle().await;
    assert_eq!(steer().await, None, "its turn waits for a slot");
    world.model.release_all();
    for sending in sendings {
        expect_end(sending).await;
    }
    assert!(world.destroy(&second).await);
    assert_eq!(steer().await, None, "the agent is destroyed");
    assert_eq!(texts(&second), ["say b; done", "b"]);
}

#[tokio::test(start_paused = true)]
async fn number_of_instructions_per_turn_is_limited() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sending = start_send(&agent, 1, "say first; wait; done");
    run_until_idle().await;
    for _ in 0..STEERS_MAX {
        assert!(agent.steer(STEER_SCRIPT.to_owned(), MessageSource::default()).await.is_some());
    }
    assert_eq!(without_waiting(agent.steer(STEER_SCRIPT.to_owned(), MessageSource::default())).await, None);
    world.model.release_all();
    expect_end(sending).await;
    assert_eq!(texts(&agent).len(), 2 + STEERS_MAX + 1, "all of them are committed");
}
