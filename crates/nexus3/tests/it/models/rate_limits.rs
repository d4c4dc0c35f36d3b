//! Providers that make one wait: a wait is not the silence of a model.

use serde_json::json;

use crate::support::{Fixture, agent_path};

#[test]
fn a_retry_after_longer_than_a_model_may_be_silent_is_waited_for() {
    let stage = Fixture::with_config("limits.model_idle_ms = 1000");
    stage.create("a");
    assert_eq!(stage.send("a", "!later 2 here I am")["content"], "here I am");
    let tally = stage.model.call_counts("!later 2 here I am", 0);
    assert_eq!(tally.requests, 2, "{tally:?}");
    let messages = stage.daemon.call_result(&agent_path("a"), "get_messages", json!({}))["messages"].take();
    assert_eq!(messages.as_array().map(Vec::len), Some(2), "nothing of it is in the history: {messages}");
}

#[test]
fn a_place_in_the_queue_is_waited_for_longer_than_a_model_may_be_silent() {
    let stage = Fixture::with_config("limits.model_idle_ms = 1000\n[providers.openai]\nconcurrency = 1\n");
    stage.create("a");
    stage.create("b");
    // Talks for two seconds, with a word now and then.
    let talking = stage.start_send("a", "!slow 250 one two three four five six seven eight nine", "r");
    stage.model.wait_requests(1);
    assert_eq!(stage.send("b", "after you")["content"], "echo: after you");
    assert_eq!(talking.next_result()["content"], "one two three four five six seven eight nine");
}

#[test]
fn behind_a_wait_a_silent_model_is_given_up() {
    let stage = Fixture::with_config("limits.model_idle_ms = 1000\n[providers.openai]\nconcurrency = 1\n");
    stage.create("a");
    stage.create("b");
    let talking = stage.start_send("a", "!slow 250 one two three four five six seven", "r");
    stage.model.wait_requests(1);
    let error = stage.send_expecting_error("b", "!silent");
    assert_eq!(error["message"], "API request timed out: the model was silent for 1 s");
    assert_eq!(talking.next_result()["content"], "one two three four five six seven");
}
