//! What computes a model: tokens in, scores out. [`Engine`] is all that answers need of it; the file, the weights, the
//! kernels and the kept keys and values of our own engine are here too. Text, templates and sampling are `chat` and
//! `generation`; this half knows token ids and numbers only.

pub(crate) mod attention;
#[cfg(test)]
mod conformance;
pub(crate) mod convert;
#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod format;
pub(crate) mod forward;
pub(crate) mod gguf;
pub(crate) mod kernel;
pub(crate) mod kv_cache;
#[cfg(feature = "llama-cpp")]
pub(crate) mod llama_cpp;
pub(crate) mod math;
pub(crate) mod matrix;
pub(crate) mod mmap;
pub(crate) mod native;
pub(crate) mod network;

use std::fmt::Debug;

/// Computes a model. A few sequences of tokens are kept side by side, each with a number from 0 on; a sequence goes on
/// where it is, or where it was cut.
pub(crate) trait Engine: Debug + Send {
    /// The longest sequence, in tokens.
    fn window_tokens(&self) -> usize;

    /// How many sequences there are.
    fn sequences(&self) -> usize;

    /// Tokens that it likes to read at once: enough to be quick, few enough that a cancel is soon heard.
    fn chunk_tokens(&self) -> usize;

    /// How many tokens of `sequence` are computed and kept. Without room for all, an engine may forget sequences that
    /// are not being read.
    fn cached_tokens(&self, sequence: usize) -> usize;

    /// Forgets what `sequence` holds behind its first `length` tokens.
    fn truncate(&mut self, sequence: usize, length: usize);

    /// Makes `into` hold the first `length` tokens of `from` and nothing else.
    fn copy_prefix(&mut self, from: usize, into: usize, length: usize);

    /// Reads `tokens`, at least one and all of the vocabulary, behind what `sequence` holds. With `scores`, it gets the
    /// score of every token to come next.
    fn eval(&mut self, sequence: usize, tokens: &[u32], scores: Option<&mut Vec<f32>>) -> Result<(), String>;
}
