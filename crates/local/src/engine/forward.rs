//! Forward pass of the transformer: embeds a chunk of tokens, extends the KV cache, computes the last token's logits.

use super::attention::{Attention, WidenedKeyValues};
use super::kv_cache::KvCache;
use super::math::{dot, exponential, f32_to_f16};
use super::matrix::Inputs;
use super::network::{Layer, Linear, Network, RopeLayout, Shape};

/// Tokens per pass: enough to reuse each weight, few enough that cancellation is prompt.
pub(crate) const CHUNK_TOKENS: usize = 64;

/// Activation buffers of a pass, reused between passes.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    residual: Vec<f32>,
    normalised: Vec<f32>,
    queries: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    attended: Vec<f32>,
    gate: Vec<f32>,
    up: Vec<f32>,
    inputs: Inputs,
    widened: WidenedKeyValues,
}

impl Network {
    /// Evaluates at most [`CHUNK_TOKENS`] tokens, all in the vocabulary, and appends their keys and values to `cache`.
    pub(crate) fn forward(&self, cache: &mut KvCache, tokens: &[u32], scratch: &mut Scratch) {
        let hidden = self.shape.hidden;
        let first = cache.extend(tokens.len());
        scratch.resize(&self.shape, tokens.len());
        for (token, row) in tokens.iter().zip(scratch.residual.chunks_exact_mut(hidden)) {
            self.embedding.dequantise_row(*token as usize, row);
        }
        for (at, layer) in self.layers.iter().enumerate() {
            self.attend(at, layer, cache, first, scratch);
            self.feed_forward(layer, scratch);
        }
    }

    /// Computes the logits of the token after the last one evaluated.
    pub(crate) fn logits(&self, scratch: &mut Scratch, out: &mut Vec<f32>) {
        let hidden = self.shape.hidden;
        let last = scratch.residual.len() - hidden;
        scratch.normalised.resize(hidden, 0.0);
        rms_norm(&scratch.residual[last..], &self.output_norm, self.shape.epsilon, &mut scratch.normalised);
        scratch.inputs.fill(&scratch.normalised, hidden);
        out.resize(self.shape.vocabulary_size, 0.0);
        self.output.as_ref().unwrap_or(&self.embedding).multiply(&scratch.inputs, out, &self.pool);
    }

    fn attend(&self, at: usize, layer: &Layer, cache: &mut KvCache, first: usize, scratch: &mut Scratch) {
        let shape = &self.shape;
        rms_norm(&scratch.residual, &layer.attention_norm, shape.epsilon, &mut scratch.normalised);
        scratch.inputs.fill(&scratch.normalised, shape.hidden);
        self.apply_linear(&layer.query, &scratch.inputs, &mut scratch.queries);
        self.apply_linear(&layer.key, &scratch.inputs, &mut scratch.keys);
        self.apply_linear(&layer.value, &scratch.inputs, &mut scratch.values);
        apply_rope(shape, &mut scratch.queries, shape.heads, first);
        apply_rope(shape, &mut scratch.keys, shape.kv_heads, first);
        store_keys_and_values(shape, cache, at, first, scratch);
        let cache = &*cache;
        let tokens = scratch.residual.len() / shape.hidden;
        scratch.widened.prepare(cache, shape, at, tokens, first + tokens);
        let group = shape.heads / shape.kv_heads * shape.head_size;
        let (queries, widened) = (&scratch.queries, &scratch.widened);
        self.pool.for_each_chunk(&mut scratch.attended, group, |item, out| {
            let (token, key_head) = (item / shape.kv_heads, item % shape.kv_heads);
            let queries = &queries[item * group..(item + 1) * group];
            Attention { cache, widened, shape, layer: at, key_head, position: first + token, queries, out }
                .run();
        });
        scratch.inputs.fill(&scratch.attended, shape.heads * shape.head_size);
        self.apply_linear(&layer.output, &scratch.inputs, &mut scratch.normalised);
        add(&mut scratch.residual, &scratch.normalised);
    }

    fn feed_forward(&self, layer: &Layer, scratch: &mut Scratch) {
        let shape = &self.shape;
        rms_norm(&scratch.residual, &layer.feed_forward_norm, shape.epsilon, &mut scratch.normalised);
        scratch.inputs.fill(&scratch.normalised, shape.hidden);
        layer.gate.multiply(&scratch.inputs, &mut scratch.gate, &self.pool);
        layer.up.multiply(&scratch.inputs, &mut scratch.up, &self.pool);
        pulp::Arch::new().dispatch(SwiGlu { gate: &mut scratch.gate, up: &scratch.up });
        scratch.inputs.fill(&scratch.gate, shape.feed_forward_size);
        layer.down.multiply(&scratch.inputs, &mut scratch.normalised, &self.pool);
        add(&mut scratch.residual, &scratch.normalised);
    }

    fn apply_linear(&self, linear: &Linear, inputs: &Inputs, out: &mut [f32]) {
        linear.matrix.multiply(inputs, out, &self.pool);
        if let Some(bias) = &linear.bias {
            out.chunks_exact_mut(bias.len()).for_each(|row| add(row, bias));
        }
    }
}

impl Scratch {
    fn resize(&mut self, shape: &Shape, tokens: usize) {
        let queries = shape.heads * shape.head_size;
        let keys = shape.kv_heads * shape.head_size;
        for (numbers, width) in [
            (&mut self.residual, shape.hidden),
            (&mut self.normalised, shape.hidden),
            (&mut self.queries, queries),
            (&mut self.keys, keys),
            (&mut self.values, keys),
            (&mut self.attended, queries),
            (&mut self.gate, shape.feed_forward_size),
            (&mut self.up, shape.feed_forward_size),
        ] {
            numbers.resize(tokens * width, 0.0);
        }
    }
}

fn store_keys_and_values(shape: &Shape, cache: &mut KvCache, layer: usize, first: usize, scratch: &Scratch) {
    let heads = shape.kv_heads;
    let rows = scratch.keys.chunks_exact(shape.head_size).zip(scratch.values.chunks_exact(shape.head_size));
    for (item, (key, value)) in rows.enumerate() {
        let (key_slot, value_slot) = cache.slots_mut(layer, item % heads, first + item / heads);
        key_slot.iter_mut().zip(key).for_each(|(slot, number)| *slot = f32_to_f16(*number));
        value_slot.iter_mut().zip(value).for_each(|(slot, number)| *slot = f32_to_f16(*number));
    }
}

fn rms_norm(rows: &[f32], weights: &[f32], epsilon: f32, out: &mut [f32]) {
    for (row, out) in rows.chunks_exact(weights.len()).zip(out.chunks_exact_mut(weights.len())) {
        let factor = 1.0 / (dot(row, row) / weights.len() as f32 + epsilon).sqrt();
        for ((out, number), weight) in out.iter_mut().zip(row).zip(weights) {
            *out = number * factor * weight;
        }
    }
}

/// Applies the rotary position embedding (RoPE) to every head of every token.
fn apply_rope(shape: &Shape, rows: &mut [f32], heads: usize, first: usize) {
    let head = shape.head_size;
    let half = head / 2;
    for (token, row) in rows.chunks_exact_mut(heads * head).enumerate() {
        let position = (first + token) as f32;
        let angles: Vec<(f32, f32)> =
            shape.rope_frequencies.iter().map(|frequency| (position * frequency).sin_cos()).collect();
        for numbers in row.chunks_exact_mut(head) {
            for (pair, (sine, cosine)) in angles.iter().enumerate() {
                let (left, right) = match shape.rope_layout {
                    RopeLayout::Interleaved => (2 * pair, 2 * pair + 1),
                    RopeLayout::SplitHalves => (pair, pair + half),
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

struct SwiGlu<'a> {
    gate: &'a mut [f32],
    up: &'a [f32],
}

impl pulp::NullaryFnOnce for SwiGlu<'_> {
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
