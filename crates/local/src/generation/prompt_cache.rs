//! Prompt-prefix cache: which tokens each sequence of the engine holds, so that a prompt reuses the longest cached
//! prefix. The least recently used sequence is evicted.

use crate::engine::Engine;

/// Prompt-prefix cache over the sequences of one engine.
#[derive(Debug)]
pub(crate) struct PromptCache {
    sequences: Vec<CachedSequence>,
    clock: u64,
}

#[derive(Debug, Clone, Default)]
struct CachedSequence {
    tokens: Vec<u32>,
    last_used: u64,
}

/// A cached sequence in use, with its engine.
pub(crate) struct Conversation<'a> {
    engine: &'a mut dyn Engine,
    sequence: usize,
    tokens: &'a mut Vec<u32>,
}

impl PromptCache {
    /// Creates an empty cache for the sequences of `engine`.
    pub(crate) fn new(engine: &dyn Engine) -> Self {
        Self { sequences: vec![CachedSequence::default(); engine.sequences()], clock: 0 }
    }

    /// Returns a sequence that holds the longest cached prefix of `prompt`. The prompt's last token is never taken from
    /// the cache: evaluating it yields the logits of the response's first token.
    pub(crate) fn acquire<'a>(&'a mut self, engine: &'a mut dyn Engine, prompt: &[u32]) -> Conversation<'a> {
        self.clock += 1;
        for (sequence, cached) in self.sequences.iter_mut().enumerate() {
            cached.tokens.truncate(engine.cached_tokens(sequence));
        }
        let usable = &prompt[..prompt.len().saturating_sub(1)];
        let shared = |at: &usize| shared_prefix_tokens(&self.sequences[*at].tokens, usable);
        let nearest = (0..self.sequences.len()).max_by_key(shared).unwrap_or(0);
        let length = shared(&nearest);
        let oldest = (0..self.sequences.len()).min_by_key(|at| self.sequences[*at].last_used).unwrap_or(0);
        // A sequence that would lose more than half of its tokens belongs to another conversation; copy its prefix.
        let sequence = match length * 2 >= self.sequences[nearest].tokens.len() && length > 0 {
            true => nearest,
            false => oldest,
        };
        if sequence == nearest {
            engine.truncate(sequence, length);
        } else {
            engine.copy_prefix(nearest, sequence, length);
        }
        let CachedSequence { tokens, last_used } = &mut self.sequences[sequence];
        *last_used = self.clock;
        tokens.clear();
        tokens.extend_from_slice(&usable[..length.min(engine.cached_tokens(sequence))]);
        Conversation { engine, sequence, tokens }
    }
}

impl Conversation<'_> {
    /// Number of tokens in the sequence.
    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Number of tokens to evaluate at a time.
    pub(crate) fn chunk_tokens(&self) -> usize {
        self.engine.chunk_tokens().max(1)
    }

    /// Truncates the sequence to its first `length` tokens.
    pub(crate) fn truncate(&mut self, length: usize) -> Result<(), String> {
        self.engine.truncate(self.sequence, length);
        self.tokens.truncate(length);
        // An engine that cannot truncate there has dropped more tokens, which are evaluated again.
        let lost = self.tokens.split_off(self.engine.cached_tokens(self.sequence).min(self.tokens.len()));
        if lost.is_empty() { Ok(()) } else { self.eval(&lost, None) }
    }

    /// Appends and evaluates `tokens`; fills `logits`, if given, with the logits of the next token.
    pub(crate) fn eval(&mut self, tokens: &[u32], logits: Option<&mut Vec<f32>>) -> Result<(), String> {
        let result = self.engine.eval(self.sequence, tokens, logits);
        self.tokens.extend_from_slice(tokens);
        // After a failure the engine holds fewer tokens.
        self.tokens.truncate(self.engine.cached_tokens(self.sequence));
        result
    }
}

fn shared_prefix_tokens(left: &[u32], right: &[u32]) -> usize {
    left.iter().zip(right).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests;
