//! BPE merge table in twelve bytes per merge, and the merge algorithm for one word.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::byte_for_character;
use crate::engine::gguf::ModelFileError;

/// Marks a byte or symbol without a token.
const NO_TOKEN: u32 = u32::MAX;

/// Longest part of a token name in an error text.
const NAME_SHOWN_CHARS_MAX: usize = 40;

/// Merge rules: which two tokens become which one.
#[derive(Debug)]
pub(super) struct MergeTable {
    /// The token of each byte.
    byte_tokens: Vec<u32>,
    /// Index in `merges` of the first merge with each left token, and the total count at the end.
    starts: Vec<u32>,
    /// Sorted by the left token, then by the right one.
    merges: Vec<Merge>,
    /// Words that are tokens although no merge produces them, for pre-tokenizers that ignore merges.
    whole_words: HashMap<Box<[u8]>, u32>,
}

#[derive(Debug, Clone, Copy)]
struct Merge {
    right: u32,
    /// Priority; the smallest rank merges first.
    rank: u32,
    merged: u32,
}

/// Working memory of the merge algorithm, reused between words.
#[derive(Debug, Default)]
pub(super) struct MergeScratch {
    symbols: Vec<Symbol>,
    /// Min-heap of (rank, index) of symbols that can merge with their successor.
    candidates: BinaryHeap<Reverse<(u32, usize)>>,
}

/// Node of a doubly linked list of a word's symbols. A symbol that was merged into its predecessor stays in the list's
/// storage with `NO_TOKEN`.
#[derive(Debug, Clone, Copy)]
struct Symbol {
    token: u32,
    previous: usize,
    next: usize,
}

impl MergeTable {
    /// Reads merges as pairs of token names with a space between them.
    pub(super) fn read(names: &[&str], pairs: &[&str]) -> Result<Self, ModelFileError> {
        let to_u32 = |len: usize| u32::try_from(len).ok().filter(|len| *len < NO_TOKEN);
        let (Some(count), Some(pair_count)) = (to_u32(names.len()), to_u32(pairs.len())) else {
            return Err("its vocabulary is too large".to_owned());
        };
        let tokens: HashMap<&str, u32> = names.iter().copied().zip(0..count).collect();
        let token = |name: &str| {
            let shown = || name.chars().take(NAME_SHOWN_CHARS_MAX).collect::<String>();
            tokens
                .get(name)
                .copied()
                .ok_or_else(|| format!("a merge of its tokenizer has no token: {:?}", shown()))
        };
        let mut merges = Vec::with_capacity(pairs.len());
        let mut merged = String::new();
        for (pair, rank) in pairs.iter().zip(0..pair_count) {
            let (left, right) = pair.split_once(' ').ok_or("a merge of its tokenizer is not a pair")?;
            merged.clear();
            merged.extend([left, right]);
            merges.push((token(left)?, Merge { right: token(right)?, rank, merged: token(&merged)? }));
        }
        // Of duplicate pairs, the last one counts.
        merges.sort_unstable_by_key(|(left, merge)| (*left, merge.right, Reverse(merge.rank)));
        merges.dedup_by_key(|(left, merge)| (*left, merge.right));
        let mut starts = vec![0; names.len() + 1];
        for (left, _) in &merges {
            starts[*left as usize + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut byte_tokens = vec![NO_TOKEN; 256];
        for (name, token) in &tokens {
            let mut characters = name.chars();
            if let (Some(character), None) = (characters.next(), characters.next())
                && let Some(byte) = byte_for_character(character)
            {
                byte_tokens[usize::from(byte)] = *token;
            }
        }
        let merges = merges.into_iter().map(|(_, merge)| merge).collect();
        Ok(Self { byte_tokens, starts, merges, whole_words: HashMap::new() })
    }

    /// Registers tokens that a whole word encodes to, even if no merge produces them.
    pub(super) fn add_whole_words<'a>(&mut self, names: impl Iterator<Item = (u32, &'a &'a str)>) {
        let (mut scratch, mut tokens) = (MergeScratch::default(), Vec::new());
        for (token, name) in names {
            let bytes: Option<Box<[u8]>> = name.chars().map(byte_for_character).collect();
            let Some(word) = bytes else { continue };
            self.encode_word_into(&word, &mut scratch, &mut tokens);
            if tokens != [token] {
                self.whole_words.insert(word, token);
            }
            tokens.clear();
        }
    }

    /// Returns the registered tokens that no merge produces.
    #[cfg(test)]
    pub(super) fn whole_word_tokens(&self) -> impl Iterator<Item = u32> {
        self.whole_words.values().copied()
    }

    /// Appends the tokens of a word to `tokens`.
    pub(super) fn encode_word_into(&self, word: &[u8], scratch: &mut MergeScratch, tokens: &mut Vec<u32>) {
        if let Some(token) = self.whole_words.get(word) {
            return tokens.push(*token);
        }
        let MergeScratch { symbols, candidates } = scratch;
        let byte_tokens =
            word.iter().map(|byte| self.byte_tokens[usize::from(*byte)]).filter(|token| *token != NO_TOKEN);
        symbols.clear();
        symbols.extend(byte_tokens.enumerate().map(|(at, token)| Symbol {
            token,
            previous: at.wrapping_sub(1),
            next: at + 1,
        }));
        let candidate = |symbols: &[Symbol], at| Some(Reverse((self.merge_at(symbols, at)?.rank, at)));
        candidates.extend((0..symbols.len()).filter_map(|at| candidate(symbols, at)));
        while let Some(Reverse((rank, at))) = candidates.pop() {
            // A candidate is stale if one of its two symbols was merged since it was queued.
            let Some(merge) = self.merge_at(symbols, at).filter(|merge| merge.rank == rank) else { continue };
            let Symbol { previous, next: right, .. } = symbols[at];
            let next = symbols[right].next;
            symbols[at] = Symbol { token: merge.merged, previous, next };
            symbols[right].token = NO_TOKEN;
            if let Some(next) = symbols.get_mut(next) {
                next.previous = at;
            }
            candidates.extend([previous, at].into_iter().filter_map(|at| candidate(symbols, at)));
        }
        tokens.extend(symbols.iter().map(|symbol| symbol.token).filter(|token| *token != NO_TOKEN));
    }

    /// Returns the merge of the symbol at `at` with its successor, if there is one.
    fn merge_at(&self, symbols: &[Symbol], at: usize) -> Option<Merge> {
        let left = symbols.get(at)?;
        let right = symbols.get(left.next)?.token;
        let from = *self.starts.get(left.token as usize)? as usize;
        let to = *self.starts.get(left.token as usize + 1)? as usize;
        let merges = &self.merges[from..to];
        merges.binary_search_by_key(&right, |merge| merge.right).ok().map(|at| merges[at])
    }
}
