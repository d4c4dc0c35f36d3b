//! Streaming `send`: the events of the turn, then the response of a plain `send`.

use nexus3_protocol::sse::SseEvent;

use super::streams::EventReader;
use super::*;
use crate::streams::CallReply;

impl Fixture {
    async fn reply(&self, caller: &Caller, door: &str, body: &str) -> CallReply {
        let target = match door {
            "/" => self.dispatcher.daemon_target(),
            name => self.dispatcher.agent_target(name, caller).unwrap(),
        };
        self.dispatcher.respond_streaming(target, caller, body.as_bytes(), EnvelopeRules::HTTP).await
    }

    /// Starts a streaming `send`.
    pub(super) async fn stream_send(&self, name: &str, params: &str) -> EventReader {
        match self.reply(&Caller::admin(), name, &request("send", params)).await {
            CallReply::Stream(stream) => EventReader::new(stream),
            CallReply::Complete(response) => panic!("no stream: {response:?}"),
        }
    }
}

async fn collect_events(reader: &mut EventReader) -> Vec<SseEvent> {
    let mut events = Vec::new();
    while let Some(event) = reader.next().await {
        events.push(event);
    }
    events
}

fn kinds(events: &[SseEvent]) -> Vec<&str> {
    events.iter().map(|event| event.event.as_str()).collect()
}

/// Returns the response at the end of a stream, in the form of a plain call's.
fn final_response(events: &[SseEvent]) -> (ResponseKind, String) {
    let last = events.last().unwrap();
    assert_eq!(last.event, "response");
    (ResponseKind::Completed, last.data.clone())
}

const TURN: [&str; 6] = ["turn_accepted", "turn_begun", "text_delta", "message", "turn_ended", "response"];

#[tokio::test(start_paused = true)]
async fn streamed_send_ends_with_the_response_of_a_plain_send() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a", "b"]).await;
    let params = r#"{"content":"hi","request_id":"r"}"#;
    let events = collect_events(&mut fixture.stream_send("a", params).await).await;
    assert_eq!(kinds(&events), TURN);
    assert_eq!(final_response(&events), fixture.call_agent("b", &request("send", params)).await);
    for event in &events[..5] {
        let data: Value = serde_json::from_str(&event.data).unwrap();
        assert_eq!((&data["kind"], &data["agent_id"]), (&event.event.as_str().into(), &"a".into()));
    }
}

#[tokio::test(start_paused = true)]
async fn streamed_send_creates_main_on_first_use() {
    let fixture = Fixture::new().await;
    let events = collect_events(&mut fixture.stream_send("/", r#"{"content":"hi"}"#).await).await;
    assert_eq!(kinds(&events), TURN);
    assert_eq!(fixture.agent_names().await, ["main"]);
}

#[tokio::test(start_paused = true)]
async fn streamed_send_includes_tool_calls_and_results() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let events = collect_events(&mut fixture.stream_send("a", r#"{"content":"read notes.txt"}"#).await).await;
    let expected = [
        "turn_accepted",
        "turn_begun",
        "message",
        "tool_begun",
        "message",
        "text_delta",
        "message",
        "turn_ended",
        "response",
    ];
    assert_eq!(kinds(&events), expected);
}

#[tokio::test(start_paused = true)]
async fn queued_streamed_send_gets_only_its_own_turn() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let wait = r#"{"jsonrpc":"2.0","method":"send","params":{"content":"wait","request_id":"first"},"id":1}"#;
    let first = fixture.spawn_call("a", wait);
    run_until_idle().await;
    let mut reader = fixture.stream_send("a", r#"{"content":"hi","request_id":"second"}"#).await;
    assert_eq!(reader.next().await.unwrap().event, "turn_accepted");
    assert_eq!(reader.next().now_or_never(), None, "its turn is still queued");
    fixture.released.add_permits(1);
    let events = collect_events(&mut reader).await;
    assert_eq!(kinds(&events), &TURN[1..]);
    assert!(events.iter().all(|event| !event.data.contains("hello") && !event.data.contains("first")));
    assert!(first.await.unwrap().1.contains("hello"));
}

#[tokio::test(start_paused = true)]
async fn failure_is_the_last_event_of_a_streamed_send() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a", "b"]).await;
    let events = collect_events(&mut fixture.stream_send("a", r#"{"content":"fail"}"#).await).await;
    assert_eq!(kinds(&events), ["turn_accepted", "turn_begun", "message", "turn_ended", "response"]);
    assert_eq!(final_response(&events), error(-32603, "the model failed"));
    let events = collect_events(&mut fixture.stream_send("a", "{}").await).await;
    assert_eq!(
        (kinds(&events), final_response(&events)),
        (vec!["response"], error(-32602, "Missing required parameter: content"))
    );
    let caller = Caller::admin().acting_as("b");
    let reply = fixture.reply(&caller, "a", &request("send", r#"{"content":"hi"}"#)).await;
    let CallReply::Stream(stream) = reply else { panic!("no stream") };
    let events = collect_events(&mut EventReader::new(stream)).await;
    assert_eq!(final_response(&events), denied("Agent 'b' is not authorized to call send on 'a'"));
    fixture.entropy.set_panics(true);
    let events = collect_events(&mut fixture.stream_send("a", r#"{"content":"hi"}"#).await).await;
    assert_eq!(final_response(&events), error(-32603, "Internal error: the call panicked"));
}

#[tokio::test(start_paused = true)]
async fn streamed_duplicate_of_an_ended_send_is_only_the_response() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let params = r#"{"content":"hi","request_id":"r"}"#;
    let before = fixture.call_agent("a", &request("send", params)).await;
    let events = collect_events(&mut fixture.stream_send("a", params).await).await;
    assert_eq!((kinds(&events), final_response(&events)), (vec!["response"], before));
    let other =
        collect_events(&mut fixture.stream_send("a", r#"{"content":"ho","request_id":"r"}"#).await).await;
    let text = "request_id was used before with other content: r";
    assert_eq!((kinds(&other), final_response(&other)), (vec!["response"], error(-32602, text)));
}

#[tokio::test(start_paused = true)]
async fn streamed_duplicate_of_a_running_send_joins_the_turn() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let params = r#"{"content":"wait","request_id":"r"}"#;
    let mut first = fixture.stream_send("a", params).await;
    assert_eq!(first.next().await.unwrap().event, "turn_accepted");
    run_until_idle().await;
    let mut second = fixture.stream_send("a", params).await;
    assert_eq!(second.next().now_or_never(), None);
    run_until_idle().await;
    fixture.released.add_permits(1);
    let (first, second) = (collect_events(&mut first).await, collect_events(&mut second).await);
    assert_eq!(final_response(&first), final_response(&second));
    assert_eq!(kinds(&second), ["text_delta", "message", "turn_ended", "response"]);
    let context = fixture.call_ok("a", "get_context", "{}").await;
    assert_eq!(context["message_count"], 2, "one user and one assistant message");
}

#[tokio::test(start_paused = true)]
async fn dropped_stream_does_not_cancel_the_turn() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let mut reader = fixture.stream_send("a", r#"{"content":"wait","request_id":"r"}"#).await;
    assert_eq!(reader.next().await.unwrap().event, "turn_accepted");
    drop(reader);
    fixture.released.add_permits(1);
    run_until_idle().await;
    let sent = fixture.call_ok("a", "send", r#"{"content":"wait","request_id":"r"}"#).await;
    assert_eq!(sent["content"], "hello");
}

#[tokio::test(start_paused = true)]
async fn cancel_or_destroy_ends_the_stream_with_a_response() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a", "b"]).await;
    let cancelled = concat!(
        r#"{"cancelled":true,"content":"hel","request_id":4,"halted_at_iteration_limit":false,"#,
        r#""usage":{"input_tokens":13,"output_tokens":1,"cached_tokens":0,"estimated_tokens":14}}"#
    );
    for (name, door, end, last) in [
        ("a", "a", request("cancel", r#"{"request_id":4}"#), "turn_ended"),
        ("b", "/", request("destroy_agent", r#"{"agent_id":"b"}"#), "agent_destroyed"),
    ] {
        let mut reader = fixture.stream_send(name, r#"{"content":"wait","request_id":4}"#).await;
        assert_eq!(reader.next().await.unwrap().event, "turn_accepted");
        run_until_idle().await;
        fixture.call_as(&Caller::admin(), door, &end).await;
        let events = collect_events(&mut reader).await;
        assert_eq!(events[events.len() - 2].event, last, "{:?}", kinds(&events));
        assert_eq!(final_response(&events), result(cancelled));
    }
}

#[tokio::test(start_paused = true)]
async fn other_methods_get_a_complete_response() {
    let fixture = Fixture::new().await;
    fixture.create_agents(&["a"]).await;
    let bodies = [
        request("get_context", "{}"),
        request("cancel", r#"{"request_id":1}"#),
        request("no_such_method", "{}"),
        "nonsense".to_owned(),
        "[]".to_owned(),
        r#"{"jsonrpc":"2.0","method":"send","params":["hi"],"id":1}"#.to_owned(),
    ];
    for body in bodies {
        let CallReply::Complete(response) = fixture.reply(&Caller::admin(), "a", &body).await else {
            panic!("a stream for {body}")
        };
        let plain = fixture.call_agent("a", &body).await;
        assert_eq!((response.kind, String::from_utf8(response.body).unwrap()), plain, "{body}");
    }
    let notification = r#"{"jsonrpc":"2.0","method":"send","params":{"content":"hi"}}"#;
    let CallReply::Complete(response) = fixture.reply(&Caller::admin(), "a", notification).await else {
        panic!("a stream for a notification")
    };
    assert_eq!((response.kind, response.body.len()), (ResponseKind::Notification, 0));
    assert_eq!(
        fixture.call_ok("a", "get_context", "{}").await["message_count"],
        2,
        "the notification was executed"
    );
}
