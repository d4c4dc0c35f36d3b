//! Tests of the dialects against `fixtures/`: `<dialect>/<case>/` has `stream.sse` with `expected.json`, or
//! `request.json`, or both. A new case needs only files.

mod requests;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use agent::Fault;
use agent::outside::{ModelEvent, StopReason};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::anthropic::Anthropic;
use crate::chat::Chat;
use crate::dialect::Dialect;
use crate::responses::Responses;
use crate::sse::SseDecoder;

type Item = Result<ModelEvent, Fault>;

fn dialects() -> [(&'static str, Box<dyn Dialect>); 3] {
    [("anthropic", Box::new(Anthropic)), ("chat", Box::new(Chat::OPENAI)), ("responses", Box::new(Responses))]
}

fn directories(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()));
    let mut directories: Vec<_> =
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    directories.sort();
    directories
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

fn read_json(path: &Path) -> Value {
    let text = fs::read(path).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()))
}

#[test]
fn all_fixtures_are_decoded_and_encoded_as_expected() {
    let known: Vec<_> = dialects().iter().map(|(name, _)| fixtures().join(name)).collect();
    assert_eq!(directories(&fixtures()), known, "each directory is a dialect");
    for (name, dialect) in dialects() {
        let mut streams = 0;
        for case in directories(&fixtures().join(name)) {
            let (stream, request) = (case.join("stream.sse"), case.join("request.json"));
            assert!(stream.exists() || request.exists(), "{}: no stream and no request", case.display());
            if stream.exists() {
                streams += 1;
                check_stream(dialect.as_ref(), &case, &fs::read(stream).unwrap());
            }
            if request.exists() {
                requests::check(dialect.as_ref(), &case, &read_json(&request));
            }
        }
        assert!(streams >= 8, "{name} has {streams} streams");
    }
}

fn check_stream(dialect: &dyn Dialect, case: &Path, stream: &[u8]) {
    let case = case.display();
    let expected = read_json(&PathBuf::from(format!("{case}/expected.json")));
    let events = events(stream);
    let full = decode(dialect, &events);
    assert_eq!(Value::from(to_expected(&full.items)), expected, "{case}");
    for cut in cut_points(stream) {
        let got = decode(dialect, &events[..cut]);
        let context = format!("{case} cut after {cut} events: {:?}", got.items);
        let ends = got.items.iter().filter(|item| is_end(item)).count();
        assert!(ends == 1 && got.items.last().is_some_and(is_end), "it ends once: {context}");
        assert!(text_of(&full.items).starts_with(&text_of(&got.items)), "{context}");
        let calls = calls(&got.items);
        assert!(calls.is_empty() || calls == self::calls(&full.items), "only some of the calls: {context}");
        let is_done = matches!(got.items.last(), Some(Ok(ModelEvent::Done)));
        assert!(
            !is_done || events[..cut].iter().any(|data| is_api_end(data)),
            "done without an end marker: {context}"
        );
        assert!(got.has_started || !got.items.iter().any(is_content), "content but not started: {context}");
        assert!(cut > 0 || !got.has_started, "started without events: {context}");
    }
}

/// Returns the numbers of complete events at every byte offset.
fn cut_points(stream: &[u8]) -> BTreeSet<usize> {
    let mut decoder = SseDecoder::default();
    let mut complete = 0;
    let each = stream.iter().map(|byte| {
        decoder.feed(&[*byte], |_| complete += 1).unwrap();
        complete
    });
    [0].into_iter().chain(each.collect::<Vec<_>>()).collect()
}

/// Whether an event is an end marker of an API, judged by its text.
fn is_api_end(data: &[u8]) -> bool {
    let text = String::from_utf8_lossy(data).replace(' ', "");
    let ends = [
        "[DONE]",
        "\"type\":\"message_stop\"",
        "\"type\":\"response.completed\"",
        "\"type\":\"response.incomplete\"",
    ];
    ends.iter().any(|end| text.contains(end)) || text.contains("\"finish_reason\":\"")
}

fn events(stream: &[u8]) -> Vec<Vec<u8>> {
    let mut events = Vec::new();
    SseDecoder::default().feed(stream, |data| events.push(data.to_vec())).unwrap();
    events
}

struct DecodedResponse {
    items: Vec<Item>,
    has_started: bool,
}

fn decode(dialect: &dyn Dialect, events: &[Vec<u8>]) -> DecodedResponse {
    // Makes generated call ids deterministic.
    fastrand::seed(1);
    let mut items = Vec::new();
    let mut decoder = dialect.decoder();
    for data in events {
        decoder.decode(data, &mut |item| items.push(item));
    }
    decoder.finish(&mut |item| items.push(item));
    DecodedResponse { has_started: decoder.has_started(), items }
}

fn is_content(item: &Item) -> bool {
    matches!(item, Ok(ModelEvent::Text(_) | ModelEvent::Reasoning(_) | ModelEvent::ToolCall(_)))
}

fn is_end(item: &Item) -> bool {
    matches!(item, Ok(ModelEvent::Done) | Err(_))
}

fn text_of(items: &[Item]) -> String {
    let texts = items.iter().filter_map(|item| match item {
        Ok(ModelEvent::Text(text)) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

fn calls(items: &[Item]) -> Vec<&agent::ToolCall> {
    let calls = items.iter().filter_map(|item| match item {
        Ok(ModelEvent::ToolCall(call)) => Some(call),
        _ => None,
    });
    calls.collect()
}

/// Converts a response to the format of `expected.json`; consecutive texts and reasoning are joined.
fn to_expected(items: &[Item]) -> Vec<Value> {
    let mut expected: Vec<Value> = Vec::new();
    for item in items {
        let (field, text) = match item {
            Ok(ModelEvent::Text(text)) => ("text", text),
            Ok(ModelEvent::Reasoning(text)) => ("reasoning", text),
            other => {
                expected.push(event_value(other));
                continue;
            }
        };
        match expected.last_mut().and_then(|last| last.get_mut(field)) {
            Some(before) => *before = json!(format!("{}{text}", before.as_str().unwrap_or_default())),
            None => expected.push(json!({ field: text })),
        }
    }
    expected
}

fn event_value(item: &Item) -> Value {
    match item {
        Ok(ModelEvent::ToolCall(call)) => {
            json!({ "call": { "id": call.id, "name": call.name, "arguments": call.arguments } })
        }
        Ok(ModelEvent::ReasoningBlock(reasoning_block)) => {
            json!({ "reasoning_block": serde_json::from_str::<Value>(reasoning_block).unwrap() })
        }
        Ok(ModelEvent::Usage(usage)) => json!({ "usage": {
            "input": usage.input, "output": usage.output, "cached": usage.cached,
            "cache_written": usage.cache_written, "reasoning": usage.reasoning,
        } }),
        Ok(ModelEvent::Stopped(reason)) => json!({ "stopped": match reason {
            StopReason::Finished => "finished",
            StopReason::ToolCalls => "tool_calls",
            StopReason::Length => "length",
            StopReason::Filtered => "filtered",
        } }),
        Err(fault) => json!({ "fault": fault.public }),
        Ok(_) => json!("done"),
    }
}

/// Returns the events of all fixture streams of a dialect.
fn recorded(name: &str) -> Vec<Vec<u8>> {
    let streams = directories(&fixtures().join(name)).into_iter().map(|case| case.join("stream.sse"));
    streams.filter_map(|path| fs::read(path).ok()).flat_map(|stream| events(&stream)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn decoders_accept_any_events_in_any_order_and_end_once(
        picks in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<Option<u8>>()), 0..40),
        noise in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..4),
    ) {
        for (name, dialect) in dialects() {
            let recorded = recorded(name);
            let mut events: Vec<_> = picks.iter().map(|(event, offset, byte)| {
                let mut event = event.get(&recorded).clone();
                if let Some(byte) = byte && !event.is_empty() {
                    let offset = offset.index(event.len());
                    event[offset] = *byte;
                }
                event
            }).collect();
            events.extend(noise.iter().cloned());
            let items = decode(dialect.as_ref(), &events).items;
            prop_assert!(items.iter().filter(|item| is_end(item)).count() == 1);
            prop_assert!(items.last().is_some_and(is_end));
        }
    }
}
