//! What is in an answer: servers differ in what they leave out, spell as null, or send too much of.

use std::time::Duration;

use agent::outside::{ModelEvent, StopReason};
use futures_util::StreamExt;

use crate::harness::{CHUNKED, call_events, call_with, chunk, client, head, request};
use crate::server::{Action, Server};

const FINISH: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

fn delta_event(delta: &str) -> String {
    format!("data: {{\"choices\":[{{\"delta\":{delta}}}]}}\n\n")
}

#[tokio::test]
async fn null_is_as_good_as_left_out() {
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
    let answer = call_events(&events.concat()).await;
    assert!(answer.is_done());
    assert_eq!(answer.text(), "Hello");
    assert_eq!(answer.calls().iter().map(|call| call.name.as_str()).collect::<Vec<_>>(), ["x"]);
    assert!(answer.items.iter().any(|item| matches!(item, Ok(ModelEvent::Usage(usage)) if usage.input == 3)));
}

#[tokio::test]
async fn thoughts_are_handed_on_beside_the_text() {
    let events = [
        delta_event(r#"{"role":"assistant","content":null,"reasoning_content":null,"reasoning":null}"#),
        delta_event(r#"{"reasoning_content":"Hm"}"#),
        delta_event(r#"{"reasoning":", yes"}"#),
        delta_event(r#"{"content":"Hello"}"#),
        FINISH.to_owned(),
    ];
    let answer = call_events(&events.concat()).await;
    assert!(answer.is_done());
    assert_eq!(answer.text(), "Hello");
    let thoughts = answer.items.iter().filter_map(|item| match item {
        Ok(ModelEvent::Reasoning(text)) => Some(text.as_str()),
        _ => None,
    });
    assert_eq!(thoughts.collect::<Vec<_>>(), ["Hm", ", yes"]);
}

#[tokio::test]
async fn a_call_that_the_length_limit_cut_is_not_handed_on() {
    let half = delta_event(
        r#"{"tool_calls":[{"index":0,"id":"c","function":{"name":"rm","arguments":"{\"path\":\"/tmp"}}]}"#,
    );
    let limit = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n";
    let answer = call_events(&[delta_event(r#"{"content":"a"}"#), half, limit.to_owned()].concat()).await;
    assert!(!answer.is_done());
    assert_eq!((answer.text().as_str(), answer.calls().len()), ("a", 0));
    let whole =
        delta_event(r#"{"tool_calls":[{"index":0,"id":"c","function":{"name":"rm","arguments":"{}"}}]}"#);
    assert_eq!(call_events(&[whole, limit.to_owned()].concat()).await.calls().len(), 1, "a whole call is");
    let text = call_events(&[delta_event(r#"{"content":"a"}"#), limit.to_owned()].concat()).await;
    assert!(text.is_done(), "a text that was cut is an answer");
}

#[tokio::test]
async fn nothing_follows_a_fault() {
    let after = [delta_event(r#"{"content":"late"}"#), FINISH.to_owned()].concat();
    let fault = "data: {\"error\":{\"message\":\"overloaded\",\"code\":529}}\n\n";
    let answer =
        call_events(&[delta_event(r#"{"content":"a"}"#), fault.to_owned(), after.clone()].concat()).await;
    assert_eq!(answer.items.len(), 2, "{answer:?}");
    assert_eq!(answer.fault().public, "API request failed: overloaded");
    let calls: String = (0..300)
        .map(|index| {
            delta_event(&format!(
                r#"{{"tool_calls":[{{"index":{index},"id":"c","function":{{"name":"x"}}}}]}}"#
            ))
        })
        .collect();
    let answer = call_events(&[calls, after].concat()).await;
    assert_eq!(answer.items.len(), 1, "no call of too many is run");
    assert!(!answer.is_done());
}

#[tokio::test]
async fn an_endless_event_is_given_up() {
    let megabyte = vec![b'x'; 1 << 20];
    let mut acts = vec![Action::Write(head(CHUNKED)), Action::Write(chunk(b"data: "))];
    acts.extend((0..9).map(|_| Action::Write(chunk(&megabyte))));
    acts.push(Action::Hold);
    let answer = call_with(acts).await;
    assert_eq!(answer.fault().public, "The model sent an event that is too long.");
    assert_eq!(answer.items.len(), 1);
}

#[tokio::test]
async fn an_endless_answer_is_given_up() {
    let comment = [b": ".as_slice(), &vec![b'x'; 4 << 20], b"\n"].concat();
    let mut acts = vec![Action::Write(head(CHUNKED))];
    acts.extend((0..17).map(|_| Action::Write(chunk(&comment))));
    acts.push(Action::Hold);
    let answer = call_with(acts).await;
    assert_eq!(answer.fault().public, "The model's answer is too long.");
}

#[tokio::test]
async fn an_answer_is_done_with_its_last_event_even_if_the_body_never_ends() {
    let events = [delta_event(r#"{"content":"Hello"}"#), FINISH.to_owned()].concat();
    let acts = vec![Action::Write(head(CHUNKED)), Action::Write(chunk(events.as_bytes())), Action::Hold];
    let mut server = Server::start(acts).await;
    let mut stream = client(&server.base_url()).call(request());
    assert_eq!(stream.next().await, Some(Ok(ModelEvent::Text("Hello".to_owned()))));
    // From here on only timers can move anything, and they take no time.
    tokio::time::pause();
    let stopped = tokio::time::timeout(Duration::from_secs(60), stream.next()).await;
    assert_eq!(stopped, Ok(Some(Ok(ModelEvent::Stopped(StopReason::Finished)))));
    let done = tokio::time::timeout(Duration::from_secs(60), stream.next()).await;
    assert_eq!(done, Ok(Some(Ok(ModelEvent::Done))), "the answer is whole");
    drop(stream);
    server.wait_closed(1).await;
}

#[tokio::test]
async fn an_answer_that_is_no_stream_is_a_fault() {
    for body in ["", "{}", r#"{"choices":[{"message":{"content":"Hello"}}]}"#, "<html>", "data: [1]\n\n"] {
        let answer = call_events(body).await;
        assert!(!answer.is_done(), "{body}");
        assert_eq!(answer.items.len(), 1, "{body}");
    }
}
