//! Tools for base64: the standard alphabet with padding.

mod decode;
mod encode;

pub(crate) use decode::Decode;
pub(crate) use encode::Encode;
