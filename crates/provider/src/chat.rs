//! The chat-completions API, which OpenAI, OpenRouter, Azure, Ollama, vLLM, LM Studio, llama.cpp and many others speak.

mod answer;
mod question;
#[cfg(test)]
mod tests;
mod thoughts;

use agent::Fault;
use agent::outside::ModelRequest;
use bytes::Bytes;

use self::thoughts::{Maker, Wanted};
use crate::dialect::{AnswerReader, Dialect, ModelOptions};
use crate::prefix::PrefixShelf;

/// Chat completions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chat {
    /// What the field with the most tokens of an answer is called.
    length_field: &'static str,
    call_ids: CallIds,
    /// What is wanted back of what the model thought.
    thoughts: Wanted,
    maker: Maker,
}

/// The ids of calls that a server takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallIds {
    /// Any that can be seen.
    Visible,
    /// Nine letters and digits: Mistral's own, and no others.
    Nine,
}

impl Chat {
    /// As OpenAI and Azure speak it: models that reason take only the newer name of the field.
    pub(crate) const OPENAI: Self = Self { length_field: "max_completion_tokens", ..Self::COMPATIBLE };

    /// As other servers speak it: some do not know the newer name, and some refuse it.
    pub(crate) const COMPATIBLE: Self = Self {
        length_field: "max_tokens",
        call_ids: CallIds::Visible,
        thoughts: Wanted::Nothing,
        maker: Maker::NOBODY,
    };

    /// The same for a provider's model.
    pub(crate) fn of(self, provider: &str, model: &str) -> Self {
        let call_ids = if provider == "mistral" { CallIds::Nine } else { CallIds::Visible };
        Self { call_ids, thoughts: Wanted::by(provider, model), maker: Maker::of(model), ..self }
    }

    /// Tells apart what is written in different ways.
    fn key(self) -> &'static str {
        match (self.call_ids, self.thoughts) {
            (CallIds::Nine, _) => "chat of nine",
            (CallIds::Visible, Wanted::Nothing) => "chat",
            (CallIds::Visible, Wanted::Text) => "chat with texts",
            (CallIds::Visible, Wanted::Details) => "chat with details",
            (CallIds::Visible, Wanted::OfCalls) => "chat with extras",
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
        Box::new(answer::ChatReader::new(self.thoughts, self.maker))
    }
}
