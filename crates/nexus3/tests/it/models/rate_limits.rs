//! Rate limits and provider queues: time spent waiting does not count towards the model's idle timeout.

use serde_json::json;

use crate::support::{Fixture, agent_path};

#[test]
fn retry_after_may_exceed_the_idle_timeout() {
    let fixture = Fixture::with_config("limits.model_idle_ms = 1000");
    fixture.create("a");
    assert_eq!(fixture.send("a", "!later 2 here I am")["content"], "here I am");
    let counts = fixture.model.call_counts("!later 2 here I am", 0);
    assert_eq!(counts.requests, 2, "{counts:?}");
    let messages = fixture.daemon.call_result(&agent_path("a"), "get_messages", json!({}))["messages"].take();
    assert_eq!(
        messages.as_array().map(Vec::len),
        Some(2),
        "the retry leaves no trace in the history: {messages}"
    );
}

#[test]
fn queueing_may_exceed_the_idle_timeout() {
    let fixture = Fixture::with_config("limits.model_idle_ms = 1000\n[providers.openai]\nconcurrency = 1\n");
    fixture.create("a");
    fixture.create("b");
    // Streams for two seconds, one word every 250 ms.
    let streaming = fixture.start_send("a", "!slow 250 one two three four five six seven eight nine", "r");
    fixture.model.wait_requests(1);
    assert_eq!(fixture.send("b", "after you")["content"], "echo: after you");
    assert_eq!(streaming.next_result()["content"], "one two three four five six seven eight nine");
}

#[test]
fn idle_timeout_applies_after_queueing() {
    let fixture = Fixture::with_config("limits.model_idle_ms = 1000\n[providers.openai]\nconcurrency = 1\n");
    fixture.create("a");
    fixture.create("b");
    let streaming = fixture.start_send("a", "!slow 250 one two three four five six seven", "r");
    fixture.model.wait_requests(1);
    let error = fixture.send_expecting_error("b", "!silent");
    assert_eq!(error["message"], "API request timed out: the model was silent for 1 s");
    assert_eq!(streaming.next_result()["content"], "one two three four five six seven");
}
