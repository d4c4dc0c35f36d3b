//! OpenAI's Responses API, asked so that the server keeps nothing: the whole conversation goes along each time.

mod request;
mod response;

use agent::Fault;
use agent::outside::ModelRequest;
use bytes::Bytes;

use crate::dialect::{Dialect, ModelOptions, ResponseDecoder};
use crate::prefix_cache::PrefixCache;

/// The Responses API.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Responses;

impl Dialect for Responses {
    fn path_segments(&self) -> &'static [&'static str] {
        &["responses"]
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    fn encode(
        &self,
        model: &ModelOptions,
        request: &ModelRequest,
        shelf: &PrefixCache,
    ) -> Result<Vec<Bytes>, Fault> {
        request::encode(model, request, shelf)
    }

    fn decoder(&self) -> Box<dyn ResponseDecoder> {
        Box::new(response::ResponsesDecoder::default())
    }
}
