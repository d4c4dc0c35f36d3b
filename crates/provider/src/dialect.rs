//! The interface of an API dialect: encoding requests and decoding responses. Transport, admission and retries are left
//! to `endpoint`, `fair_queue` and `remote`.

use agent::Fault;
use agent::outside::{ModelEvent, ModelRequest};
use bytes::Bytes;

use crate::prefix_cache::PrefixCache;

/// One model API.
pub(crate) trait Dialect: Send + Sync {
    /// Path of the API below the base URL.
    fn path_segments(&self) -> &'static [&'static str];

    /// Headers that the API requires in addition to the key.
    fn headers(&self) -> &'static [(&'static str, &'static str)];

    /// Encodes a request as the ordered pieces of its body. The prefix already encoded for this agent comes from the
    /// cache, so the cost does not grow with the conversation.
    fn encode(
        &self,
        model: &ModelOptions,
        request: &ModelRequest,
        cache: &PrefixCache,
    ) -> Result<Vec<Bytes>, Fault>;

    /// Returns a decoder for one response.
    fn decoder(&self) -> Box<dyn ResponseDecoder>;
}

/// Settings and known properties of one model that affect its requests.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ModelOptions {
    /// Model name as sent to the server.
    pub(crate) name: String,
    /// Limit of response tokens for requests that set none.
    pub(crate) answer_tokens_max: Option<u64>,
    /// Most response tokens the model supports, if known.
    pub(crate) supported_answer_tokens_max: Option<u64>,
    /// Fields copied into the body unchanged, such as `temperature` or `reasoning_effort`.
    pub(crate) extra: serde_json::Map<String, serde_json::Value>,
    /// Whether cache breakpoints are set, on APIs that have them.
    pub(crate) caches_prompt: bool,
    /// Whether the model accepts images.
    pub(crate) accepts_images: bool,
}

impl ModelOptions {
    /// Whether requests enable thinking, on APIs that get the thinking of earlier responses back.
    pub(crate) fn thinks(&self) -> bool {
        let kind = self.extra.get("thinking").and_then(|thinking| thinking.get("type"));
        kind.is_some_and(|kind| kind != "disabled")
    }
}

/// Incremental decoder of one response, fed with the data of its server-sent events. Never emits a partial tool call.
pub(crate) trait ResponseDecoder: Send {
    /// Decodes the data of one event.
    fn decode(&mut self, data: &[u8], each: &mut dyn FnMut(Result<ModelEvent, Fault>));

    /// Whether the response is complete; later events are ignored.
    fn is_complete(&self) -> bool;

    /// Emits the remaining events at the end of the body; the last is `Done` or a fault.
    fn finish(&mut self, each: &mut dyn FnMut(Result<ModelEvent, Fault>));

    /// Whether any part of the response has arrived; then the request must not be retried.
    fn has_started(&self) -> bool;

    /// Bytes of the response that the decoder holds: incomplete tool calls, and reasoning to be stored with them.
    fn buffered_bytes(&self) -> usize;
}
