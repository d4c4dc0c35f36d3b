//! OpenAI's Responses API, asked so that the server keeps nothing: the whole conversation goes along each time.

mod answer;
mod question;

use agent::Fault;
use agent::outside::ModelRequest;
use bytes::Bytes;

use crate::dialect::{AnswerReader, Dialect, ModelOptions};
use crate::prefix::PrefixShelf;

/// The Responses API.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Responses;

impl Dialect for Responses {
    fn endpoint(&self) -> &'static [&'static str] {
        &["responses"]
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
        question::write(model, request, shelf)
    }

    fn reader(&self) -> Box<dyn AnswerReader> {
        Box::new(answer::ResponsesReader::default())
    }
}
