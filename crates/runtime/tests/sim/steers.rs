//! Words that are added to a turn under way.

use agent::{STEERS_MAX, MessageSource, TurnOutcome};

use crate::history::{messages, objection_when_idle, texts};
use crate::world::{World, at_once, end_of, numeric_request_id, settle, start};

const WORD: &str = "#s say steered; done";

#[tokio::test(start_paused = true)]
async fn a_word_is_delivered_before_the_model_is_asked_again() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sending = start(&agent, 1, "call slow release; done | say never; done");
    world.tools.wait_started(1).await;
    assert_eq!(at_once(agent.steer(WORD.to_owned(), MessageSource::default())).await, Some(numeric_request_id(1)));
    world.tools.release_all();
    assert_eq!(end_of(sending).await.content, "steered");
    assert_eq!(texts(&agent)[3..], [WORD, "steered"]);
    assert_eq!(objection_when_idle(&messages(&agent)), None);
}

#[tokio::test(start_paused = true)]
async fn a_word_that_comes_during_the_last_answer_gets_one_more() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sending = start(&agent, 1, "say first; wait; done");
    settle().await;
    assert_eq!(at_once(agent.steer(WORD.to_owned(), MessageSource::default())).await, Some(numeric_request_id(1)));
    world.model.release_all();
    assert_eq!(end_of(sending).await.content, "firststeered");
}

#[tokio::test(start_paused = true)]
async fn a_word_is_kept_when_the_turn_is_cancelled() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sending = start(&agent, 1, "say first; wait; done");
    settle().await;
    assert!(agent.steer(WORD.to_owned(), MessageSource::default()).await.is_some());
    assert!(agent.cancel(numeric_request_id(1)).await);
    assert_eq!(end_of(sending).await.outcome, TurnOutcome::Cancelled);
    assert_eq!(texts(&agent)[1..], [WORD, "first"]);
}

#[tokio::test(start_paused = true)]
async fn without_a_running_turn_there_is_nothing_to_add_to() {
    let world = World::with(runtime::Limits { turns_running_max: 1, ..runtime::Limits::default() }).await;
    let (first, second) = (world.agent("a").await, world.agent("b").await);
    let steer = || at_once(second.steer(WORD.to_owned(), MessageSource::default()));
    assert_eq!(steer().await, None, "it rests");
    let sendings = [start(&first, 1, "wait; say a; done"), start(&second, 1, "say b; done")];
    settle().await;
    assert_eq!(steer().await, None, "its turn waits for a slot");
    world.model.release_all();
    for sending in sendings {
        end_of(sending).await;
    }
    assert!(world.destroy(&second).await);
    assert_eq!(steer().await, None, "it is gone");
    assert_eq!(texts(&second), ["say b; done", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_turn_takes_so_many_words_and_no_more() {
    let world = World::new().await;
    let agent = world.agent("a").await;
    let sending = start(&agent, 1, "say first; wait; done");
    settle().await;
    for _ in 0..STEERS_MAX {
        assert!(agent.steer(WORD.to_owned(), MessageSource::default()).await.is_some());
    }
    assert_eq!(at_once(agent.steer(WORD.to_owned(), MessageSource::default())).await, None);
    world.model.release_all();
    end_of(sending).await;
    assert_eq!(texts(&agent).len(), 2 + STEERS_MAX + 1, "all of them are kept");
}
