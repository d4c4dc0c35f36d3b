//! A recorded answer, cut and split at every byte: half of it is never taken for the whole.

use agent::outside::{ModelEvent, StopReason};
use agent::{ToolCall, Usage};

use crate::server::{Act, Server};
use crate::stream::{Answer, CHUNKED, CHUNKED_END, ask, chunk, client, head};

const RECORDED: &[u8] = include_bytes!("recorded.txt");

fn call(id: &str, name: &str, arguments: &str) -> Result<ModelEvent, agent::Fault> {
    Ok(ModelEvent::ToolCall(ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() }))
}

/// What the recorded answer says.
fn whole() -> Answer {
    let items = vec![
        Ok(ModelEvent::Text("Grüße".to_owned())),
        Ok(ModelEvent::Text(", \"Welt\" 🌍\n".to_owned())),
        call("call_a", "read_file", r#"{"path": "notes/été.md"}"#),
        call("call_b", "clock", "{}"),
        Ok(ModelEvent::Usage(Usage { input: 57, output: 31, cached: 16, ..Usage::default() })),
        Ok(ModelEvent::Stopped(StopReason::ToolCalls)),
        Ok(ModelEvent::Done),
    ];
    Answer { items }
}

/// Where in the recorded answer an event that holds this ends, with the blank line after it.
fn end_of(text: &str) -> usize {
    let recorded = std::str::from_utf8(RECORDED).expect("the recorded answer is text");
    let event = recorded.find(text).expect("the recorded answer has such an event");
    event + recorded[event..].find("\n\n").expect("an event ends with a blank line") + 2
}

/// A cut answer gives a beginning of the whole one, and an end that says whether it is all.
fn check_cut(got: &Answer, is_whole: bool, place: usize) {
    let whole = whole();
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
    let server = Server::start_each(|cut| {
        vec![
            Act::Write(head("connection: close\r\n")),
            Act::Write(RECORDED.get(..cut).unwrap_or(RECORDED).to_vec()),
            Act::Close,
        ]
    })
    .await;
    let client = client(&server.base_url());
    let finished = end_of("finish_reason\":\"tool_calls");
    for cut in 0..=RECORDED.len() {
        let got = ask(&client).await;
        check_cut(&got, cut >= finished, cut);
    }
    assert_eq!(ask(&client).await, whole());
}

#[tokio::test(start_paused = true)]
async fn a_connection_cut_anywhere_gives_a_whole_answer_or_a_fault() {
    let events = RECORDED.split_inclusive(|byte| *byte == b'\n');
    let response: Vec<u8> = std::iter::once(head(CHUNKED)).chain(events.map(chunk)).flatten().collect();
    let done = b"[DONE]\n\r\n1\r\n\n";
    let done =
        response.windows(done.len()).position(|part| part == done).expect("it has its [DONE]") + done.len();
    let bytes = response.clone();
    let server = Server::start_each(move |cut| {
        vec![Act::Write(bytes.get(..cut).unwrap_or(&bytes).to_vec()), Act::Close]
    })
    .await;
    let client = client(&server.base_url());
    for cut in 0..=response.len() {
        let got = ask(&client).await;
        check_cut(&got, cut >= done, cut);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_split_anywhere_is_the_same_answer() {
    let server = Server::start_each(|cut| {
        let (first, second) = RECORDED.split_at(cut.min(RECORDED.len()));
        let parts = [first, second].into_iter().filter(|part| !part.is_empty());
        let mut acts = vec![Act::Write(head(CHUNKED))];
        acts.extend(parts.flat_map(|part| [Act::Write(chunk(part)), Act::Pause]));
        acts.push(Act::Write(CHUNKED_END.to_vec()));
        acts
    })
    .await;
    let client = client(&server.base_url());
    for cut in 0..=RECORDED.len() {
        assert_eq!(ask(&client).await, whole(), "split at {cut}");
    }
    assert_eq!(server.seen().connections, 1, "all on one connection");
}

#[tokio::test(start_paused = true)]
async fn an_answer_byte_by_byte_is_the_same_answer() {
    for ending in ["\n", "\r\n", "\r"] {
        let text = String::from_utf8_lossy(RECORDED).replace('\n', ending);
        let mut acts = vec![Act::Write(head(CHUNKED))];
        acts.extend(text.as_bytes().chunks(1).map(|byte| Act::Write(chunk(byte))));
        acts.push(Act::Write(CHUNKED_END.to_vec()));
        assert_eq!(crate::stream::ask_with(acts).await, whole(), "{ending:?}");
    }
}
