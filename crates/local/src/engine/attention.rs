//! Attention of one token to the tokens before it, over the pages of a cache. Heads that share keys are
//! computed together, so that each key is read once.

use super::cache::{Cache, PAGE};
use super::network::Shape;
use super::numbers::{add_scaled, dot, exponential, widen_into};

/// The largest size of a head.
pub(crate) const HEAD_MAX: usize = 256;

/// One token's queries against the keys of one head.
pub(crate) struct Attention<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) shape: &'a Shape,
    pub(crate) layer: usize,
    pub(crate) key_head: usize,
    /// The token sees the positions up to and with its own.
    pub(crate) position: usize,
    /// The queries of all heads that share these keys.
    pub(crate) queries: &'a [f32],
    pub(crate) out: &'a mut [f32],
}

impl Attention<'_> {
    /// Computes `out`.
    pub(crate) fn run(self) {
        pulp::Arch::new().dispatch(self);
    }
}

impl pulp::NullaryFnOnce for Attention<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let head = self.shape.head;
        let seen = self.position + 1;
        let mut scores = vec![0f32; self.queries.len() / head * seen];
        let mut row = [0f32; HEAD_MAX];
        let row = &mut row[..head];
        let scale = 1.0 / (head as f32).sqrt();
        for page in 0..seen.div_ceil(PAGE) {
            let keys = self.cache.keys(self.layer, self.key_head, page).chunks_exact(head);
            for (position, key) in (page * PAGE..seen).zip(keys) {
                widen_into(key, row);
                for (query, scores) in self.queries.chunks_exact(head).zip(scores.chunks_exact_mut(seen)) {
                    scores[position] = dot(query, row) * scale;
                }
            }
        }
        scores.chunks_exact_mut(seen).for_each(soften);
        self.out.fill(0.0);
        for page in 0..seen.div_ceil(PAGE) {
            let values = self.cache.values(self.layer, self.key_head, page).chunks_exact(head);
            for (position, value) in (page * PAGE..seen).zip(values) {
                widen_into(value, row);
                for (out, scores) in self.out.chunks_exact_mut(head).zip(scores.chunks_exact(seen)) {
                    add_scaled(out, row, scores[position]);
                }
            }
        }
    }
}

/// Turns scores into shares that sum to one.
#[inline(always)]
fn soften(scores: &mut [f32]) {
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
