//! AVX2 kernels: four rows at a time for one input, four inputs at a time for many, so that each loaded vector is used
//! four times.

use std::arch::x86_64::{__m128i, __m256, __m256i};

use pulp::bytemuck::cast;
use pulp::x86::V3;

use super::super::math::{f16_to_f32_into, sum_lanes};
use super::super::matrix::{BlocksView, Inputs};
use super::Product;

/// Rows or inputs computed together, limited by the number of vector registers.
const TILE: usize = 4;

pub(super) struct Avx2Product<'a> {
    pub(super) simd: V3,
    pub(super) product: Product<'a>,
}

impl pulp::NullaryFnOnce for Avx2Product<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Product { blocks, inputs, out } = self.product;
        match (blocks, inputs.tokens) {
            (BlocksView::FourBit { quants, scales, minima }, 1) => {
                multiply_one_input(self.simd, quants, scales, minima, inputs, out);
            }
            (BlocksView::FourBit { quants, scales, minima }, _) => {
                multiply_many_inputs(self.simd, quants, scales, minima, inputs, out);
            }
            (BlocksView::EightBit { quants, scales }, 1) => {
                multiply_one_input(self.simd, quants, scales, &[], inputs, out);
            }
            (BlocksView::EightBit { quants, scales }, _) => {
                multiply_many_inputs(self.simd, quants, scales, &[], inputs, out);
            }
        }
    }
}

/// A packed block of 32 weights.
trait Packed: Copy {
    /// Unpacks the quants to bytes.
    fn unpack(self, simd: V3) -> __m256i;
    /// Multiplies with an input; each 32-bit lane is the sum of four products.
    fn multiply_add(simd: V3, weights: __m256i, input: __m256i) -> __m256i;
}

impl Packed for [u8; 16] {
    #[inline(always)]
    fn unpack(self, simd: V3) -> __m256i {
        let low: __m128i = cast(self);
        let high = simd.sse2._mm_srli_epi16::<4>(low);
        simd.avx2._mm256_and_si256(simd.avx._mm256_set_m128i(high, low), simd.avx._mm256_set1_epi8(15))
    }

    #[inline(always)]
    fn multiply_add(simd: V3, weights: __m256i, input: __m256i) -> __m256i {
        let pairs = simd.avx2._mm256_maddubs_epi16(weights, input);
        simd.avx2._mm256_madd_epi16(pairs, simd.avx._mm256_set1_epi16(1))
    }
}

impl Packed for [i8; 32] {
    #[inline(always)]
    fn unpack(self, _: V3) -> __m256i {
        cast(self)
    }

    /// `maddubs` needs one unsigned operand, so the weights' signs move to the input.
    #[inline(always)]
    fn multiply_add(simd: V3, weights: __m256i, input: __m256i) -> __m256i {
        let magnitudes = simd.avx2._mm256_sign_epi8(weights, weights);
        <[u8; 16]>::multiply_add(simd, magnitudes, simd.avx2._mm256_sign_epi8(input, weights))
    }
}

/// Scales and minima of some rows as f32; each row's minima are zero-padded to whole vectors.
struct WidenedScales {
    scales: Vec<f32>,
    minima: Vec<[f32; 8]>,
}

impl WidenedScales {
    #[inline(always)]
    fn new(inputs: &Inputs, rows: usize) -> Self {
        Self {
            scales: vec![0.0; inputs.blocks * rows],
            minima: vec![[0.0; 8]; inputs.padded_vectors() * rows],
        }
    }

    #[inline(always)]
    fn fill(&mut self, inputs: &Inputs, scales: &[u16], minima: &[u16]) {
        f16_to_f32_into(scales, &mut self.scales);
        let rows = self.minima.chunks_exact_mut(inputs.padded_vectors());
        for (halves, row) in minima.chunks_exact(inputs.blocks).zip(rows) {
            f16_to_f32_into(halves, row.as_flattened_mut());
        }
    }
}

/// Multiplies every row with one input.
#[inline(always)]
fn multiply_one_input<P: Packed>(
    simd: V3,
    quants: &[P],
    scales: &[u16],
    minima: &[u16],
    inputs: &Inputs,
    out: &mut [f32],
) {
    let blocks = inputs.blocks;
    let mut widened = WidenedScales::new(inputs, TILE);
    let groups = quants.chunks(blocks * TILE).zip(scales.chunks(blocks * TILE));
    for (group, ((quants, scales), out)) in groups.zip(out.chunks_mut(TILE)).enumerate() {
        let first = (group * TILE * blocks).min(minima.len());
        let last = (first + quants.len()).min(minima.len());
        widened.fill(inputs, scales, &minima[first..last]);
        if let Ok(out) = <&mut [f32; TILE]>::try_from(&mut *out) {
            *out = multiply_rows::<P, TILE>(simd, quants, &widened, 0, inputs);
            continue;
        }
        for (row, out) in out.iter_mut().enumerate() {
            [*out] = multiply_rows::<P, 1>(simd, &quants[row * blocks..], &widened, row, inputs);
        }
    }
}

/// Multiplies `ROWS` rows with one input; `first` is the first row's index in `widened`.
#[inline(always)]
fn multiply_rows<P: Packed, const ROWS: usize>(
    simd: V3,
    quants: &[P],
    widened: &WidenedScales,
    first: usize,
    inputs: &Inputs,
) -> [f32; ROWS] {
    let (blocks, padded) = (inputs.blocks, inputs.padded_vectors());
    let quants: [&[P]; ROWS] = std::array::from_fn(|row| &quants[row * blocks..(row + 1) * blocks]);
    let scales: [&[f32]; ROWS] =
        std::array::from_fn(|row| &widened.scales[(first + row) * blocks..(first + row + 1) * blocks]);
    let mut sums = [simd.avx._mm256_setzero_ps(); ROWS];
    for row in 0..ROWS {
        let minima = &widened.minima[(first + row) * padded..(first + row + 1) * padded];
        sums[row] = lane_products(simd, minima, &inputs.sums[..padded]);
    }
    for (at, (input, input_scale)) in inputs.quants[..blocks].iter().zip(&inputs.scales[..blocks]).enumerate()
    {
        let input: __m256i = cast(*input);
        for row in 0..ROWS {
            let products = P::multiply_add(simd, quants[row][at].unpack(simd), input);
            sums[row] = add_scaled(simd, sums[row], products, scales[row][at] * input_scale);
        }
    }
    sums.map(sum_vector)
}

/// Multiplies every row with every input.
#[inline(always)]
fn multiply_many_inputs<P: Packed>(
    simd: V3,
    quants: &[P],
    scales: &[u16],
    minima: &[u16],
    inputs: &Inputs,
    out: &mut [f32],
) {
    let blocks = inputs.blocks;
    let mut widened = WidenedScales::new(inputs, 1);
    let mut bytes: Vec<__m256i> = vec![simd.avx._mm256_setzero_si256(); blocks];
    let rows = quants.chunks_exact(blocks).zip(scales.chunks_exact(blocks));
    for (row, ((quants, scales), out)) in rows.zip(out.chunks_exact_mut(inputs.tokens)).enumerate() {
        let first = (row * blocks).min(minima.len());
        let last = (first + blocks).min(minima.len());
        widened.fill(inputs, scales, &minima[first..last]);
        for (quants, bytes) in quants.iter().zip(&mut bytes) {
            *bytes = quants.unpack(simd);
        }
        for (at, out) in out.chunks_mut(TILE).enumerate() {
            let first = at * TILE;
            if let Ok(out) = <&mut [f32; TILE]>::try_from(&mut *out) {
                *out = multiply_tile::<P, TILE>(simd, &bytes, &widened, inputs, first);
                continue;
            }
            for (token, out) in out.iter_mut().enumerate() {
                [*out] = multiply_tile::<P, 1>(simd, &bytes, &widened, inputs, first + token);
            }
        }
    }
}

/// Multiplies one row with `TOKENS` inputs from index `first` on.
#[inline(always)]
fn multiply_tile<P: Packed, const TOKENS: usize>(
    simd: V3,
    bytes: &[__m256i],
    widened: &WidenedScales,
    inputs: &Inputs,
    first: usize,
) -> [f32; TOKENS] {
    let (blocks, padded) = (inputs.blocks, inputs.padded_vectors());
    let quants: [&[[i8; 32]]; TOKENS] =
        std::array::from_fn(|token| &inputs.quants[(first + token) * blocks..(first + token + 1) * blocks]);
    let scales: [&[f32]; TOKENS] =
        std::array::from_fn(|token| &inputs.scales[(first + token) * blocks..(first + token + 1) * blocks]);
    let mut sums = [simd.avx._mm256_setzero_ps(); TOKENS];
    for token in 0..TOKENS {
        let from = (first + token) * padded;
        sums[token] = lane_products(simd, &widened.minima, &inputs.sums[from..from + padded]);
    }
    for (at, (weights, scale)) in bytes.iter().zip(&widened.scales).enumerate() {
        for token in 0..TOKENS {
            let products = P::multiply_add(simd, *weights, cast(quants[token][at]));
            sums[token] = add_scaled(simd, sums[token], products, scale * scales[token][at]);
        }
    }
    sums.map(sum_vector)
}

#[inline(always)]
fn lane_products(simd: V3, left: &[[f32; 8]], right: &[[f32; 8]]) -> __m256 {
    let mut sums = simd.avx._mm256_setzero_ps();
    for (a, b) in left.iter().zip(right) {
        sums = simd.fma._mm256_fmadd_ps(cast(*a), cast(*b), sums);
    }
    sums
}

#[inline(always)]
fn add_scaled(simd: V3, sums: __m256, products: __m256i, scale: f32) -> __m256 {
    let numbers = simd.avx._mm256_cvtepi32_ps(products);
    simd.fma._mm256_fmadd_ps(numbers, simd.avx._mm256_set1_ps(scale), sums)
}

#[inline(always)]
fn sum_vector(sums: __m256) -> f32 {
    sum_lanes(cast(sums))
}
