//! Causal attention over the pages of a KV cache. Query heads that share keys (grouped-query attention) are computed
//! together, so that each key is read once.

use super::kv_cache::{KvCache, PAGE_TOKENS};
use super::math::{dot, exponential, f16_to_f32_into};
use super::network::Shape;

/// Largest supported head size.
pub(crate) const HEAD_SIZE_MAX: usize = 256;

/// Fewest tokens per chunk for which widening the layer's whole cache to f32 pays off.
const WIDE_TOKENS_MIN: usize = 4;
/// Longest sequence for which widening pays off: a larger f32 copy does not stay in the processor's cache.
const WIDE_POSITIONS_MAX: usize = 8_192;

/// One layer's keys and values converted to f32, for chunks in which many tokens read them.
#[derive(Debug, Default)]
pub(crate) struct WidenedKeyValues {
    numbers: Vec<f32>,
    positions: usize,
}

impl WidenedKeyValues {
    /// Converts the layer's cache for `tokens` tokens that attend to `positions`; stays empty when that does not pay
    /// off.
    pub(crate) fn prepare(
        &mut self,
        cache: &KvCache,
        shape: &Shape,
        layer: usize,
        tokens: usize,
        positions: usize,
    ) {
        self.positions = 0;
        if tokens < WIDE_TOKENS_MIN || positions > WIDE_POSITIONS_MAX {
            return;
        }
        self.positions = positions.next_multiple_of(PAGE_TOKENS);
        let page_numbers = PAGE_TOKENS * shape.head_size;
        self.numbers.resize(self.positions * shape.head_size * shape.kv_heads * 2, 0.0);
        let pages = self.positions / PAGE_TOKENS;
        for (at, numbers) in self.numbers.chunks_exact_mut(page_numbers).enumerate() {
            let (head, page) = (at / (2 * pages), at % (2 * pages));
            let halves = match page < pages {
                true => cache.keys(layer, head, page),
                false => cache.values(layer, head, page - pages),
            };
            pulp::Arch::new().dispatch(Widen { halves, numbers });
        }
    }

    /// Returns the f32 keys or values of `page`; `None` when `prepare` left the copy empty.
    fn page(&self, shape: &Shape, head: usize, kind: KeyOrValue, page: usize) -> Option<&[f32]> {
        let at = (head * 2 + kind as usize) * self.positions + page * PAGE_TOKENS;
        (self.positions > 0)
            .then(|| &self.numbers[at * shape.head_size..(at + PAGE_TOKENS) * shape.head_size])
    }
}

#[derive(Clone, Copy)]
enum KeyOrValue {
    Keys = 0,
    Values = 1,
}

struct Widen<'a> {
    halves: &'a [u16],
    numbers: &'a mut [f32],
}

impl pulp::NullaryFnOnce for Widen<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        f16_to_f32_into(self.halves, self.numbers);
    }
}

/// Attention of one token for one key head.
pub(crate) struct Attention<'a> {
    pub(crate) cache: &'a KvCache,
    pub(crate) widened: &'a WidenedKeyValues,
    pub(crate) shape: &'a Shape,
    pub(crate) layer: usize,
    pub(crate) key_head: usize,
    /// The token's position; it attends to all positions up to and including it.
    pub(crate) position: usize,
    /// Queries of all heads that share these keys.
    pub(crate) queries: &'a [f32],
    pub(crate) out: &'a mut [f32],
}

impl Attention<'_> {
    /// Computes `out` with the widest vector instructions available.
    pub(crate) fn run(self) {
        pulp::Arch::new().dispatch(self);
    }

    #[inline(always)]
    fn page<'b>(&'b self, kind: KeyOrValue, page: usize, scratch: &'b mut [f32]) -> &'b [f32] {
        if let Some(numbers) = self.widened.page(self.shape, self.key_head, kind, page) {
            return numbers;
        }
        let halves = match kind {
            KeyOrValue::Keys => self.cache.keys(self.layer, self.key_head, page),
            KeyOrValue::Values => self.cache.values(self.layer, self.key_head, page),
        };
        f16_to_f32_into(halves, scratch);
        scratch
    }
}

impl pulp::NullaryFnOnce for Attention<'_> {
    type Output = ();

    #[inline(always)]
    fn call(mut self) {
        let head = self.shape.head_size;
        let seen = self.position + 1;
        let mut scores = vec![0f32; self.queries.len() / head * seen];
        let mut scratch = vec![0f32; PAGE_TOKENS * head];
        let scale = 1.0 / (head as f32).sqrt();
        for page in 0..seen.div_ceil(PAGE_TOKENS) {
            let range = page * PAGE_TOKENS..seen.min((page + 1) * PAGE_TOKENS);
            let keys = self.page(KeyOrValue::Keys, page, &mut scratch);
            for (query, scores) in self.queries.chunks_exact(head).zip(scores.chunks_exact_mut(seen)) {
                for (score, key) in scores[range.clone()].iter_mut().zip(keys.chunks_exact(head)) {
                    *score = dot(query, key) * scale;
                }
            }
        }
        scores.chunks_exact_mut(seen).for_each(softmax);
        let out = std::mem::take(&mut self.out);
        out.fill(0.0);
        for page in 0..seen.div_ceil(PAGE_TOKENS) {
            let range = page * PAGE_TOKENS..seen.min((page + 1) * PAGE_TOKENS);
            let values = self.page(KeyOrValue::Values, page, &mut scratch);
            for (out, scores) in out.chunks_exact_mut(head).zip(scores.chunks_exact(seen)) {
                add_weighted_rows(out, values, &scores[range.clone()]);
            }
        }
    }
}

/// Adds each row of `values` times its weight to `out`; four rows at a time, so that `out` is loaded and stored less.
#[inline(always)]
fn add_weighted_rows(out: &mut [f32], values: &[f32], weights: &[f32]) {
    let head = out.len();
    let (fours, remainder) = weights.as_chunks::<4>();
    for (weights, rows) in fours.iter().zip(values.chunks_exact(4 * head)) {
        let (first, others) = rows.split_at(head);
        let (second, others) = others.split_at(head);
        let (third, fourth) = others.split_at(head);
        let rows = first.iter().zip(second).zip(third.iter().zip(fourth));
        for (sum, ((a, b), (c, d))) in out.iter_mut().zip(rows) {
            *sum += (weights[0] * a + weights[1] * b) + (weights[2] * c + weights[3] * d);
        }
    }
    for (weight, row) in remainder.iter().zip(values[fours.len() * 4 * head..].chunks_exact(head)) {
        for (sum, value) in out.iter_mut().zip(row) {
            *sum += weight * value;
        }
    }
}

/// Turns attention scores into weights that sum to one.
#[inline(always)]
fn softmax(scores: &mut [f32]) {
    let largest = scores.iter().fold(f32::NEG_INFINITY, |largest, score| largest.max(*score));
    for score in scores.iter_mut() {
        *score = exponential(*score - largest);
    }
    let sum: f32 = scores.iter().sum();
    let factor = 1.0 / sum;
    for score in scores {
        *score *= factor;
    }
}
