//! Tests of a recorded response, cut or split at every byte: a partial response never counts as complete.

use agent::outside::{ModelEvent, StopReason};
use agent::{ToolCall, Usage};
use testkit::{HttpPeer, PeerAction};

use crate::harness::{CHUNKED, CHUNKED_END, CollectedResponse, call, chunk, client, head};

const RECORDED: &[u8] = include_bytes!("recorded.txt");

fn tool_call(id: &str, name: &str, arguments: &str) -> Result<ModelEvent, agent::Fault> {
    Ok(ModelEvent::ToolCall(ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() }))
}

/// Returns the decoded form of the recorded response.
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

/// Returns the end offset of the recorded event that contains this text, including its blank line.
fn end_offset(text: &str) -> usize {
    let recorded = std::str::from_utf8(RECORDED).expect("the recording is UTF-8");
    let event = recorded.find(text).expect("the recording has such an event");
    event + recorded[event..].find("\n\n").expect("an event ends with a blank line") + 2
}

/// Checks that a cut response is a prefix of the complete one and that its end says whether it is complete.
fn check_cut(got: &CollectedResponse, is_whole: bool, cut: usize) {
    let full = expected_response();
    assert_eq!(got.is_done(), is_whole, "cut at {cut}: {got:?}");
    assert!(full.text().starts_with(&got.text()), "cut at {cut}: {got:?}");
    let calls = got.calls();
    assert!(calls.is_empty() || calls == full.calls(), "cut at {cut}, only some of the calls: {got:?}");
    if !is_whole {
        let fault = got.fault();
        assert_eq!(fault.kind, agent::FaultKind::Model, "cut at {cut}");
        assert!(!fault.public.is_empty() && fault.public.len() < 300, "cut at {cut}: {fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn truncated_body_is_done_only_after_its_finish_reason() {
    let server = HttpPeer::by_number(|cut| {
        vec![
            PeerAction::Write(head("connection: close\r\n")),
            PeerAction::Write(RECORDED.get(..cut).unwrap_or(RECORDED).to_vec()),
            PeerAction::Close,
        ]
    });
    let client = client(&server.base_url());
    let finished = end_offset("finish_reason\":\"tool_calls");
    for cut in 0..=RECORDED.len() {
        let got = call(&client).await;
        check_cut(&got, cut >= finished, cut);
    }
    assert_eq!(call(&client).await, expected_response());
}

#[tokio::test(start_paused = true)]
async fn cut_connection_gives_a_complete_response_or_a_fault() {
    let events = RECORDED.split_inclusive(|byte| *byte == b'\n');
    let response: Vec<u8> = std::iter::once(head(CHUNKED)).chain(events.map(chunk)).flatten().collect();
    let done = b"[DONE]\n\r\n1\r\n\n";
    let done = response.windows(done.len()).position(|piece| piece == done).expect("it contains [DONE]")
        + done.len();
    let bytes = response.clone();
    let server = HttpPeer::by_number(move |cut| {
        vec![PeerAction::Write(bytes.get(..cut).unwrap_or(&bytes).to_vec()), PeerAction::Close]
    });
    let client = client(&server.base_url());
    for cut in 0..=response.len() {
        let got = call(&client).await;
        check_cut(&got, cut >= done, cut);
    }
}

#[tokio::test(start_paused = true)]
async fn response_does_not_depend_on_chunk_boundaries() {
    let server = HttpPeer::by_number(|cut| {
        let (first, second) = RECORDED.split_at(cut.min(RECORDED.len()));
        let parts = [first, second].into_iter().filter(|piece| !piece.is_empty());
        let mut actions = vec![PeerAction::Write(head(CHUNKED))];
        actions.extend(parts.flat_map(|piece| [PeerAction::Write(chunk(piece)), PeerAction::Pause]));
        actions.push(PeerAction::Write(CHUNKED_END.to_vec()));
        actions
    });
    let client = client(&server.base_url());
    for cut in 0..=RECORDED.len() {
        assert_eq!(call(&client).await, expected_response(), "split at {cut}");
    }
    assert_eq!(server.log().connections, 1, "all requests on one connection");
}

#[tokio::test(start_paused = true)]
async fn response_sent_byte_by_byte_is_the_same() {
    for ending in ["\n", "\r\n", "\r"] {
        let text = String::from_utf8_lossy(RECORDED).replace('\n', ending);
        let mut actions = vec![PeerAction::Write(head(CHUNKED))];
        actions.extend(text.as_bytes().chunks(1).map(|byte| PeerAction::Write(chunk(byte))));
        actions.push(PeerAction::Write(CHUNKED_END.to_vec()));
        assert_eq!(crate::harness::call_with(actions).await, expected_response(), "{ending:?}");
    }
}
