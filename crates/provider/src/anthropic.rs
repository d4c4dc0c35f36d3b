//! Anthropic's Messages API. An answer that has to fit a schema is asked for by `output_config.format`, which works beside
//! tools and thinking; a tool that the model is forced to call would work beside neither.

mod answer;
mod question;

use agent::Fault;
use agent::outside::ModelRequest;
use bytes::Bytes;

use crate::dialect::{AnswerReader, Dialect, ModelOptions};
use crate::prefix::PrefixShelf;

/// The Messages API.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Anthropic;

impl Dialect for Anthropic {
    fn endpoint(&self) -> &'static [&'static str] {
        &["v1", "messages"]
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[("anthropic-version", "2023-06-01")]
    }

    fn write(
        &self,
        model: &ModelOptions,
        request: &ModelRequest,
        shelf: &PrefixShelf,
    ) -> Result<Vec<Bytes>, Fault> {
        question::write(model, request, shelf)
    }

    fn reader(&self) -> Box<dyn AnswerReader> {
        Box::new(answer::AnthropicReader::default())
    }
}
