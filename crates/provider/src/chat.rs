//! The chat-completions API, which OpenAI, OpenRouter, Azure, Ollama, vLLM, LM Studio, llama.cpp and many others speak.

mod answer;
mod question;

use agent::Fault;
use agent::outside::ModelRequest;
use bytes::Bytes;

use crate::dialect::{AnswerReader, Dialect, ModelOptions};
use crate::prefix::PrefixShelf;

/// Chat completions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chat {
    /// What the field with the most tokens of an answer is called.
    length_field: &'static str,
}

impl Chat {
    /// As OpenAI and Azure speak it: models that reason take only the newer name of the field.
    pub(crate) const OPENAI: Self = Self { length_field: "max_completion_tokens" };

    /// As other servers speak it: some do not know the newer name, and some refuse it.
    pub(crate) const COMPATIBLE: Self = Self { length_field: "max_tokens" };
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
        question::write(self.length_field, model, request, shelf)
    }

    fn reader(&self) -> Box<dyn AnswerReader> {
        Box::new(answer::ChatReader::default())
    }
}
