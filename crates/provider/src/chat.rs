//! The chat-completions API, which OpenAI, OpenRouter, Azure, Ollama, vLLM, LM Studio, llama.cpp and many others speak.

mod answer;
mod question;
#[cfg(test)]
mod tests;
mod thoughts;

use agent::Fault;
use agent::outside::ModelRequest;
use bytes::Bytes;

use self::thoughts::Maker;
use crate::catalog::{CallIds, KnownProvider, Thinking};
use crate::dialect::{AnswerReader, Dialect, ModelOptions};
use crate::prefix::PrefixShelf;

/// Chat completions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chat {
    /// What the field with the most tokens of an answer is called.
    length_field: &'static str,
    thinking: Thinking,
    maker: Maker,
    call_ids: CallIds,
}

impl Chat {
    /// As OpenAI and Azure speak it: models that reason take only the newer name of the field.
    pub(crate) const OPENAI: Self = Self { length_field: "max_completion_tokens", ..Self::COMPATIBLE };

    /// As other servers speak it: some do not know the newer name, and some refuse it.
    pub(crate) const COMPATIBLE: Self = Self {
        length_field: "max_tokens",
        thinking: Thinking::Unwanted,
        maker: Maker::NOBODY,
        call_ids: CallIds::Visible,
    };

    /// The same for a provider's model.
    pub(crate) fn of(self, known: &KnownProvider, model: &str) -> Self {
        let thinking = known.thinking.of_model(model);
        Self { thinking, maker: Maker::of(model), call_ids: known.call_ids, ..self }
    }

    /// Tells apart what is written in different ways.
    fn key(self) -> &'static str {
        match (self.call_ids, self.thinking) {
            (CallIds::Visible, Thinking::Unwanted) => "chat",
            (CallIds::Visible, Thinking::InText) => "chat with texts",
            (CallIds::Visible, Thinking::InDetails) => "chat with details",
            (CallIds::Visible, Thinking::InCalls) => "chat with extras",
            (CallIds::OfNine, Thinking::Unwanted) => "chat of nine",
            (CallIds::OfNine, Thinking::InText) => "chat of nine with texts",
            (CallIds::OfNine, Thinking::InDetails) => "chat of nine with details",
            (CallIds::OfNine, Thinking::InCalls) => "chat of nine with extras",
        }
    }
}

impl Dialect for Chat {
    fn endpoint(&self) -> &'static [&'static str] {
        &["chat", "completions"]
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    fn write(
        &self,
        model: &ModelOptions,
        request: &ModelRequest,
        shelf: &PrefixShelf,
    ) -> Result<Vec<Bytes>, Fault> {
        question::write(*self, model, request, shelf)
    }

    fn reader(&self) -> Box<dyn AnswerReader> {
        Box::new(answer::ChatReader::new(self.thinking, self.maker))
    }
}
