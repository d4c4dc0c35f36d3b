//! OpenAI's Responses API, used statelessly (`store: false`): each request carries the full conversation.

mod request;
mod response;

use agent::Fault;
use agent::outside::ModelRequest;
use bytes::Bytes;

use crate::dialect::{Dialect, ModelOptions, ResponseDecoder};
use crate::prefix_cache::PrefixCache;

/// Dialect of the Responses API.
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
        cache: &PrefixCache,
    ) -> Result<Vec<Bytes>, Fault> {
        request::encode(model, request, cache)
    }

    fn decoder(&self) -> Box<dyn ResponseDecoder> {
        Box::new(response::ResponsesDecoder::default())
    }
}
