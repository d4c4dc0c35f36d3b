//! The forward pass of llama-like models: the file, the weights, the kernels, the kept prefixes.
//! Text, templates and sampling are `chat` and `generation`; this half knows token ids and numbers only.

pub(crate) mod attention;
pub(crate) mod cache;
pub(crate) mod convert;
pub(crate) mod forward;
pub(crate) mod gguf;
pub(crate) mod kernel;
#[cfg(test)]
pub(crate) mod made;
pub(crate) mod map;
pub(crate) mod matrix;
pub(crate) mod network;
pub(crate) mod numbers;
