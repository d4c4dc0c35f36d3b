//! What the APIs of models differ in: how a question is written and how an answer is read. How bytes travel, who may ask
//! when and what is tried again is left to the transport.

use agent::Fault;
use agent::outside::{ModelEvent, ModelRequest};
use bytes::Bytes;

use crate::prefix_cache::PrefixCache;

/// One API.
pub(crate) trait Dialect: Send + Sync {
    /// Where questions go, below the base URL.
    fn path_segments(&self) -> &'static [&'static str];

    /// Headers that this API wants beside the key.
    fn headers(&self) -> &'static [(&'static str, &'static str)];

    /// Writes a question: the pieces of the body in order. What was written for the same agent before is taken from the
    /// shelf, so that the cost does not grow with the conversation.
    fn encode(
        &self,
        model: &ModelOptions,
        request: &ModelRequest,
        shelf: &PrefixCache,
    ) -> Result<Vec<Bytes>, Fault>;

    /// Reads one answer.
    fn decoder(&self) -> Box<dyn ResponseDecoder>;
}

/// What the user set for one model, and what is known of it, as far as it goes into a question.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ModelOptions {
    /// The name to ask the server for.
    pub(crate) name: String,
    /// The most tokens of an answer, where the question does not say.
    pub(crate) answer_tokens_max: Option<u64>,
    /// The most tokens the model can answer with, where that is known.
    pub(crate) answer_tokens_limit: Option<u64>,
    /// Fields that are put into the body as they are, such as `temperature` or `reasoning_effort`.
    pub(crate) extra: serde_json::Map<String, serde_json::Value>,
    /// Whether the prompt is marked for the provider's cache, where it has marks.
    pub(crate) caches_prompt: bool,
    /// Whether the model can look at images.
    pub(crate) takes_images: bool,
}

/// Puts an answer together from the data of its events. Never hands on half a tool call.
pub(crate) trait ResponseDecoder: Send {
    /// Takes the data of one event.
    fn decode(&mut self, data: &[u8], each: &mut dyn FnMut(Result<ModelEvent, Fault>));

    /// Whether the answer is whole: nothing that comes after it matters.
    fn is_complete(&self) -> bool;

    /// The body has ended: what is still to be told, `Done` or a fault last.
    fn finish(&mut self, each: &mut dyn FnMut(Result<ModelEvent, Fault>));

    /// Whether anything of the answer has come: then it must not be asked for again.
    fn has_started(&self) -> bool;
}
