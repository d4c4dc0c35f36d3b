//! A recorded answer, cut and split at every byte: half of it is never taken for the whole.

use agent::outside::{ModelEvent, StopReason};
use agent::{ToolCall, Usage};

use crate::harness::{CHUNKED, CHUNKED_END, CollectedResponse, call, chunk, client, head};
use crate::server::{Action, Server};

const RECORDED: &[u8] = include_bytes!("recorded.txt");

fn tool_call(id: &str, name: &str, arguments: &str) -> Result<ModelEvent, agent::Fault> {
    Ok(ModelEvent::ToolCall(ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() }))
}

/// What the recorded answer says.
fn expected_response() -> CollectedResponse {
    let items = vec![
        Ok(ModelEvent::Text("Grüße".to_owned())),
        Ok(ModelEvent::Text(", \"Welt\" 🌍\n".to_owned())),
        tool_call("call_a", "read_file", r#"{"path": "notes/été.md"}"#),
        tool_call("call_b", "clock", "{}"),
        Ok(ModelEvent::Usage(Usage { input: 57, output: 31, cached: 16, ..Usage::default() })),
        Ok(ModelEvent::Stopped(StopReason::ToolCalls)),
        Ok(ModelEvent::Done),
    ];
    CollectedResponse { items }
}

/// Where in the recorded answer an event that holds this ends, with the blank line after it.
fn end_offset(text: &str) -> usize {
    let recorded = std::str::from_utf8(RECORDED).expect("the recorded answer is text");
    let event = recorded.find(text).expect("the recorded answer has such an event");
    event + recorded[event..].find("\n\n").expect("an event ends with a blank line") + 2
}

/// A cut answer gives a beginning of the whole one, and an end that says whether it is all.
fn check_cut(got: &CollectedResponse, is_whole: bool, place: usize) {
    let whole = expected_response();
    assert_eq!(got.is_done(), is_whole, "cut at {place}: {got:?}");
    assert!(whole.text().starts_with(&got.text()), "cut at {place}: {got:?}");
    let calls = got.calls();
    assert!(calls.is_empty() || calls == whole.calls(), "cut at {place}, half of the calls: {got:?}");
    if !is_whole {
        let fault = got.fault();
        assert_eq!(fault.kind, agent::FaultKind::Model, "cut at {place}");
        assert!(!fault.public.is_empty() && fault.public.len() < 300, "cut at {place}: {fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_ends_anywhere_is_done_only_behind_its_finish_reason() {
    let server = Server::start_with(|cut| {
        vec![
            Action::Write(head("connection: close\r\n")),
            Action::Write(RECORDED.get(..cut).unwrap_or(RECORDED).to_vec()),
            Action::Close,
        ]
    })
    .await;
    let client = client(&server.base_url());
    let finished = end_offset("finish_reason\":\"tool_calls");
    for cut in 0..=RECORDED.len() {
        let got = call(&client).await;
        check_cut(&got, cut >= finished, cut);
    }
    assert_eq!(call(&client).await, expected_response());
}

#[tokio::test(start_paused = true)]
async fn a_connection_cut_anywhere_gives_a_whole_answer_or_a_fault() {
    let events = RECORDED.split_inclusive(|byte| *byte == b'\n');
    let response: Vec<u8> = std::iter::once(head(CHUNKED)).chain(events.map(chunk)).flatten().collect();
    let done = b"[DONE]\n\r\n1\r\n\n";
    let done =
        response.windows(done.len()).position(|part| part == done).expect("it has its [DONE]") + done.len();
    let bytes = response.clone();
    let server = Server::start_with(move |cut| {
        vec![Action::Write(bytes.get(..cut).unwrap_or(&bytes).to_vec()), Action::Close]
    })
    .await;
    let client = client(&server.base_url());
    for cut in 0..=response.len() {
        let got = call(&client).await;
        check_cut(&got, cut >= done, cut);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_split_anywhere_is_the_same_answer() {
    let server = Server::start_with(|cut| {
        let (first, second) = RECORDED.split_at(cut.min(RECORDED.len()));
        let parts = [first, second].into_iter().filter(|part| !part.is_empty());
        let mut acts = vec![Action::Write(head(CHUNKED))];
        acts.extend(parts.flat_map(|part| [Action::Write(chunk(part)), Action::Pause]));
        acts.push(Action::Write(CHUNKED_END.to_vec()));
        acts
    })
    .await;
    let client = client(&server.base_url());
    for cut in 0..=RECORDED.len() {
        assert_eq!(call(&client).await, expected_response(), "split at {cut}");
    }
    assert_eq!(server.log().connections, 1, "all on one connection");
}

#[tokio::test(start_paused = true)]
async fn an_answer_byte_by_byte_is_the_same_answer() {
    for ending in ["\n", "\r\n", "\r"] {
        let text = String::from_utf8_lossy(RECORDED).replace('\n', ending);
        let mut acts = vec![Action::Write(head(CHUNKED))];
        acts.extend(text.as_bytes().chunks(1).map(|byte| Action::Write(chunk(byte))));
        acts.push(Action::Write(CHUNKED_END.to_vec()));
        assert_eq!(crate::harness::call_with(acts).await, expected_response(), "{ending:?}");
    }
}
