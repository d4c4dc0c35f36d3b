//! Inference engines: token ids in, logits out, behind the trait [`Engine`]. The native engine lives here too: GGUF
//! parsing, quantised weights, kernels, KV cache. Text and templates belong to `chat`, sampling to `generation`.

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

/// An inference engine with a KV cache for a fixed number of token sequences, numbered from 0. A sequence continues
/// from its end or from where it was truncated.
pub(crate) trait Engine: Debug + Send {
    /// Context window: the longest sequence, in tokens.
    fn window_tokens(&self) -> usize;

    /// Number of sequences.
    fn sequences(&self) -> usize;

    /// Preferred number of tokens per `eval`: enough for throughput, few enough that cancellation is prompt.
    fn chunk_tokens(&self) -> usize;

    /// Number of tokens of `sequence` in the KV cache. An engine that runs out of cache space may evict any sequence
    /// but the one being evaluated.
    fn cached_tokens(&self, sequence: usize) -> usize;

    /// Truncates `sequence` to its first `length` tokens. An engine that cannot truncate there may drop more.
    fn truncate(&mut self, sequence: usize, length: usize);

    /// Replaces the content of `into` with the first `length` tokens of `from`.
    fn copy_prefix(&mut self, from: usize, into: usize, length: usize);

    /// Appends `tokens` to `sequence` and evaluates them. There is at least one token, and all are in the vocabulary.
    /// Fills `logits`, if given, with the logits of the next token.
    fn eval(&mut self, sequence: usize, tokens: &[u32], logits: Option<&mut Vec<f32>>) -> Result<(), String>;
}
