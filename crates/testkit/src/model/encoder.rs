//! The bytes of answers: events of a stream, a whole answer, an error; each API has its own file.
//! Streams are written by hand into one buffer, because the benchmark pays for every allocation here.

mod anthropic;
mod chat;
mod responses;

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::json;

use super::request::{Api, ParsedRequest};
use super::script::ScriptedCall;

/// A stream under way.
pub(crate) trait EventEncoder {
    fn push_text(&mut self, text: &str);

    fn push_reasoning(&mut self, thought: &str);

    fn push_call(&mut self, call: &ScriptedCall);

    /// Takes what was said and not yet sent.
    fn take_frame(&mut self) -> Bytes;

    /// Ends the stream and takes its last frame.
    fn finish(self: Box<Self>) -> Bytes;
}

/// Begins a stream.
pub(crate) fn start_stream(request: &ParsedRequest, number: usize) -> Box<dyn EventEncoder> {
    match request.api {
        Api::Chat => Box::new(chat::ChatEncoder::new(request, number)),
        Api::Anthropic => Box::new(anthropic::AnthropicEncoder::new(request, number)),
        Api::Responses => Box::new(responses::ResponsesEncoder::new(request, number)),
    }
}

/// The answer to a request that did not ask for a stream.
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

/// An error in the API's form.
pub(crate) fn error(api: Api, kind: &str, message: &str, param: Option<&str>, code: Option<&str>) -> Bytes {
    let whole = match api {
        Api::Chat | Api::Responses => {
            json!({ "error": { "message": message, "type": kind, "param": param, "code": code } })
        }
        Api::Anthropic => json!({ "type": "error", "error": { "type": kind, "message": message } }),
    };
    Bytes::from(whole.to_string())
}

/// Cuts a text into pieces of nearly the same length; as many as asked for, or one for each character.
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

/// Counts tokens as one for every four bytes begun: wrong for every real model, and the same on every run.
fn estimate_tokens(bytes: usize) -> usize {
    bytes.div_ceil(4)
}

fn output_bytes(text: &str, calls: &[ScriptedCall]) -> usize {
    text.len() + calls.iter().map(|call| call.name.len() + call.arguments.len()).sum::<usize>()
}

/// One event with its name, as Anthropic and the Responses API send it.
fn push_event(buffer: &mut Vec<u8>, kind: &str, data: &serde_json::Value) {
    buffer.extend_from_slice(format!("event: {kind}\ndata: {data}\n\n").as_bytes());
}

fn push_string(buffer: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(buffer, text).expect("a string is always JSON");
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
