//! The native engine: this crate's forward pass and KV caches behind the [`Engine`] trait.

use super::Engine;
use super::forward::{CHUNK_TOKENS, Scratch};
use super::gguf::{Gguf, ModelFileError};
use super::kv_cache::KvCache;
use super::network::Network;

/// An engine implemented in this crate, without C++ dependencies.
#[derive(Debug)]
pub(crate) struct NativeEngine {
    network: Network,
    caches: Vec<KvCache>,
    scratch: Scratch,
}

impl NativeEngine {
    /// Loads the weights of `file`, for `threads` threads and `sequences` sequences.
    pub(crate) fn read(
        file: &Gguf<'_>,
        vocabulary_size: usize,
        threads: usize,
        sequences: usize,
    ) -> Result<Self, ModelFileError> {
        let network = Network::read(file, vocabulary_size, threads)?;
        let caches = (0..sequences.max(1)).map(|_| KvCache::new(&network.shape)).collect();
        Ok(Self { network, caches, scratch: Scratch::default() })
    }
}

impl Engine for NativeEngine {
    fn window_tokens(&self) -> usize {
        self.network.shape.window_tokens
    }

    fn sequences(&self) -> usize {
        self.caches.len()
    }

    fn chunk_tokens(&self) -> usize {
        CHUNK_TOKENS
    }

    fn cached_tokens(&self, sequence: usize) -> usize {
        self.caches[sequence].len()
    }

    fn truncate(&mut self, sequence: usize, length: usize) {
        self.caches[sequence].truncate(length);
    }

    fn copy_prefix(&mut self, from: usize, into: usize, length: usize) {
        match self.caches.get_disjoint_mut([from, into]) {
            Ok([from, into]) => into.copy_prefix(from, length),
            Err(_) => self.caches[into].truncate(length),
        }
    }

    fn eval(&mut self, sequence: usize, tokens: &[u32], logits: Option<&mut Vec<f32>>) -> Result<(), String> {
        for chunk in tokens.chunks(CHUNK_TOKENS) {
            self.network.forward(&mut self.caches[sequence], chunk, &mut self.scratch);
        }
        if let Some(logits) = logits {
            self.network.logits(&mut self.scratch, logits);
        }
        Ok(())
    }
}
