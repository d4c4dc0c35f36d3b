//! Tests of response contents: servers differ in the fields they omit, send as null, or send in excess.

use std::time::Duration;

use agent::outside::{ModelEvent, StopReason};
use futures_util::StreamExt;
use testkit::{HttpPeer, PeerAction};

use crate::harness::{CHUNKED, call_events, call_with, chunk, client, head, request};

const FINISH: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

fn delta_event(delta: &str) -> String {
    format!("data: {{\"choices\":[{{\"delta\":{delta}}}]}}\n\n")
}

#[tokio::test]
async fn null_fields_count_as_absent() {
    let events = [
        delta_event(r#"{"role":"assistant","content":null,"tool_calls":null}"#),
        delta_event(r#"{"content":"Hel","tool_calls":null,"refusal":null,"function_call":null}"#),
        "data: {\"choices\":[{\"delta\":null,\"finish_reason\":null}],\"usage\":null,\"error\":null}\n\n".to_owned(),
        "data: {\"choices\":null}\n\n".to_owned(),
        delta_event(r#"{"content":"lo","tool_calls":[{"index":null,"id":"c","function":{"name":"x","arguments":null}}]}"#),
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":null,\"prompt_tokens_details\":null}}\n\n"
            .to_owned(),
        FINISH.to_owned(),
    ];
    let response = call_events(&events.concat()).await;
    assert!(response.is_done());
    assert_eq!(response.text(), "Hello");
    assert_eq!(response.calls().iter().map(|call| call.name.as_str()).collect::<Vec<_>>(), ["x"]);
    assert!(
        response.items.iter().any(|item| matches!(item, Ok(ModelEvent::Usage(usage)) if usage.input == 3))
    );
}

#[tokio::test]
async fn growing_tool_call_is_reported_while_it_is_incomplete() {
    let piece = "x".repeat(100_000);
    let delta = |name: &str| {
        let call = format!(
            r#"{{"tool_calls":[{{"index":0,"id":"c","function":{{"name":"{name}","arguments":"{piece}"}}}}]}}"#
        );
        PeerAction::Write(delta_event(&call).into())
    };
    let start = PeerAction::Write(head("connection: close\r\n"));
    let server = HttpPeer::with_actions(vec![start, delta("echo"), delta(""), PeerAction::Hold]);
    let mut stream = client(&server.base_url()).call(request());
    while let Some(event) = stream.next().await {
        if let Ok(ModelEvent::Buffered(bytes)) = event
            // Reported in steps of 64 KiB.
            && bytes + 65_536 >= 2 * piece.len()
        {
            return assert!(bytes < 2 * piece.len() + 1_000, "{bytes}");
        }
    }
    panic!("the stream ended");
}

#[tokio::test]
async fn reasoning_is_emitted_beside_the_text() {
    let events = [
        delta_event(r#"{"role":"assistant","content":null,"reasoning_content":null,"reasoning":null}"#),
        delta_event(r#"{"reasoning_content":"Hm"}"#),
        delta_event(r#"{"reasoning":", yes"}"#),
        delta_event(r#"{"content":"Hello"}"#),
        FINISH.to_owned(),
    ];
    let response = call_events(&events.concat()).await;
    assert!(response.is_done());
    assert_eq!(response.text(), "Hello");
    let reasoning = response.items.iter().filter_map(|item| match item {
        Ok(ModelEvent::Reasoning(text)) => Some(text.as_str()),
        _ => None,
    });
    assert_eq!(reasoning.collect::<Vec<_>>(), ["Hm", ", yes"]);
}

#[tokio::test]
async fn call_truncated_by_the_token_limit_is_not_emitted() {
    let half = delta_event(
        r#"{"tool_calls":[{"index":0,"id":"c","function":{"name":"rm","arguments":"{\"path\":\"/tmp"}}]}"#,
    );
    let limit = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n";
    let response = call_events(&[delta_event(r#"{"content":"a"}"#), half, limit.to_owned()].concat()).await;
    assert!(!response.is_done());
    assert_eq!((response.text().as_str(), response.calls().len()), ("a", 0));
    let complete_call =
        delta_event(r#"{"tool_calls":[{"index":0,"id":"c","function":{"name":"rm","arguments":"{}"}}]}"#);
    assert_eq!(
        call_events(&[complete_call, limit.to_owned()].concat()).await.calls().len(),
        1,
        "a complete call is emitted"
    );
    let text = call_events(&[delta_event(r#"{"content":"a"}"#), limit.to_owned()].concat()).await;
    assert!(text.is_done(), "a truncated text is a response");
}

#[tokio::test]
async fn nothing_follows_a_fault() {
    let after = [delta_event(r#"{"content":"late"}"#), FINISH.to_owned()].concat();
    let fault = "data: {\"error\":{\"message\":\"overloaded\",\"code\":529}}\n\n";
    let response =
        call_events(&[delta_event(r#"{"content":"a"}"#), fault.to_owned(), after.clone()].concat()).await;
    assert_eq!(response.items.len(), 2, "{response:?}");
    assert_eq!(response.fault().public, "API request failed: overloaded");
    let calls: String = (0..300)
        .map(|index| {
            delta_event(&format!(
                r#"{{"tool_calls":[{{"index":{index},"id":"c","function":{{"name":"x"}}}}]}}"#
            ))
        })
        .collect();
    let response = call_events(&[calls, after].concat()).await;
    assert_eq!(response.items.len(), 1, "none of too many calls is emitted");
    assert!(!response.is_done());
}

#[tokio::test]
async fn oversized_event_is_a_fault() {
    let megabyte = vec![b'x'; 1 << 20];
    let mut actions = vec![PeerAction::Write(head(CHUNKED)), PeerAction::Write(chunk(b"data: "))];
    actions.extend((0..9).map(|_| PeerAction::Write(chunk(&megabyte))));
    actions.push(PeerAction::Hold);
    let response = call_with(actions).await;
    assert_eq!(response.fault().public, "The model sent an event that is too long.");
    assert_eq!(response.items.len(), 1);
}

#[tokio::test]
async fn oversized_response_is_a_fault() {
    let comment = [b": ".as_slice(), &vec![b'x'; 4 << 20], b"\n"].concat();
    let mut actions = vec![PeerAction::Write(head(CHUNKED))];
    actions.extend((0..17).map(|_| PeerAction::Write(chunk(&comment))));
    actions.push(PeerAction::Hold);
    let response = call_with(actions).await;
    assert_eq!(response.fault().public, "The model's response is too long.");
}

#[tokio::test]
async fn response_is_done_even_if_the_body_never_ends() {
    let events = [delta_event(r#"{"content":"Hello"}"#), FINISH.to_owned()].concat();
    let actions =
        vec![PeerAction::Write(head(CHUNKED)), PeerAction::Write(chunk(events.as_bytes())), PeerAction::Hold];
    let server = HttpPeer::with_actions(actions);
    let mut stream = client(&server.base_url()).call(request());
    assert_eq!(stream.next().await, Some(Ok(ModelEvent::Text("Hello".to_owned()))));
    // From here on only timers make progress, in virtual time.
    tokio::time::pause();
    let stopped = tokio::time::timeout(Duration::from_secs(60), stream.next()).await;
    assert_eq!(stopped, Ok(Some(Ok(ModelEvent::Stopped(StopReason::Finished)))));
    let done = tokio::time::timeout(Duration::from_secs(60), stream.next()).await;
    assert_eq!(done, Ok(Some(Ok(ModelEvent::Done))), "the response is complete");
    drop(stream);
    server.wait(|log| log.closed == 1).await;
}

#[tokio::test]
async fn body_without_events_is_a_fault() {
    for body in ["", "{}", r#"{"choices":[{"message":{"content":"Hello"}}]}"#, "<html>", "data: [1]\n\n"] {
        let response = call_events(body).await;
        assert!(!response.is_done(), "{body}");
        assert_eq!(response.items.len(), 1, "{body}");
    }
}
