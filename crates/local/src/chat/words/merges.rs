//! The merges of a vocabulary in twelve bytes each, and words put together by them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::byte_of;
use crate::engine::gguf::Wrong;

/// No token.
const NONE: u32 = u32::MAX;

/// The most of a name that is told.
const TOLD_CHARS_MAX: usize = 40;

/// Which two tokens become which one.
#[derive(Debug)]
pub(super) struct Merges {
    /// The token of each byte.
    letters: Vec<u32>,
    /// Where the merges of each token with others behind it begin, and where the last ones end.
    starts: Vec<u32>,
    /// By the left token, then by the right one.
    merges: Vec<Merge>,
    /// Words that are tokens although no merge leads to them, where these count.
    whole: HashMap<Box<[u8]>, u32>,
}

#[derive(Debug, Clone, Copy)]
struct Merge {
    right: u32,
    /// The smallest comes first.
    rank: u32,
    made: u32,
}

/// What is needed on the way from a word to its tokens, and used again for the next one.
#[derive(Debug, Default)]
pub(super) struct Workbench {
    pieces: Vec<Piece>,
    /// Pieces that can become one with the next, by rank and place.
    waiting: BinaryHeap<Reverse<(u32, usize)>>,
}

/// A piece of a word. Pieces that became part of another stay where they are, without a token.
#[derive(Debug, Clone, Copy)]
struct Piece {
    token: u32,
    before: usize,
    next: usize,
}

impl Merges {
    /// Reads pairs of names with a blank between them.
    pub(super) fn read(names: &[&str], pairs: &[&str]) -> Result<Self, Wrong> {
        let whole = |len: usize| u32::try_from(len).ok().filter(|len| *len < NONE);
        let (Some(count), Some(pair_count)) = (whole(names.len()), whole(pairs.len())) else {
            return Err("its vocabulary is too large".to_owned());
        };
        let tokens: HashMap<&str, u32> = names.iter().copied().zip(0..count).collect();
        let token = |name: &str| {
            let told = || name.chars().take(TOLD_CHARS_MAX).collect::<String>();
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
            merges.push((token(left)?, Merge { right: token(right)?, rank, made: token(&made)? }));
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
        let mut letters = vec![NONE; 256];
        for (name, token) in &tokens {
            let mut characters = name.chars();
            if let (Some(character), None) = (characters.next(), characters.next())
                && let Some(byte) = byte_of(character)
            {
                letters[usize::from(byte)] = *token;
            }
        }
        let merges = merges.into_iter().map(|(_, merge)| merge).collect();
        Ok(Self { letters, starts, merges, whole: HashMap::new() })
    }

    /// From now on a word that is one of these tokens is that token, also where no merge leads to it.
    pub(super) fn keep_whole<'a>(&mut self, names: impl Iterator<Item = (u32, &'a &'a str)>) {
        let (mut bench, mut tokens) = (Workbench::default(), Vec::new());
        for (token, name) in names {
            let bytes: Option<Box<[u8]>> = name.chars().map(byte_of).collect();
            let Some(word) = bytes else { continue };
            self.push_tokens(&word, &mut bench, &mut tokens);
            if tokens != [token] {
                self.whole.insert(word, token);
            }
            tokens.clear();
        }
    }

    /// The tokens that no merge leads to.
    #[cfg(test)]
    pub(super) fn kept_whole(&self) -> impl Iterator<Item = u32> {
        self.whole.values().copied()
    }

    /// Adds the tokens of a word.
    pub(super) fn push_tokens(&self, word: &[u8], bench: &mut Workbench, tokens: &mut Vec<u32>) {
        if let Some(token) = self.whole.get(word) {
            return tokens.push(*token);
        }
        let Workbench { pieces, waiting } = bench;
        let letters = word.iter().map(|byte| self.letters[usize::from(*byte)]).filter(|token| *token != NONE);
        pieces.clear();
        pieces.extend(letters.enumerate().map(|(at, token)| Piece {
            token,
            before: at.wrapping_sub(1),
            next: at + 1,
        }));
        let place = |pieces: &[Piece], at| Some(Reverse((self.behind(pieces, at)?.rank, at)));
        waiting.extend((0..pieces.len()).filter_map(|at| place(pieces, at)));
        while let Some(Reverse((rank, at))) = waiting.pop() {
            // Since it was found, one of the two may have become part of another.
            let Some(merge) = self.behind(pieces, at).filter(|merge| merge.rank == rank) else { continue };
            let Piece { before, next: right, .. } = pieces[at];
            let next = pieces[right].next;
            pieces[at] = Piece { token: merge.made, before, next };
            pieces[right].token = NONE;
            if let Some(next) = pieces.get_mut(next) {
                next.before = at;
            }
            waiting.extend([before, at].into_iter().filter_map(|at| place(pieces, at)));
        }
        tokens.extend(pieces.iter().map(|piece| piece.token).filter(|token| *token != NONE));
    }

    /// What the piece at this place and the one behind it become, if anything.
    fn behind(&self, pieces: &[Piece], at: usize) -> Option<Merge> {
        let left = pieces.get(at)?;
        let right = pieces.get(left.next)?.token;
        let from = *self.starts.get(left.token as usize)? as usize;
        let to = *self.starts.get(left.token as usize + 1)? as usize;
        let merges = &self.merges[from..to];
        merges.binary_search_by_key(&right, |merge| merge.right).ok().map(|at| merges[at])
    }
}
