//! The merges of a vocabulary in twelve bytes each, and words put together by them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::byte_for_character;
use crate::engine::gguf::ModelFileError;

/// No token.
const NO_TOKEN: u32 = u32::MAX;

/// The most of a name that is told.
const NAME_SHOWN_CHARS_MAX: usize = 40;

/// Which two tokens become which one.
#[derive(Debug)]
pub(super) struct MergeTable {
    /// The token of each byte.
    byte_tokens: Vec<u32>,
    /// Where the merges of each token with others behind it begin, and where the last ones end.
    starts: Vec<u32>,
    /// By the left token, then by the right one.
    merges: Vec<Merge>,
    /// Words that are tokens although no merge leads to them, where these count.
    whole_words: HashMap<Box<[u8]>, u32>,
}

#[derive(Debug, Clone, Copy)]
struct Merge {
    right: u32,
    /// The smallest comes first.
    rank: u32,
    merged: u32,
}

/// What is needed on the way from a word to its tokens, and used again for the next one.
#[derive(Debug, Default)]
pub(super) struct MergeScratch {
    symbols: Vec<Symbol>,
    /// Pieces that can become one with the next, by rank and place.
    candidates: BinaryHeap<Reverse<(u32, usize)>>,
}

/// A piece of a word. Pieces that became part of another stay where they are, without a token.
#[derive(Debug, Clone, Copy)]
struct Symbol {
    token: u32,
    previous: usize,
    next: usize,
}

impl MergeTable {
    /// Reads pairs of names with a blank between them.
    pub(super) fn read(names: &[&str], pairs: &[&str]) -> Result<Self, ModelFileError> {
        let whole = |len: usize| u32::try_from(len).ok().filter(|len| *len < NO_TOKEN);
        let (Some(count), Some(pair_count)) = (whole(names.len()), whole(pairs.len())) else {
            return Err("its vocabulary is too large".to_owned());
        };
        let tokens: HashMap<&str, u32> = names.iter().copied().zip(0..count).collect();
        let token = |name: &str| {
            let told = || name.chars().take(NAME_SHOWN_CHARS_MAX).collect::<String>();
            tokens
                .get(name)
                .copied()
                .ok_or_else(|| format!("a merge of its tokenizer has no token: {:?}", told()))
        };
        let mut merges = Vec::with_capacity(pairs.len());
        let mut made = String::new();
        for (pair, rank) in pairs.iter().zip(0..pair_count) {
            let (left, right) = pair.split_once(' ').ok_or("a merge of its tokenizer is no pair")?;
            made.clear();
            made.extend([left, right]);
            merges.push((token(left)?, Merge { right: token(right)?, rank, merged: token(&made)? }));
        }
        // A pair that is there twice counts where it is last.
        merges.sort_unstable_by_key(|(left, merge)| (*left, merge.right, Reverse(merge.rank)));
        merges.dedup_by_key(|(left, merge)| (*left, merge.right));
        let mut starts = vec![0; names.len() + 1];
        for (left, _) in &merges {
            starts[*left as usize + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut letters = vec![NO_TOKEN; 256];
        for (name, token) in &tokens {
            let mut characters = name.chars();
            if let (Some(character), None) = (characters.next(), characters.next())
                && let Some(byte) = byte_for_character(character)
            {
                letters[usize::from(byte)] = *token;
            }
        }
        let merges = merges.into_iter().map(|(_, merge)| merge).collect();
        Ok(Self { byte_tokens: letters, starts, merges, whole_words: HashMap::new() })
    }

    /// From now on a word that is one of these tokens is that token, also where no merge leads to it.
    pub(super) fn add_whole_words<'a>(&mut self, names: impl Iterator<Item = (u32, &'a &'a str)>) {
        let (mut bench, mut tokens) = (MergeScratch::default(), Vec::new());
        for (token, name) in names {
            let bytes: Option<Box<[u8]>> = name.chars().map(byte_for_character).collect();
            let Some(word) = bytes else { continue };
            self.encode_word_into(&word, &mut bench, &mut tokens);
            if tokens != [token] {
                self.whole_words.insert(word, token);
            }
            tokens.clear();
        }
    }

    /// The tokens that no merge leads to.
    #[cfg(test)]
    pub(super) fn whole_word_tokens(&self) -> impl Iterator<Item = u32> {
        self.whole_words.values().copied()
    }

    /// Adds the tokens of a word.
    pub(super) fn encode_word_into(&self, word: &[u8], bench: &mut MergeScratch, tokens: &mut Vec<u32>) {
        if let Some(token) = self.whole_words.get(word) {
            return tokens.push(*token);
        }
        let MergeScratch { symbols: pieces, candidates: waiting } = bench;
        let letters =
            word.iter().map(|byte| self.byte_tokens[usize::from(*byte)]).filter(|token| *token != NO_TOKEN);
        pieces.clear();
        pieces.extend(letters.enumerate().map(|(at, token)| Symbol {
            token,
            previous: at.wrapping_sub(1),
            next: at + 1,
        }));
        let place = |pieces: &[Symbol], at| Some(Reverse((self.merge_at(pieces, at)?.rank, at)));
        waiting.extend((0..pieces.len()).filter_map(|at| place(pieces, at)));
        while let Some(Reverse((rank, at))) = waiting.pop() {
            // Since it was found, one of the two may have become part of another.
            let Some(merge) = self.merge_at(pieces, at).filter(|merge| merge.rank == rank) else { continue };
            let Symbol { previous: before, next: right, .. } = pieces[at];
            let next = pieces[right].next;
            pieces[at] = Symbol { token: merge.merged, previous: before, next };
            pieces[right].token = NO_TOKEN;
            if let Some(next) = pieces.get_mut(next) {
                next.previous = at;
            }
            waiting.extend([before, at].into_iter().filter_map(|at| place(pieces, at)));
        }
        tokens.extend(pieces.iter().map(|piece| piece.token).filter(|token| *token != NO_TOKEN));
    }

    /// What the piece at this place and the one behind it become, if anything.
    fn merge_at(&self, pieces: &[Symbol], at: usize) -> Option<Merge> {
        let left = pieces.get(at)?;
        let right = pieces.get(left.next)?.token;
        let from = *self.starts.get(left.token as usize)? as usize;
        let to = *self.starts.get(left.token as usize + 1)? as usize;
        let merges = &self.merges[from..to];
        merges.binary_search_by_key(&right, |merge| merge.right).ok().map(|at| merges[at])
    }
}
