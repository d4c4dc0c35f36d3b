//! The chat-completions API, served by OpenAI, OpenRouter, Azure, Ollama, vLLM, LM Studio, llama.cpp and many others.

mod reasoning;
mod request;
mod response;
#[cfg(test)]
mod tests;

use agent::Fault;
use agent::outside::ModelRequest;
use bytes::Bytes;

use self::reasoning::ModelDigest;
use crate::catalog::{CallIdFormat, KnownProvider, ReasoningEcho};
use crate::dialect::{Dialect, ModelOptions, ResponseDecoder};
use crate::prefix_cache::PrefixCache;

/// Dialect of the chat-completions API.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chat {
    /// Name of the field that limits the response tokens.
    max_tokens_field: &'static str,
    reasoning_echo: ReasoningEcho,
    model_digest: ModelDigest,
    call_id_format: CallIdFormat,
}

impl Chat {
    /// The variant of OpenAI and Azure: reasoning models accept only the newer name of the token limit.
    pub(crate) const OPENAI: Self = Self { max_tokens_field: "max_completion_tokens", ..Self::COMPATIBLE };

    /// The variant of other servers: some ignore the newer name, and some reject it.
    pub(crate) const COMPATIBLE: Self = Self {
        max_tokens_field: "max_tokens",
        reasoning_echo: ReasoningEcho::Omitted,
        model_digest: ModelDigest::NONE,
        call_id_format: CallIdFormat::Printable,
    };

    /// Returns this variant adapted to a provider's model.
    pub(crate) fn for_model(self, known: &KnownProvider, model: &str) -> Self {
        let reasoning_echo = known.reasoning_echo.for_model(model);
        Self {
            reasoning_echo,
            model_digest: ModelDigest::from_name(model),
            call_id_format: known.call_id_format,
            ..self
        }
    }

    /// Name of this variant in the keys of the prompt-prefix cache, because each variant encodes messages differently.
    fn variant_name(self) -> &'static str {
        match (self.call_id_format, self.reasoning_echo) {
            (CallIdFormat::Printable, ReasoningEcho::Omitted) => "chat",
            (CallIdFormat::Printable, ReasoningEcho::ReasoningContent) => "chat, reasoning_content",
            (CallIdFormat::Printable, ReasoningEcho::ReasoningDetails) => "chat, reasoning_details",
            (CallIdFormat::Printable, ReasoningEcho::ExtraContent) => "chat, extra_content",
            (CallIdFormat::NineAlphanumeric, ReasoningEcho::Omitted) => "chat, nine-char ids",
            (CallIdFormat::NineAlphanumeric, ReasoningEcho::ReasoningContent) => {
                "chat, nine-char ids, reasoning_content"
            }
            (CallIdFormat::NineAlphanumeric, ReasoningEcho::ReasoningDetails) => {
                "chat, nine-char ids, reasoning_details"
            }
            (CallIdFormat::NineAlphanumeric, ReasoningEcho::ExtraContent) => {
                "chat, nine-char ids, extra_content"
            }
        }
    }
}

impl Dialect for Chat {
    fn path_segments(&self) -> &'static [&'static str] {
        &["chat", "completions"]
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    fn encode(
        &self,
        model: &ModelOptions,
        request: &ModelRequest,
        cache: &PrefixCache,
    ) -> Result<Vec<Bytes>, Fault> {
        request::encode(*self, model, request, cache)
    }

    fn decoder(&self) -> Box<dyn ResponseDecoder> {
        Box::new(response::ChatDecoder::new(self.reasoning_echo, self.model_digest))
    }
}
