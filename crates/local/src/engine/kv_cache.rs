//! The keys and values that a sequence of tokens has computed, in pages of half-precision numbers that come as
//! it grows and go when it is cut.

use super::network::Shape;

/// Tokens of one page.
pub(crate) const PAGE_TOKENS: usize = 64;

/// What is computed of one sequence.
#[derive(Debug)]
pub(crate) struct KvCache {
    length: usize,
    pages: Vec<Box<[u16]>>,
    kv_heads: usize,
    head_size: usize,
    page_numbers: usize,
}

impl KvCache {
    /// An empty cache for a model of this shape.
    pub(crate) fn new(shape: &Shape) -> Self {
        let page_numbers = shape.layers * shape.kv_heads * PAGE_TOKENS * shape.head_size * 2;
        Self {
            length: 0,
            pages: Vec::new(),
            kv_heads: shape.kv_heads,
            head_size: shape.head_size,
            page_numbers,
        }
    }

    /// How many tokens' keys and values are here.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Forgets everything behind the first `length` tokens.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
        self.pages.truncate(self.length.div_ceil(PAGE_TOKENS));
    }

    /// Makes room for so many `tokens`, whose keys and values are written next; gives the first one's position.
    pub(crate) fn extend(&mut self, tokens: usize) -> usize {
        let first = self.length;
        self.length += tokens;
        while self.pages.len() * PAGE_TOKENS < self.length {
            self.pages.push(vec![0; self.page_numbers].into_boxed_slice());
        }
        first
    }

    /// Becomes the first `length` tokens of `other`.
    pub(crate) fn copy_prefix(&mut self, other: &Self, length: usize) {
        let length = length.min(other.length);
        self.truncate(0);
        self.length = length;
        self.pages.extend_from_slice(&other.pages[..length.div_ceil(PAGE_TOKENS)]);
    }

    /// The keys of page `page`: one row per position.
    pub(crate) fn keys(&self, layer: usize, head: usize, page: usize) -> &[u16] {
        let start = (layer * self.kv_heads + head) * 2 * PAGE_TOKENS * self.head_size;
        &self.pages[page][start..start + PAGE_TOKENS * self.head_size]
    }

    /// The values of page `page`.
    pub(crate) fn values(&self, layer: usize, head: usize, page: usize) -> &[u16] {
        let start = ((layer * self.kv_heads + head) * 2 + 1) * PAGE_TOKENS * self.head_size;
        &self.pages[page][start..start + PAGE_TOKENS * self.head_size]
    }

    /// Where the key and the value of `position` are written.
    pub(crate) fn slots_mut(
        &mut self,
        layer: usize,
        head: usize,
        position: usize,
    ) -> (&mut [u16], &mut [u16]) {
        let start = (layer * self.kv_heads + head) * 2 * PAGE_TOKENS * self.head_size;
        let both = &mut self.pages[position / PAGE_TOKENS][start..start + 2 * PAGE_TOKENS * self.head_size];
        let (keys, values) = both.split_at_mut(PAGE_TOKENS * self.head_size);
        let from = position % PAGE_TOKENS * self.head_size;
        (&mut keys[from..from + self.head_size], &mut values[from..from + self.head_size])
    }
}

#[cfg(test)]
mod tests;
