//! Words that are added to a turn under way.

use agent::{MessageSource, STEERS_MAX, TurnOutcome};

use crate::history::{idle_history_violation, messages, texts};
use crate::world::{World, expect_end, numeric_request_id, run_until_idle, start_send, without_waiting};

const STEER_SCRIPT: &str = "#s say steered; done";

#[tokio::test(start_paused = true)]
async fn a_word_is_delivered_before_the_model_is_asked_again() {
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
async fn a_word_that_comes_during_the_last_answer_gets_one_more() {
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
async fn a_word_is_kept_when_the_turn_is_cancelled() {
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
async fn without_a_running_turn_there_is_nothing_to_add_to() {
    let world =
        World::with_limits(runtime::Limits { turns_running_max: 1, ..runtime::Limits::default() }).await;
    let (first, second) = (world.agent("a").await, world.agent("b").await);
    let steer = || without_waiting(second.steer(STEER_SCRIPT.to_owned(), MessageSource::default()));
    assert_eq!(steer().await, None, "it rests");
    let sendings = [start_send(&first, 1, "wait; say a; done"), start_send(&second, 1, "say b; done")];
    run_until_idle().await;
    assert_eq!(steer().await, None, "its turn waits for a slot");
    world.model.release_all();
    for sending in sendings {
        expect_end(sending).await;
    }
    assert!(world.destroy(&second).await);
    assert_eq!(steer().await, None, "it is gone");
    assert_eq!(texts(&second), ["say b; done", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_turn_takes_so_many_words_and_no_more() {
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
    assert_eq!(texts(&agent).len(), 2 + STEERS_MAX + 1, "all of them are kept");
}
