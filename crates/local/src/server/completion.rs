//! Writing answers to chats in OpenAI's shapes: the whole one, and the chunks of a stream.

#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::generation_channel::OutputPart;
use super::refusal::Refusal;
use crate::generation::{ChatToolCall, FinishReason, GenerationSummary};

/// What all chunks of an answer have in common.
#[derive(Debug, Clone)]
pub(super) struct CompletionHeader {
    pub(super) id: String,
    pub(super) created: u64,
    pub(super) model: String,
}

impl CompletionHeader {
    pub(super) fn new(model: &str) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Self { id: format!("chatcmpl-{:016x}{number:06x}", *PROCESS), created, model: model.to_owned() }
    }
}

/// The tokens of an answer.
#[derive(Debug, Clone, Copy, Serialize)]
struct Usage {
    prompt_tokens: usize,
    completion_tokens: usize,
    total_tokens: usize,
    prompt_tokens_details: PromptDetails,
    completion_tokens_details: CompletionDetails,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct PromptDetails {
    cached_tokens: usize,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct CompletionDetails {
    reasoning_tokens: usize,
}

impl From<&GenerationSummary> for Usage {
    fn from(answered: &GenerationSummary) -> Self {
        Self {
            prompt_tokens: answered.prompt_tokens,
            completion_tokens: answered.answer_tokens,
            total_tokens: answered.prompt_tokens + answered.answer_tokens,
            prompt_tokens_details: PromptDetails { cached_tokens: answered.cached_tokens },
            completion_tokens_details: CompletionDetails { reasoning_tokens: 0 },
        }
    }
}

#[derive(Serialize)]
struct CallOut<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    function: FunctionOut<'a>,
}

#[derive(Serialize)]
struct FunctionOut<'a> {
    name: &'a str,
    arguments: &'a str,
}

impl<'a> CallOut<'a> {
    fn new(index: Option<usize>, call: &'a ChatToolCall) -> Self {
        let function = FunctionOut { name: &call.name, arguments: &call.arguments };
        Self { index, id: &call.id, kind: "function", function }
    }
}

/// The whole answer.
#[derive(Serialize)]
struct Completion<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: [CompletionChoice<'a>; 1],
    usage: Usage,
}

#[derive(Serialize)]
struct CompletionChoice<'a> {
    index: usize,
    message: MessageOut<'a>,
    logprobs: Option<()>,
    finish_reason: &'static str,
}

#[derive(Serialize)]
struct MessageOut<'a> {
    role: &'static str,
    content: Option<&'a str>,
    refusal: Option<()>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<CallOut<'a>>,
}

/// Writes an answer that is told at once.
pub(super) fn write_completion(
    envelope: &CompletionHeader,
    said: &[OutputPart],
    answered: &GenerationSummary,
) -> Vec<u8> {
    let mut text = String::new();
    let mut tool_calls = Vec::new();
    for said in said {
        match said {
            OutputPart::Text(part) => text.push_str(part),
            OutputPart::ToolCall(call) => tool_calls.push(CallOut::new(None, call)),
        }
    }
    let content = (!text.is_empty() || tool_calls.is_empty()).then_some(text.as_str());
    let completion = Completion {
        id: &envelope.id,
        object: "chat.completion",
        created: envelope.created,
        model: &envelope.model,
        choices: [CompletionChoice {
            index: 0,
            message: MessageOut { role: "assistant", content, refusal: None, tool_calls },
            logprobs: None,
            finish_reason: finish_reason(answered.finish_reason),
        }],
        usage: answered.into(),
    };
    serde_json::to_vec(&completion).unwrap_or_default()
}

fn finish_reason(why: FinishReason) -> &'static str {
    match why {
        // Nobody reads the end of an answer that was cancelled.
        FinishReason::Stop | FinishReason::Cancelled => "stop",
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::Length => "length",
    }
}

/// Writes the chunks of one answer.
#[derive(Debug)]
pub(super) struct ChunkWriter {
    header: CompletionHeader,
    usage: UsageChunk,
    call_count: usize,
}

/// Whether a stream ends with what it used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UsageChunk {
    Included,
    Omitted,
}

#[derive(Serialize)]
struct Chunk<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: &'a [ChunkChoice<'a>],
    /// Null on every chunk but the last when usage is told, absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Option<Usage>>,
}

#[derive(Serialize)]
struct ChunkChoice<'a> {
    index: usize,
    delta: Delta<'a>,
    logprobs: Option<()>,
    finish_reason: Option<&'static str>,
}

#[derive(Serialize, Default)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<[CallOut<'a>; 1]>,
}

impl ChunkWriter {
    pub(super) fn new(envelope: CompletionHeader, usage: UsageChunk) -> Self {
        Self { header: envelope, usage, call_count: 0 }
    }

    /// The first chunk: who speaks.
    pub(super) fn write_role(&self, out: &mut Vec<u8>) {
        let delta = Delta { role: Some("assistant"), content: Some(""), ..Delta::default() };
        self.write_delta(out, delta, None);
    }

    /// A part of the answer.
    pub(super) fn write_part(&mut self, out: &mut Vec<u8>, said: &OutputPart) {
        match said {
            OutputPart::Text(text) => {
                self.write_delta(out, Delta { content: Some(text), ..Delta::default() }, None)
            }
            OutputPart::ToolCall(call) => {
                let call = CallOut::new(Some(self.call_count), call);
                self.write_delta(out, Delta { tool_calls: Some([call]), ..Delta::default() }, None);
                self.call_count += 1;
            }
        }
    }

    /// Why it ended, what it used, and the mark that nothing comes behind.
    pub(super) fn write_finish(&self, out: &mut Vec<u8>, answered: &GenerationSummary) {
        self.write_delta(out, Delta::default(), Some(finish_reason(answered.finish_reason)));
        if self.usage == UsageChunk::Included {
            self.write_chunk(out, &[], Some(answered.into()));
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    fn write_delta(&self, out: &mut Vec<u8>, delta: Delta<'_>, finish_reason: Option<&'static str>) {
        self.write_chunk(out, &[ChunkChoice { index: 0, delta, logprobs: None, finish_reason }], None);
    }

    fn write_chunk(&self, out: &mut Vec<u8>, choices: &[ChunkChoice<'_>], usage: Option<Usage>) {
        let chunk = Chunk {
            id: &self.header.id,
            object: "chat.completion.chunk",
            created: self.header.created,
            model: &self.header.model,
            choices,
            usage: (self.usage == UsageChunk::Included).then_some(usage),
        };
        // JSON has no line breaks of its own, so a chunk is one line.
        write_event(out, &serde_json::to_vec(&chunk).unwrap_or_default());
    }
}

/// A fault behind an answer that has begun: the status is out, so the stream tells it and ends without its mark.
pub(super) fn write_error(out: &mut Vec<u8>, refusal: &Refusal) {
    write_event(out, &refusal.body());
}

/// A line that clients skip; it shows that somebody is there.
pub(super) fn write_comment(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(b": ");
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\n\n");
}

fn write_event(out: &mut Vec<u8>, json: &[u8]) {
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(json);
    out.extend_from_slice(b"\n\n");
}
