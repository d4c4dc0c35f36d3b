//! The keys and values that a conversation has computed, in pages of half-precision numbers that come as
//! it grows and go when it is cut; and the few conversations that are kept.

use super::network::Shape;

/// Tokens of one page.
pub(crate) const PAGE: usize = 64;

/// The computed prefix of one conversation.
#[derive(Debug)]
pub(crate) struct Cache {
    tokens: Vec<u32>,
    pages: Vec<Box<[u16]>>,
    heads: usize,
    head: usize,
    page_numbers: usize,
}

impl Cache {
    /// An empty cache for a model of this shape.
    pub(crate) fn new(shape: &Shape) -> Self {
        let page_numbers = shape.layers * shape.key_heads * PAGE * shape.head * 2;
        Self { tokens: Vec::new(), pages: Vec::new(), heads: shape.key_heads, head: shape.head, page_numbers }
    }

    /// The tokens whose keys and values are here.
    pub(crate) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Forgets everything behind the first `length` tokens.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.tokens.truncate(length);
        self.pages.truncate(self.tokens.len().div_ceil(PAGE));
    }

    /// Makes room for `tokens`, whose keys and values are written next; gives the first one's position.
    pub(crate) fn extend(&mut self, tokens: &[u32]) -> usize {
        let first = self.tokens.len();
        self.tokens.extend_from_slice(tokens);
        while self.pages.len() * PAGE < self.tokens.len() {
            self.pages.push(vec![0; self.page_numbers].into_boxed_slice());
        }
        first
    }

    fn copy_prefix(&mut self, other: &Self, length: usize) {
        self.truncate(0);
        self.tokens.extend_from_slice(&other.tokens[..length]);
        self.pages.extend_from_slice(&other.pages[..length.div_ceil(PAGE)]);
    }

    /// The keys of page `page`: one row per position.
    pub(crate) fn keys(&self, layer: usize, head: usize, page: usize) -> &[u16] {
        let start = (layer * self.heads + head) * 2 * PAGE * self.head;
        &self.pages[page][start..start + PAGE * self.head]
    }

    /// The values of page `page`.
    pub(crate) fn values(&self, layer: usize, head: usize, page: usize) -> &[u16] {
        let start = ((layer * self.heads + head) * 2 + 1) * PAGE * self.head;
        &self.pages[page][start..start + PAGE * self.head]
    }

    /// Where the key and the value of `position` are written.
    pub(crate) fn slots(&mut self, layer: usize, head: usize, position: usize) -> (&mut [u16], &mut [u16]) {
        let start = (layer * self.heads + head) * 2 * PAGE * self.head;
        let both = &mut self.pages[position / PAGE][start..start + 2 * PAGE * self.head];
        let (keys, values) = both.split_at_mut(PAGE * self.head);
        let from = position % PAGE * self.head;
        (&mut keys[from..from + self.head], &mut values[from..from + self.head])
    }
}

/// The conversations that are kept, each with its prefix; the one unused for longest makes room.
#[derive(Debug)]
pub(crate) struct Shelf {
    caches: Vec<(Cache, u64)>,
    clock: u64,
}

impl Shelf {
    /// A shelf for `slots` conversations.
    pub(crate) fn new(shape: &Shape, slots: usize) -> Self {
        let slots = slots.clamp(1, 64);
        Self { caches: (0..slots).map(|_| (Cache::new(shape), 0)).collect(), clock: 0 }
    }

    /// The slot of a cache that holds what `prompt` shares with a kept conversation. The prompt's last
    /// token is never taken as shared: its output is what the answer begins with.
    pub(crate) fn take(&mut self, prompt: &[u32]) -> usize {
        self.clock += 1;
        let usable = &prompt[..prompt.len().saturating_sub(1)];
        let shared = |at: &usize| shared_prefix(self.caches[*at].0.tokens(), usable);
        let nearest = (0..self.caches.len()).max_by_key(shared).unwrap_or(0);
        let length = shared(&nearest);
        let oldest = (0..self.caches.len()).min_by_key(|at| self.caches[*at].1).unwrap_or(0);
        // A conversation that would lose most of itself is another one that begins alike: it is copied.
        let slot = match length * 2 >= self.caches[nearest].0.tokens().len() && length > 0 {
            true => nearest,
            false => oldest,
        };
        if slot != nearest {
            let (from, into) = two(&mut self.caches, nearest, slot);
            into.0.copy_prefix(&from.0, length);
        }
        self.caches[slot].0.truncate(length);
        self.caches[slot].1 = self.clock;
        slot
    }

    /// The cache at `slot`.
    pub(crate) fn cache(&mut self, slot: usize) -> &mut Cache {
        &mut self.caches[slot].0
    }
}

fn two<T>(list: &mut [T], first: usize, second: usize) -> (&mut T, &mut T) {
    if first < second {
        let (left, right) = list.split_at_mut(second);
        return (&mut left[first], &mut right[0]);
    }
    let (left, right) = list.split_at_mut(first);
    (&mut right[0], &mut left[second])
}

fn shared_prefix(left: &[u32], right: &[u32]) -> usize {
    left.iter().zip(right).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests;
