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
use crate::catalog::Wanted;
use crate::dialect::{AnswerReader, Dialect, ModelOptions};
use crate::prefix::PrefixShelf;

/// Chat completions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chat {
    /// What the field with the most tokens of an answer is called.
    length_field: &'static str,
    wanted: Wanted,
    maker: Maker,
}

impl Chat {
    /// As OpenAI and Azure speak it: models that reason take only the newer name of the field.
    pub(crate) const OPENAI: Self = Self { length_field: "max_completion_tokens", ..Self::COMPATIBLE };

    /// As other servers speak it: some do not know the newer name, and some refuse it.
    pub(crate) const COMPATIBLE: Self =
        Self { length_field: "max_tokens", wanted: Wanted::Nothing, maker: Maker::NOBODY };

    /// The same for a model of a provider that wants this.
    pub(crate) fn wanting(self, wanted: Wanted, model: &str) -> Self {
        Self { wanted: wanted.of_model(model), maker: Maker::of(model), ..self }
    }

    /// Tells apart what is written in different ways.
    fn key(self) -> &'static str {
        match self.wanted {
            Wanted::Nothing | Wanted::AsItsModel => "chat",
            Wanted::ThoughtText => "chat with texts",
            Wanted::ThoughtDetails => "chat with details",
            Wanted::ThoughtsOfCalls => "chat with extras",
            Wanted::ShortIds => "chat with short ids",
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
        Box::new(answer::ChatReader::new(self.wanted, self.maker))
    }
}
