//! KV cache of one token sequence, in pages of half-precision numbers that are allocated as the sequence grows and
//! freed when it is truncated.

use super::network::Shape;

/// Tokens per page.
pub(crate) const PAGE_TOKENS: usize = 64;

/// Keys and values of one sequence, for all layers.
#[derive(Debug)]
pub(crate) struct KvCache {
    length: usize,
    pages: Vec<Box<[u16]>>,
    kv_heads: usize,
    head_size: usize,
    page_numbers: usize,
}

impl KvCache {
    /// Creates an empty cache for a model of this shape.
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

    /// Number of cached tokens.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Drops all but the first `length` tokens.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
        self.pages.truncate(self.length.div_ceil(PAGE_TOKENS));
    }

    /// Adds zeroed slots for `tokens` tokens and returns the first one's position; the caller writes them next.
    pub(crate) fn extend(&mut self, tokens: usize) -> usize {
        let first = self.length;
        self.length += tokens;
        while self.pages.len() * PAGE_TOKENS < self.length {
            self.pages.push(vec![0; self.page_numbers].into_boxed_slice());
        }
        first
    }

    /// Replaces the content with a copy of the first `length` tokens of `other`.
    pub(crate) fn copy_prefix(&mut self, other: &Self, length: usize) {
        let length = length.min(other.length);
        self.truncate(0);
        self.length = length;
        self.pages.extend_from_slice(&other.pages[..length.div_ceil(PAGE_TOKENS)]);
    }

    /// Returns the keys of page `page`: one row per position.
    pub(crate) fn keys(&self, layer: usize, head: usize, page: usize) -> &[u16] {
        let start = (layer * self.kv_heads + head) * 2 * PAGE_TOKENS * self.head_size;
        &self.pages[page][start..start + PAGE_TOKENS * self.head_size]
    }

    /// Returns the values of page `page`.
    pub(crate) fn values(&self, layer: usize, head: usize, page: usize) -> &[u16] {
        let start = ((layer * self.kv_heads + head) * 2 + 1) * PAGE_TOKENS * self.head_size;
        &self.pages[page][start..start + PAGE_TOKENS * self.head_size]
    }

    /// Returns the slots of the key and the value of `position`.
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
