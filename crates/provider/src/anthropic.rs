//! Anthropic's Messages API. Structured output uses `output_config.format`, which works together with tools and
//! thinking; a forced tool call would work with neither.

mod request;
mod response;

use agent::Fault;
use agent::outside::ModelRequest;
use bytes::Bytes;

use crate::dialect::{Dialect, ModelOptions, ResponseDecoder};
use crate::prefix_cache::PrefixCache;

/// Dialect of the Messages API.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Anthropic;

impl Dialect for Anthropic {
    fn path_segments(&self) -> &'static [&'static str] {
        &["v1", "messages"]
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[("anthropic-version", "2023-06-01")]
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
        Box::new(response::AnthropicDecoder::default())
    }
}
