//! The merges of a vocabulary, twelve bytes each and a place in a table.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use crate::engine::gguf::Wrong;

/// The characters that stand for bytes are all below this one.
const LETTERS: usize = 0x144;
/// No token.
const NONE: u32 = u32::MAX;

/// Which two tokens become which one.
#[derive(Debug)]
pub(super) struct Merges {
    /// The token of each character that stands for a byte.
    letters: Vec<u32>,
    /// The earliest comes first.
    merges: Vec<Merge>,
    /// Where a pair is among the merges, beginning at the place of its hash: one that is taken leads to the next. Never
    /// full.
    places: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Merge {
    left: u32,
    right: u32,
    made: u32,
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
        let (Some(count), Some(_)) = (whole(names.len()), whole(pairs.len())) else {
            return Err("its vocabulary is too large".to_owned());
        };
        let tokens: HashMap<&str, u32> = names.iter().copied().zip(0..count).collect();
        let mut letters = vec![NONE; LETTERS];
        for (letter, token) in letters.iter_mut().zip('\0'..) {
            let mut name = [0; 4];
            if let Some(known) = tokens.get(&*token.encode_utf8(&mut name)) {
                *letter = *known;
            }
        }
        let token = |name: &str| {
            tokens
                .get(name)
                .copied()
                .ok_or_else(|| format!("a merge of its tokenizer has no token: {name:?}"))
        };
        let mut merges = Vec::with_capacity(pairs.len());
        let mut made = String::new();
        for pair in pairs {
            let (left, right) = pair.split_once(' ').ok_or("a merge of its tokenizer is no pair")?;
            made.clear();
            made.extend([left, right]);
            merges.push(Merge { left: token(left)?, right: token(right)?, made: token(&made)? });
        }
        let places = vec![NONE; (merges.len() * 3 / 2 + 1).next_power_of_two()];
        let mut read = Self { letters, merges, places };
        for (rank, merge) in (0..).zip(read.merges.clone()) {
            let place = read.place(merge.left, merge.right);
            // A pair that is there twice counts where it is last.
            read.places[place] = rank;
        }
        Ok(read)
    }

    /// Adds the tokens of a word that is written with a character for each byte.
    pub(super) fn push_tokens(&self, word: &str, tokens: &mut Vec<u32>) {
        let letters = word.chars().filter_map(|letter| self.letters.get(letter as usize).copied());
        let letters = letters.filter(|token| *token != NONE);
        let mut pieces: Vec<Piece> = letters
            .enumerate()
            .map(|(at, token)| Piece { token, before: at.wrapping_sub(1), next: at + 1 })
            .collect();
        let mut waiting: BinaryHeap<_> =
            (0..pieces.len()).filter_map(|at| self.rank(&pieces, at)).map(Reverse).collect();
        while let Some(Reverse((rank, at))) = waiting.pop() {
            // Since it was found, one of the two may have become part of another.
            if self.rank(&pieces, at) != Some((rank, at)) {
                continue;
            }
            let Piece { before, next: right, .. } = pieces[at];
            let next = pieces[right].next;
            pieces[at] = Piece { token: self.merges[rank as usize].made, before, next };
            pieces[right].token = NONE;
            if let Some(next) = pieces.get_mut(next) {
                next.before = at;
            }
            waiting.extend([before, at].into_iter().filter_map(|at| self.rank(&pieces, at)).map(Reverse));
        }
        tokens.extend(pieces.iter().map(|piece| piece.token).filter(|token| *token != NONE));
    }

    /// How early the piece at this place and the one behind it become one, if ever; and the place.
    fn rank(&self, pieces: &[Piece], at: usize) -> Option<(u32, usize)> {
        let left = pieces.get(at)?;
        let right = pieces.get(left.next)?;
        let rank = self.places[self.place(left.token, right.token)];
        (rank != NONE).then_some((rank, at))
    }

    /// The place of a pair in the table, or the free one where it would be.
    fn place(&self, left: u32, right: u32) -> usize {
        let mask = self.places.len() - 1;
        let pair = (u64::from(left) << 32) | u64::from(right);
        let mut place = usize::try_from(pair.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).unwrap_or(0) & mask;
        loop {
            match self.merges.get(self.places[place] as usize) {
                Some(merge) if (merge.left, merge.right) != (left, right) => place = (place + 1) & mask,
                _ => return place,
            }
        }
    }
}
