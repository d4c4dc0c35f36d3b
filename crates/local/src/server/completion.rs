//! Serializes chat responses in OpenAI's format: a whole completion, or the chunks of a stream.

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

/// Fields that all chunks of a response share.
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

/// Token usage of a response.
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
    fn from(summary: &GenerationSummary) -> Self {
        Self {
            prompt_tokens: summary.prompt_tokens,
            completion_tokens: summary.answer_tokens,
            total_tokens: summary.prompt_tokens + summary.answer_tokens,
            prompt_tokens_details: PromptDetails { cached_tokens: summary.cached_tokens },
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

/// A whole chat completion.
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

/// Serializes a whole completion.
pub(super) fn write_completion(
    header: &CompletionHeader,
    parts: &[OutputPart],
    summary: &GenerationSummary,
) -> Vec<u8> {
    let mut text = String::new();
    let mut tool_calls = Vec::new();
    for part in parts {
        match part {
            OutputPart::Text(part) => text.push_str(part),
            OutputPart::ToolCall(call) => tool_calls.push(CallOut::new(None, call)),
        }
    }
    let content = (!text.is_empty() || tool_calls.is_empty()).then_some(text.as_str());
    let completion = Completion {
        id: &header.id,
        object: "chat.completion",
        created: header.created,
        model: &header.model,
        choices: [CompletionChoice {
            index: 0,
            message: MessageOut { role: "assistant", content, refusal: None, tool_calls },
            logprobs: None,
            finish_reason: finish_reason(summary.finish_reason),
        }],
        usage: summary.into(),
    };
    serde_json::to_vec(&completion).unwrap_or_default()
}

fn finish_reason(reason: FinishReason) -> &'static str {
    match reason {
        // The worker turns a cancelled generation into an error, so its finish reason is never sent.
        FinishReason::Stop | FinishReason::Cancelled => "stop",
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::Length => "length",
    }
}

/// Serializer of the chunks of one response.
#[derive(Debug)]
pub(super) struct ChunkWriter {
    header: CompletionHeader,
    usage: UsageChunk,
    call_count: usize,
}

/// Whether a stream ends with a usage chunk.
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
    /// With a usage chunk: null on every chunk but the last. Without: absent.
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
    pub(super) fn new(header: CompletionHeader, usage: UsageChunk) -> Self {
        Self { header, usage, call_count: 0 }
    }

    /// Writes the first chunk, which holds the role.
    pub(super) fn write_role(&self, out: &mut Vec<u8>) {
        let delta = Delta { role: Some("assistant"), content: Some(""), ..Delta::default() };
        self.write_delta(out, delta, None);
    }

    /// Writes the chunk of a text or a tool call.
    pub(super) fn write_part(&mut self, out: &mut Vec<u8>, part: &OutputPart) {
        match part {
            OutputPart::Text(text) => {
                self.write_delta(out, Delta { content: Some(text), ..Delta::default() }, None);
            }
            OutputPart::ToolCall(call) => {
                let call = CallOut::new(Some(self.call_count), call);
                self.write_delta(out, Delta { tool_calls: Some([call]), ..Delta::default() }, None);
                self.call_count += 1;
            }
        }
    }

    /// Writes the finish reason, the usage if included, and `[DONE]`.
    pub(super) fn write_finish(&self, out: &mut Vec<u8>, summary: &GenerationSummary) {
        self.write_delta(out, Delta::default(), Some(finish_reason(summary.finish_reason)));
        if self.usage == UsageChunk::Included {
            self.write_chunk(out, &[], Some(summary.into()));
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
        // Compact JSON contains no line breaks, so a chunk is one line.
        write_event(out, &serde_json::to_vec(&chunk).unwrap_or_default());
    }
}

/// Writes an error event. Once the status is sent, a stream reports a fault this way and ends without `[DONE]`.
pub(super) fn write_error(out: &mut Vec<u8>, refusal: &Refusal) {
    write_event(out, &refusal.body());
}

/// Writes an SSE comment, which clients ignore, as a heartbeat.
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
