//! Anthropic's Messages API. An answer that has to fit a schema is asked for by `output_config.format`, which works beside
//! tools and thinking; a tool that the model is forced to call would work beside neither.

mod request;
mod response;

use agent::Fault;
use agent::outside::ModelRequest;
use bytes::Bytes;

use crate::dialect::{Dialect, ModelOptions, ResponseDecoder};
use crate::prefix_cache::PrefixCache;

/// The Messages API.
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
        shelf: &PrefixCache,
    ) -> Result<Vec<Bytes>, Fault> {
        request::encode(model, request, shelf)
    }

    fn decoder(&self) -> Box<dyn ResponseDecoder> {
        Box::new(response::AnthropicDecoder::default())
    }
}
