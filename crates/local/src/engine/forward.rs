//! The forward pass: tokens in, the last one's scores out; their keys and values stay in the cache.

use super::attention::{Attention, Widened};
use super::cache::Cache;
use super::matrix::Inputs;
use super::network::{Layer, Linear, Network, Shape, Turning};
use super::numbers::{dot, exponential, narrow};

/// Tokens computed at once: enough to reuse each weight, few enough that a cancel is soon heard.
pub(crate) const CHUNK: usize = 64;

/// Room for the numbers of a pass, kept between passes.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    stream: Vec<f32>,
    normed: Vec<f32>,
    queries: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    mixed: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    inputs: Inputs,
    widened: Widened,
}

impl Network {
    /// Reads at most [`CHUNK`] `tokens`, all of the vocabulary, behind what `cache` holds.
    pub(crate) fn read_tokens(&self, cache: &mut Cache, tokens: &[u32], scratch: &mut Scratch) {
        let hidden = self.shape.hidden;
        let first = cache.extend(tokens.len());
        scratch.fit(&self.shape, tokens.len());
        for (token, row) in tokens.iter().zip(scratch.stream.chunks_exact_mut(hidden)) {
            self.embedding.row(*token as usize, row);
        }
        for (at, layer) in self.layers.iter().enumerate() {
            self.attend(at, layer, cache, first, scratch);
            self.feed(layer, scratch);
        }
    }

    /// The score of every token to come next, after the last one read.
    pub(crate) fn scores(&self, scratch: &mut Scratch, out: &mut Vec<f32>) {
        let hidden = self.shape.hidden;
        let last = scratch.stream.len() - hidden;
        scratch.normed.resize(hidden, 0.0);
        normalise(&scratch.stream[last..], &self.norm, self.shape.epsilon, &mut scratch.normed);
        scratch.inputs.fill(&scratch.normed, hidden);
        out.resize(self.shape.vocabulary, 0.0);
        self.head.as_ref().unwrap_or(&self.embedding).multiply(&scratch.inputs, out, &self.crew);
    }

    fn attend(&self, at: usize, layer: &Layer, cache: &mut Cache, first: usize, scratch: &mut Scratch) {
        let shape = &self.shape;
        normalise(&scratch.stream, &layer.attention_norm, shape.epsilon, &mut scratch.normed);
        scratch.inputs.fill(&scratch.normed, shape.hidden);
        self.apply(&layer.query, &scratch.inputs, &mut scratch.queries);
        self.apply(&layer.key, &scratch.inputs, &mut scratch.keys);
        self.apply(&layer.value, &scratch.inputs, &mut scratch.values);
        turn(shape, &mut scratch.queries, shape.heads, first);
        turn(shape, &mut scratch.keys, shape.key_heads, first);
        keep(shape, cache, at, first, scratch);
        let cache = &*cache;
        let tokens = scratch.stream.len() / shape.hidden;
        scratch.widened.prepare(cache, shape, at, tokens, first + tokens);
        let share = shape.heads / shape.key_heads * shape.head;
        let (queries, widened) = (&scratch.queries, &scratch.widened);
        self.crew.each(&mut scratch.mixed, share, |item, out| {
            let (token, key_head) = (item / shape.key_heads, item % shape.key_heads);
            let queries = &queries[item * share..(item + 1) * share];
            Attention { cache, widened, shape, layer: at, key_head, position: first + token, queries, out }
                .run();
        });
        scratch.inputs.fill(&scratch.mixed, shape.heads * shape.head);
        self.apply(&layer.output, &scratch.inputs, &mut scratch.normed);
        add(&mut scratch.stream, &scratch.normed);
    }

    fn feed(&self, layer: &Layer, scratch: &mut Scratch) {
        let shape = &self.shape;
        normalise(&scratch.stream, &layer.inner_norm, shape.epsilon, &mut scratch.normed);
        scratch.inputs.fill(&scratch.normed, shape.hidden);
        layer.gate.multiply(&scratch.inputs, &mut scratch.gate, &self.crew);
        layer.up.multiply(&scratch.inputs, &mut scratch.up, &self.crew);
        pulp::Arch::new().dispatch(Gated { gate: &mut scratch.gate, up: &scratch.up });
        scratch.inputs.fill(&scratch.gate, shape.inner);
        layer.down.multiply(&scratch.inputs, &mut scratch.normed, &self.crew);
        add(&mut scratch.stream, &scratch.normed);
    }

    fn apply(&self, linear: &Linear, inputs: &Inputs, out: &mut [f32]) {
        linear.matrix.multiply(inputs, out, &self.crew);
        if let Some(bias) = &linear.bias {
            out.chunks_exact_mut(bias.len()).for_each(|row| add(row, bias));
        }
    }
}

impl Scratch {
    fn fit(&mut self, shape: &Shape, tokens: usize) {
        let queries = shape.heads * shape.head;
        let keys = shape.key_heads * shape.head;
        for (numbers, width) in [
            (&mut self.stream, shape.hidden),
            (&mut self.normed, shape.hidden),
            (&mut self.queries, queries),
            (&mut self.keys, keys),
            (&mut self.values, keys),
            (&mut self.mixed, queries),
            (&mut self.gate, shape.inner),
            (&mut self.up, shape.inner),
        ] {
            numbers.resize(tokens * width, 0.0);
        }
    }
}

fn keep(shape: &Shape, cache: &mut Cache, layer: usize, first: usize, scratch: &Scratch) {
    let heads = shape.key_heads;
    let rows = scratch.keys.chunks_exact(shape.head).zip(scratch.values.chunks_exact(shape.head));
    for (item, (key, value)) in rows.enumerate() {
        let (key_slot, value_slot) = cache.slots(layer, item % heads, first + item / heads);
        key_slot.iter_mut().zip(key).for_each(|(slot, number)| *slot = narrow(*number));
        value_slot.iter_mut().zip(value).for_each(|(slot, number)| *slot = narrow(*number));
    }
}

fn normalise(rows: &[f32], weights: &[f32], epsilon: f32, out: &mut [f32]) {
    for (row, out) in rows.chunks_exact(weights.len()).zip(out.chunks_exact_mut(weights.len())) {
        let factor = 1.0 / (dot(row, row) / weights.len() as f32 + epsilon).sqrt();
        for ((out, number), weight) in out.iter_mut().zip(row).zip(weights) {
            *out = number * factor * weight;
        }
    }
}

/// Turns every head of every token by its position.
fn turn(shape: &Shape, rows: &mut [f32], heads: usize, first: usize) {
    let head = shape.head;
    let half = head / 2;
    for (token, row) in rows.chunks_exact_mut(heads * head).enumerate() {
        let position = (first + token) as f32;
        let angles: Vec<(f32, f32)> = shape.speeds.iter().map(|speed| (position * speed).sin_cos()).collect();
        for numbers in row.chunks_exact_mut(head) {
            for (pair, (sine, cosine)) in angles.iter().enumerate() {
                let (left, right) = match shape.turning {
                    Turning::Neighbours => (2 * pair, 2 * pair + 1),
                    Turning::Halves => (pair, pair + half),
                };
                let (a, b) = (numbers[left], numbers[right]);
                numbers[left] = a * cosine - b * sine;
                numbers[right] = a * sine + b * cosine;
            }
        }
    }
}

fn add(into: &mut [f32], numbers: &[f32]) {
    into.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
}

struct Gated<'a> {
    gate: &'a mut [f32],
    up: &'a [f32],
}

impl pulp::NullaryFnOnce for Gated<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for (gate, up) in self.gate.iter_mut().zip(self.up) {
            *gate = *gate / (1.0 + exponential(-*gate)) * up;
        }
    }
}

#[cfg(test)]
mod tests;
