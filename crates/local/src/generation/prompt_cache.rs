//! The conversations that are kept, each a sequence of the engine; the one unused for longest makes room.

use crate::engine::Engine;

/// Which tokens each sequence of the engine holds.
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

/// One conversation and the engine that computes it.
pub(crate) struct Conversation<'a> {
    engine: &'a mut dyn Engine,
    sequence: usize,
    tokens: &'a mut Vec<u32>,
}

impl PromptCache {
    /// A shelf for the sequences of `engine`.
    pub(crate) fn new(engine: &dyn Engine) -> Self {
        Self { sequences: vec![CachedSequence::default(); engine.sequences()], clock: 0 }
    }

    /// A conversation that holds what `prompt` shares with a kept one. The prompt's last token is never taken as
    /// shared: its output is what the answer begins with.
    pub(crate) fn acquire<'a>(&'a mut self, engine: &'a mut dyn Engine, prompt: &[u32]) -> Conversation<'a> {
        self.clock += 1;
        for (sequence, kept) in self.sequences.iter_mut().enumerate() {
            kept.tokens.truncate(engine.cached_tokens(sequence));
        }
        let usable = &prompt[..prompt.len().saturating_sub(1)];
        let shared = |at: &usize| shared_prefix_tokens(&self.sequences[*at].tokens, usable);
        let nearest = (0..self.sequences.len()).max_by_key(shared).unwrap_or(0);
        let length = shared(&nearest);
        let oldest = (0..self.sequences.len()).min_by_key(|at| self.sequences[*at].last_used).unwrap_or(0);
        // A conversation that would lose most of itself is another one that begins alike: it is copied.
        let sequence = match length * 2 >= self.sequences[nearest].tokens.len() && length > 0 {
            true => nearest,
            false => oldest,
        };
        if sequence == nearest {
            engine.truncate(sequence, length);
        } else {
            engine.copy_prefix(nearest, sequence, length);
        }
        let CachedSequence { tokens, last_used: used } = &mut self.sequences[sequence];
        *used = self.clock;
        tokens.clear();
        tokens.extend_from_slice(&usable[..length.min(engine.cached_tokens(sequence))]);
        Conversation { engine, sequence, tokens }
    }
}

impl Conversation<'_> {
    /// How many tokens it has.
    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// How many tokens are read at once.
    pub(crate) fn chunk_tokens(&self) -> usize {
        self.engine.chunk_tokens().max(1)
    }

    /// Forgets everything behind the first `length` tokens.
    pub(crate) fn truncate(&mut self, length: usize) -> Result<(), String> {
        self.engine.truncate(self.sequence, length);
        self.tokens.truncate(length);
        // An engine that cannot cut has thrown more away.
        let lost = self.tokens.split_off(self.engine.cached_tokens(self.sequence).min(self.tokens.len()));
        if lost.is_empty() { Ok(()) } else { self.eval(&lost, None) }
    }

    /// Reads `tokens`; with `scores`, it gets the score of every token to come next.
    pub(crate) fn eval(&mut self, tokens: &[u32], scores: Option<&mut Vec<f32>>) -> Result<(), String> {
        let read = self.engine.eval(self.sequence, tokens, scores);
        self.tokens.extend_from_slice(tokens);
        // What an engine could not read is not there either.
        self.tokens.truncate(self.engine.cached_tokens(self.sequence));
        read
    }
}

fn shared_prefix_tokens(left: &[u32], right: &[u32]) -> usize {
    left.iter().zip(right).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests;
