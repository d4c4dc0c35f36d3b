//! The multiplications that take nearly all the time, with AVX2 where the machine has it and in plain Rust
//! elsewhere. Safe code: `pulp` proves the instruction set once and hands out its instructions.
#![expect(clippy::cast_possible_truncation, reason = "quantised numbers lie within ±127 by construction")]

use super::matrix::{BLOCK, BlocksPart, Inputs};
use super::numbers::{dot, widen_into};

/// Rows of a matrix times every input; `out` is row by row, one number per input.
pub(crate) struct Product<'a> {
    pub(crate) blocks: BlocksPart<'a>,
    pub(crate) inputs: &'a Inputs,
    pub(crate) out: &'a mut [f32],
}

/// Multiplies.
pub(crate) fn multiply(product: Product<'_>) {
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = pulp::x86::V3::try_new() {
        simd.vectorize(wide::Wide { simd, product });
        return;
    }
    multiply_plainly(product);
}

/// Quantises each block of `numbers` to eight bits into `inputs`, whose lists have the right length.
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
        let (blocks, _) = self.numbers.as_chunks::<BLOCK>();
        let inputs = self.inputs;
        let targets = inputs.quants.iter_mut().zip(inputs.scales.iter_mut()).zip(inputs.sums.iter_mut());
        for (block, ((quants, scale), sum)) in blocks.iter().zip(targets) {
            (*scale, *sum) = quantise_block(block, quants);
        }
    }
}

/// Fills `quants`; gives the scale and the sum of the quantised numbers.
#[inline(always)]
pub(crate) fn quantise_block(block: &[f32; BLOCK], quants: &mut [i8; BLOCK]) -> (f32, f32) {
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
        // Rounds to the nearest by the sum with 1.5 · 2²³, whose lowest bits are then the whole number.
        let rounded = ((number * inverse) + 12_582_912.0).to_bits() as i32 - 0x4b40_0000;
        *quant = rounded as i8;
        sum += rounded;
    }
    (scale, scale * sum as f32)
}

fn multiply_plainly(product: Product<'_>) {
    let inputs = product.inputs;
    let blocks = inputs.blocks;
    let mut scales = vec![0f32; blocks];
    let mut minima = vec![0f32; blocks];
    let mut bytes = vec![[0i8; 32]; blocks];
    for (row, out) in product.out.chunks_exact_mut(inputs.tokens).enumerate() {
        let range = row * blocks..(row + 1) * blocks;
        match product.blocks {
            BlocksPart::Four { quants, scales: halves, minima: minimum_halves } => {
                widen_into(&halves[range.clone()], &mut scales);
                widen_into(&minimum_halves[range.clone()], &mut minima);
                for (packed, bytes) in quants[range].iter().zip(&mut bytes) {
                    for (index, byte) in packed.iter().enumerate() {
                        bytes[index] = (byte & 15) as i8;
                        bytes[index + 16] = (byte >> 4) as i8;
                    }
                }
            }
            BlocksPart::Eight { quants, scales: halves } => {
                widen_into(&halves[range.clone()], &mut scales);
                bytes.copy_from_slice(&quants[range]);
            }
        }
        for (token, out) in out.iter_mut().enumerate() {
            let range = token * blocks..(token + 1) * blocks;
            let mut sum = dot(&minima, &inputs.sums[range.clone()]);
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
mod wide {
    //! The AVX2 forms.

    use std::arch::x86_64::{__m128i, __m256, __m256i};

    use pulp::bytemuck::cast;
    use pulp::x86::V3;

    use super::super::matrix::{BlocksPart, Inputs};
    use super::super::numbers::{dot, sum_lanes, widen_into};
    use super::Product;

    /// Inputs that are multiplied with one row at a time: as many as leave the registers room.
    const TOGETHER: usize = 4;

    pub(super) struct Wide<'a> {
        pub(super) simd: V3,
        pub(super) product: Product<'a>,
    }

    impl pulp::NullaryFnOnce for Wide<'_> {
        type Output = ();

        #[inline(always)]
        fn call(self) {
            let Product { blocks, inputs, out } = self.product;
            match blocks {
                BlocksPart::Four { quants, scales, minima } if inputs.tokens == 1 => {
                    one_by_four(self.simd, (quants, scales, minima), inputs, out);
                }
                BlocksPart::Four { quants, scales, minima } => {
                    many_by_four(self.simd, (quants, scales, minima), inputs, out);
                }
                BlocksPart::Eight { quants, scales } => by_eight(self.simd, quants, scales, inputs, out),
            }
        }
    }

    type Four<'a> = (&'a [[u8; 16]], &'a [u16], &'a [u16]);

    #[inline(always)]
    fn one_by_four(simd: V3, (quants, scales, minima): Four<'_>, inputs: &Inputs, out: &mut [f32]) {
        let blocks = inputs.blocks;
        let mut scale_row = vec![0f32; blocks];
        let mut minimum_row = vec![0f32; blocks];
        let inputs_row = Row { quants: &inputs.quants[..blocks], scales: &inputs.scales[..blocks] };
        let rows =
            quants.chunks_exact(blocks).zip(scales.chunks_exact(blocks)).zip(minima.chunks_exact(blocks));
        for (((quants, scales), minima), out) in rows.zip(out) {
            widen_into(scales, &mut scale_row);
            widen_into(minima, &mut minimum_row);
            let mut sums = [simd.avx._mm256_setzero_ps(); 2];
            let steps = quants.iter().zip(&scale_row).zip(inputs_row.quants.iter().zip(inputs_row.scales));
            for (at, ((quants, scale), (input, input_scale))) in steps.enumerate() {
                let whole = unsigned_product(simd, unpack(simd, quants), cast(*input));
                sums[at & 1] = add_scaled(simd, sums[at & 1], whole, scale * input_scale);
            }
            *out =
                total(simd.avx._mm256_add_ps(sums[0], sums[1])) + dot(&minimum_row, &inputs.sums[..blocks]);
        }
    }

    #[inline(always)]
    fn many_by_four(simd: V3, (quants, scales, minima): Four<'_>, inputs: &Inputs, out: &mut [f32]) {
        let blocks = inputs.blocks;
        let mut scale_row = vec![0f32; blocks];
        let mut minimum_row = vec![0f32; blocks];
        let mut bytes: Vec<__m256i> = vec![simd.avx._mm256_setzero_si256(); blocks];
        let rows =
            quants.chunks_exact(blocks).zip(scales.chunks_exact(blocks)).zip(minima.chunks_exact(blocks));
        for (((quants, scales), minima), out) in rows.zip(out.chunks_exact_mut(inputs.tokens)) {
            widen_into(scales, &mut scale_row);
            widen_into(minima, &mut minimum_row);
            for (packed, bytes) in quants.iter().zip(&mut bytes) {
                *bytes = unpack(simd, packed);
            }
            for (at, out) in out.chunks_mut(TOGETHER).enumerate() {
                tiles::<false>(simd, &bytes, &scale_row, inputs, at * TOGETHER, out);
                for (token, out) in out.iter_mut().enumerate() {
                    let first = (at * TOGETHER + token) * blocks;
                    *out += dot(&minimum_row, &inputs.sums[first..first + blocks]);
                }
            }
        }
    }

    #[inline(always)]
    fn by_eight(simd: V3, quants: &[[i8; 32]], scales: &[u16], inputs: &Inputs, out: &mut [f32]) {
        let blocks = inputs.blocks;
        let mut scale_row = vec![0f32; blocks];
        let mut bytes: Vec<__m256i> = vec![simd.avx._mm256_setzero_si256(); blocks];
        let rows = quants.chunks_exact(blocks).zip(scales.chunks_exact(blocks));
        for ((quants, scales), out) in rows.zip(out.chunks_exact_mut(inputs.tokens)) {
            widen_into(scales, &mut scale_row);
            for (quants, bytes) in quants.iter().zip(&mut bytes) {
                *bytes = cast(*quants);
            }
            for (at, out) in out.chunks_mut(TOGETHER).enumerate() {
                tiles::<true>(simd, &bytes, &scale_row, inputs, at * TOGETHER, out);
            }
        }
    }

    #[derive(Clone, Copy)]
    struct Row<'a> {
        quants: &'a [[i8; 32]],
        scales: &'a [f32],
    }

    #[inline(always)]
    fn tiles<const SIGNED: bool>(
        simd: V3,
        bytes: &[__m256i],
        scales: &[f32],
        inputs: &Inputs,
        first: usize,
        out: &mut [f32],
    ) {
        let blocks = inputs.blocks;
        let row = |token: usize| {
            let from = (first + token) * blocks;
            Row { quants: &inputs.quants[from..from + blocks], scales: &inputs.scales[from..from + blocks] }
        };
        if let Ok(out) = <&mut [f32; TOGETHER]>::try_from(&mut *out) {
            *out = tile::<TOGETHER, SIGNED>(simd, bytes, scales, [row(0), row(1), row(2), row(3)]);
            return;
        }
        for (token, out) in out.iter_mut().enumerate() {
            [*out] = tile::<1, SIGNED>(simd, bytes, scales, [row(token)]);
        }
    }

    #[inline(always)]
    fn tile<const TOKENS: usize, const SIGNED: bool>(
        simd: V3,
        bytes: &[__m256i],
        scales: &[f32],
        rows: [Row<'_>; TOKENS],
    ) -> [f32; TOKENS] {
        let mut sums = [simd.avx._mm256_setzero_ps(); TOKENS];
        for (at, (weights, scale)) in bytes.iter().zip(scales).enumerate() {
            for token in 0..TOKENS {
                let input = cast(rows[token].quants[at]);
                let whole = match SIGNED {
                    true => signed_product(simd, *weights, input),
                    false => unsigned_product(simd, *weights, input),
                };
                sums[token] = add_scaled(simd, sums[token], whole, scale * rows[token].scales[at]);
            }
        }
        sums.map(total)
    }

    /// 32 four-bit numbers as bytes.
    #[inline(always)]
    fn unpack(simd: V3, packed: &[u8; 16]) -> __m256i {
        let low: __m128i = cast(*packed);
        let high = simd.sse2._mm_srli_epi16::<4>(low);
        simd.avx2._mm256_and_si256(simd.avx._mm256_set_m128i(high, low), simd.avx._mm256_set1_epi8(15))
    }

    #[inline(always)]
    fn unsigned_product(simd: V3, weights: __m256i, input: __m256i) -> __m256i {
        let pairs = simd.avx2._mm256_maddubs_epi16(weights, input);
        simd.avx2._mm256_madd_epi16(pairs, simd.avx._mm256_set1_epi16(1))
    }

    /// The instruction wants one side without signs: they move to the other.
    #[inline(always)]
    fn signed_product(simd: V3, weights: __m256i, input: __m256i) -> __m256i {
        let magnitudes = simd.avx2._mm256_sign_epi8(weights, weights);
        unsigned_product(simd, magnitudes, simd.avx2._mm256_sign_epi8(input, weights))
    }

    #[inline(always)]
    fn add_scaled(simd: V3, sums: __m256, whole: __m256i, scale: f32) -> __m256 {
        let numbers = simd.avx._mm256_cvtepi32_ps(whole);
        simd.fma._mm256_fmadd_ps(numbers, simd.avx._mm256_set1_ps(scale), sums)
    }

    #[inline(always)]
    fn total(sums: __m256) -> f32 {
        sum_lanes(cast(sums))
    }
}

#[cfg(test)]
mod tests;
