//! The keys and values that a sequence of tokens has computed, in pages of half-precision numbers that come as
//! it grows and go when it is cut.

use super::network::Shape;

/// Tokens of one page.
pub(crate) const PAGE: usize = 64;

/// What is computed of one sequence.
#[derive(Debug)]
pub(crate) struct Cache {
    length: usize,
    pages: Vec<Box<[u16]>>,
    heads: usize,
    head: usize,
    page_numbers: usize,
}

impl Cache {
    /// An empty cache for a model of this shape.
    pub(crate) fn new(shape: &Shape) -> Self {
        let page_numbers = shape.layers * shape.key_heads * PAGE * shape.head * 2;
        Self { length: 0, pages: Vec::new(), heads: shape.key_heads, head: shape.head, page_numbers }
    }

    /// How many tokens' keys and values are here.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Forgets everything behind the first `length` tokens.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
        self.pages.truncate(self.length.div_ceil(PAGE));
    }

    /// Makes room for so many `tokens`, whose keys and values are written next; gives the first one's position.
    pub(crate) fn extend(&mut self, tokens: usize) -> usize {
        let first = self.length;
        self.length += tokens;
        while self.pages.len() * PAGE < self.length {
            self.pages.push(vec![0; self.page_numbers].into_boxed_slice());
        }
        first
    }

    /// Becomes the first `length` tokens of `other`.
    pub(crate) fn copy_prefix(&mut self, other: &Self, length: usize) {
        let length = length.min(other.length);
        self.truncate(0);
        self.length = length;
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

#[cfg(test)]
mod tests;
