//! Base64 tools: standard alphabet with padding.

mod decode;
mod encode;

pub(crate) use decode::Decode;
pub(crate) use encode::Encode;
