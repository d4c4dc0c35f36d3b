//! Encodes responses: streamed events, complete responses, errors. Each API has its own file.
//! Streams are written by hand into one buffer, because benchmarks measure every allocation here.

mod anthropic;
mod chat;
mod responses;

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::json;

use super::request::{Api, ParsedRequest};
use super::script::ScriptedCall;

/// Encoder of a streamed response.
pub(crate) trait EventEncoder {
    fn push_text(&mut self, text: &str);

    fn push_reasoning(&mut self, thought: &str);

    fn push_call(&mut self, call: &ScriptedCall);

    /// Takes the encoded bytes that were not sent yet.
    fn take_frame(&mut self) -> Bytes;

    /// Ends the stream and takes its last bytes.
    fn finish(self: Box<Self>) -> Bytes;
}

/// Starts a stream.
pub(crate) fn start_stream(request: &ParsedRequest, number: usize) -> Box<dyn EventEncoder> {
    match request.api {
        Api::Chat => Box::new(chat::ChatEncoder::new(request, number)),
        Api::Anthropic => Box::new(anthropic::AnthropicEncoder::new(request, number)),
        Api::Responses => Box::new(responses::ResponsesEncoder::new(request, number)),
    }
}

/// Encodes a response without streaming.
pub(crate) fn completion(
    request: &ParsedRequest,
    number: usize,
    text: &str,
    calls: &[ScriptedCall],
) -> Bytes {
    match request.api {
        Api::Chat => chat::completion(request, number, text, calls),
        Api::Anthropic => anthropic::completion(request, number, text, calls),
        Api::Responses => responses::completion(request, number, text, calls),
    }
}

/// Encodes an error in the API's format.
pub(crate) fn error(api: Api, kind: &str, message: &str, param: Option<&str>, code: Option<&str>) -> Bytes {
    let body = match api {
        Api::Chat | Api::Responses => {
            json!({ "error": { "message": message, "type": kind, "param": param, "code": code } })
        }
        Api::Anthropic => json!({ "type": "error", "error": { "type": kind, "message": message } }),
    };
    Bytes::from(body.to_string())
}

/// Splits a text into `count` pieces of nearly equal length, or into single characters if it has fewer.
pub(crate) fn split_evenly(text: &str, count: usize) -> Vec<&str> {
    let starts: Vec<usize> = text.char_indices().map(|(start, _)| start).chain([text.len()]).collect();
    let chars = starts.len() - 1;
    let count = count.min(chars).max(1);
    let bound = |piece: usize| starts[piece * chars / count];
    (0..count).map(|piece| &text[bound(piece)..bound(piece + 1)]).collect()
}

fn call_id(number: usize, index: usize) -> String {
    format!("call_{number}_{index}")
}

/// Estimates one token per four bytes, rounded up: wrong for every real model, but deterministic.
fn estimate_tokens(bytes: usize) -> usize {
    bytes.div_ceil(4)
}

fn output_bytes(text: &str, calls: &[ScriptedCall]) -> usize {
    text.len() + calls.iter().map(|call| call.name.len() + call.arguments.len()).sum::<usize>()
}

/// Appends a named event, as Anthropic and the Responses API use it.
fn push_event(buffer: &mut Vec<u8>, kind: &str, data: &serde_json::Value) {
    buffer.extend_from_slice(format!("event: {kind}\ndata: {data}\n\n").as_bytes());
}

fn push_string(buffer: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(buffer, text).expect("a string is always JSON");
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
