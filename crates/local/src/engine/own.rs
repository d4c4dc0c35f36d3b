//! Our own engine: the forward pass and the pages of keys and values, behind the words that all engines have.

use super::Engine;
use super::cache::Cache;
use super::forward::{CHUNK, Scratch};
use super::gguf::{Gguf, Wrong};
use super::network::Network;

/// A model that is computed by this crate alone.
#[derive(Debug)]
pub(crate) struct OwnEngine {
    network: Network,
    caches: Vec<Cache>,
    scratch: Scratch,
}

impl OwnEngine {
    /// Reads the weights of `file`, for `threads` threads and `sequences` sequences.
    pub(crate) fn read(
        file: &Gguf<'_>,
        vocabulary: usize,
        threads: usize,
        sequences: usize,
    ) -> Result<Self, Wrong> {
        let network = Network::read(file, vocabulary, threads)?;
        let caches = (0..sequences.max(1)).map(|_| Cache::new(&network.shape)).collect();
        Ok(Self { network, caches, scratch: Scratch::default() })
    }
}

impl Engine for OwnEngine {
    fn window(&self) -> usize {
        self.network.shape.window
    }

    fn sequences(&self) -> usize {
        self.caches.len()
    }

    fn chunk(&self) -> usize {
        CHUNK
    }

    fn kept(&self, sequence: usize) -> usize {
        self.caches[sequence].len()
    }

    fn truncate(&mut self, sequence: usize, length: usize) {
        self.caches[sequence].truncate(length);
    }

    fn copy(&mut self, from: usize, into: usize, length: usize) {
        match self.caches.get_disjoint_mut([from, into]) {
            Ok([from, into]) => into.copy_prefix(from, length),
            Err(_) => self.caches[into].truncate(length),
        }
    }

    fn eval(&mut self, sequence: usize, tokens: &[u32], scores: Option<&mut Vec<f32>>) -> Result<(), String> {
        for chunk in tokens.chunks(CHUNK) {
            self.network.read_tokens(&mut self.caches[sequence], chunk, &mut self.scratch);
        }
        if let Some(scores) = scores {
            self.network.scores(&mut self.scratch, scores);
        }
        Ok(())
    }
}
