//! Matrix multiplication kernels, which take nearly all the time: AVX2 where the processor has it, scalar Rust
//! elsewhere. The code is safe: `pulp` checks the instruction set once and exposes its instructions as methods.
#![expect(clippy::cast_possible_truncation, reason = "quantised numbers lie within ±127 by construction")]
#![expect(clippy::needless_range_loop, reason = "indexed lanes let the compiler vectorize")]

use super::math::{dot, f16_to_f32_into};
use super::matrix::{BLOCK_NUMBERS, BlocksView, Inputs};

/// Product of some matrix rows with every input; `out` is row-major, one number per input.
pub(crate) struct Product<'a> {
    pub(crate) blocks: BlocksView<'a>,
    pub(crate) inputs: &'a Inputs,
    pub(crate) out: &'a mut [f32],
}

/// Computes the product with the fastest kernel available.
pub(crate) fn multiply(mut product: Product<'_>) {
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = pulp::x86::V3::try_new() {
        simd.vectorize(avx2::Avx2Product { simd, product });
        return;
    }
    multiply_scalar(&mut product);
}

/// Quantises each block of `numbers` to eight bits into `inputs`, whose buffers have the right length.
pub(crate) fn quantise(numbers: &[f32], inputs: &mut Inputs) {
    pulp::Arch::new().dispatch(Quantise { numbers, inputs });
}

struct Quantise<'a> {
    numbers: &'a [f32],
    inputs: &'a mut Inputs,
}

impl pulp::NullaryFnOnce for Quantise<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let (blocks, _) = self.numbers.as_chunks::<BLOCK_NUMBERS>();
        let inputs = self.inputs;
        let (per_token, padded) = (inputs.blocks, inputs.padded_vectors());
        for (token, blocks) in blocks.chunks_exact(per_token).enumerate() {
            let range = token * per_token..(token + 1) * per_token;
            let targets = inputs.quants[range.clone()].iter_mut().zip(&mut inputs.scales[range]);
            let sums = inputs.sums[token * padded..(token + 1) * padded].as_flattened_mut();
            for (block, ((quants, scale), sum)) in blocks.iter().zip(targets.zip(sums)) {
                (*scale, *sum) = quantise_block(block, quants);
            }
        }
    }
}

/// Quantises a block to eight bits; returns the scale and the sum of the quantised numbers.
#[inline(always)]
pub(crate) fn quantise_block(block: &[f32; BLOCK_NUMBERS], quants: &mut [i8; BLOCK_NUMBERS]) -> (f32, f32) {
    let mut lanes = [0f32; 8];
    for chunk in block.as_chunks::<8>().0 {
        for lane in 0..8 {
            lanes[lane] = if chunk[lane].abs() > lanes[lane] { chunk[lane].abs() } else { lanes[lane] };
        }
    }
    let largest = lanes.iter().fold(0f32, |largest, lane| largest.max(*lane));
    let scale = largest / 127.0;
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    let mut sum = 0i32;
    for (quant, number) in quants.iter_mut().zip(block) {
        // Rounds to nearest: after adding 1.5 · 2²³, the lowest mantissa bits are the integer.
        let rounded = ((number * inverse) + 12_582_912.0).to_bits() as i32 - 0x4b40_0000;
        *quant = rounded as i8;
        sum += rounded;
    }
    (scale, scale * sum as f32)
}

fn multiply_scalar(product: &mut Product<'_>) {
    let inputs = product.inputs;
    let blocks = inputs.blocks;
    let mut scales = vec![0f32; blocks];
    let mut minima = vec![0f32; blocks];
    let mut bytes = vec![[0i8; 32]; blocks];
    for (row, out) in product.out.chunks_exact_mut(inputs.tokens).enumerate() {
        let range = row * blocks..(row + 1) * blocks;
        match product.blocks {
            BlocksView::FourBit { quants, scales: halves, minima: minimum_halves } => {
                f16_to_f32_into(&halves[range.clone()], &mut scales);
                f16_to_f32_into(&minimum_halves[range.clone()], &mut minima);
                for (packed, bytes) in quants[range].iter().zip(&mut bytes) {
                    for (index, byte) in packed.iter().enumerate() {
                        bytes[index] = (byte & 15) as i8;
                        bytes[index + 16] = (byte >> 4) as i8;
                    }
                }
            }
            BlocksView::EightBit { quants, scales: halves } => {
                f16_to_f32_into(&halves[range.clone()], &mut scales);
                bytes.copy_from_slice(&quants[range]);
            }
        }
        for (token, out) in out.iter_mut().enumerate() {
            let range = token * blocks..(token + 1) * blocks;
            let padded = inputs.padded_vectors();
            let sums = inputs.sums[token * padded..(token + 1) * padded].as_flattened();
            let mut sum = dot(&minima, &sums[..blocks]);
            let pairs = bytes.iter().zip(&inputs.quants[range.clone()]);
            for ((weights, input), (left, right)) in pairs.zip(scales.iter().zip(&inputs.scales[range])) {
                let product: i32 =
                    weights.iter().zip(input).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
                sum += left * right * product as f32;
            }
            *out = sum;
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2;

#[cfg(test)]
mod tests;
