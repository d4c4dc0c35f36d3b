//! Quantised weight matrices, their inputs and the thread pool that multiplies them. Blocks of 32 numbers share a
//! scale. `kernel` multiplies; `convert` creates matrices from a file.

use rayon::prelude::*;

use super::kernel::{self, Product};
use super::math::f16_to_f32;

/// Numbers per block, which share a scale.
pub(crate) const BLOCK_NUMBERS: usize = 32;

/// A matrix of `rows` × `columns` quantised numbers.
#[derive(Debug, Clone)]
pub(crate) struct Matrix {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) blocks: Blocks,
}

/// The numbers of a matrix in row-major order; scales and minima are half-precision bits.
#[derive(Debug, Clone)]
pub(crate) enum Blocks {
    /// number = scale · quant + minimum; number `i` is the low nibble of byte `i`, number `i + 16` the high nibble.
    FourBit { quants: Vec<[u8; 16]>, scales: Vec<u16>, minima: Vec<u16> },
    /// number = scale · quant.
    EightBit { quants: Vec<[i8; 32]>, scales: Vec<u16> },
}

impl Matrix {
    /// Dequantises row `row` to f32.
    pub(crate) fn dequantise_row(&self, row: usize, into: &mut [f32]) {
        let blocks = self.columns / BLOCK_NUMBERS;
        let range = row * blocks..(row + 1) * blocks;
        match &self.blocks {
            Blocks::FourBit { quants, scales, minima } => {
                for (at, block) in range.zip(into.chunks_exact_mut(BLOCK_NUMBERS)) {
                    let (scale, minimum) = (f16_to_f32(scales[at]), f16_to_f32(minima[at]));
                    for (index, byte) in quants[at].iter().enumerate() {
                        block[index] = scale * f32::from(byte & 15) + minimum;
                        block[index + 16] = scale * f32::from(byte >> 4) + minimum;
                    }
                }
            }
            Blocks::EightBit { quants, scales } => {
                for (at, block) in range.zip(into.chunks_exact_mut(BLOCK_NUMBERS)) {
                    let scale = f16_to_f32(scales[at]);
                    for (number, quant) in block.iter_mut().zip(&quants[at]) {
                        *number = scale * f32::from(*quant);
                    }
                }
            }
        }
    }

    /// Multiplies the matrix with each input; `out` gets, input by input, one number per row.
    pub(crate) fn multiply(&self, inputs: &Inputs, out: &mut [f32], pool: &ComputePool) {
        let tokens = inputs.tokens;
        if tokens == 1 {
            self.multiply_rows(inputs, out, pool);
            return;
        }
        let mut transposed = vec![0f32; self.rows * tokens];
        self.multiply_rows(inputs, &mut transposed, pool);
        for (row, numbers) in transposed.chunks_exact(tokens).enumerate() {
            for (token, number) in numbers.iter().enumerate() {
                out[token * self.rows + row] = *number;
            }
        }
    }

    fn multiply_rows(&self, inputs: &Inputs, out: &mut [f32], pool: &ComputePool) {
        let tokens = inputs.tokens;
        let chunk_rows = pool.rows_per_thread(self.rows);
        pool.for_each_chunk(out, chunk_rows * tokens, |chunk, out| {
            let first = chunk * chunk_rows;
            kernel::multiply(Product { blocks: self.row_blocks(first, out.len() / tokens), inputs, out });
        });
    }

    fn row_blocks(&self, first: usize, rows: usize) -> BlocksView<'_> {
        let blocks = self.columns / BLOCK_NUMBERS;
        let range = first * blocks..(first + rows) * blocks;
        match &self.blocks {
            Blocks::FourBit { quants, scales, minima } => BlocksView::FourBit {
                quants: &quants[range.clone()],
                scales: &scales[range.clone()],
                minima: &minima[range],
            },
            Blocks::EightBit { quants, scales } => {
                BlocksView::EightBit { quants: &quants[range.clone()], scales: &scales[range] }
            }
        }
    }
}

/// A range of rows of a matrix.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BlocksView<'a> {
    FourBit { quants: &'a [[u8; 16]], scales: &'a [u16], minima: &'a [u16] },
    EightBit { quants: &'a [[i8; 32]], scales: &'a [u16] },
}

/// Activations to multiply a matrix with: one vector per token, quantised in blocks of 8-bit numbers.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    pub(crate) tokens: usize,
    /// Blocks per token.
    pub(crate) blocks: usize,
    pub(crate) quants: Vec<[i8; 32]>,
    pub(crate) scales: Vec<f32>,
    /// Sum of each block's numbers, for matrices whose blocks have a minimum; zero-padded per token to whole vectors.
    pub(crate) sums: Vec<[f32; 8]>,
}

impl Inputs {
    /// Quantises the vectors in `numbers`, each `columns` long.
    pub(crate) fn fill(&mut self, numbers: &[f32], columns: usize) {
        self.tokens = numbers.len() / columns;
        self.blocks = columns / BLOCK_NUMBERS;
        let count = self.tokens * self.blocks;
        self.quants.resize(count, [0; 32]);
        self.scales.resize(count, 0.0);
        self.sums.clear();
        self.sums.resize(self.tokens * self.padded_vectors(), [0.0; 8]);
        kernel::quantise(numbers, self);
    }

    /// Number of 8-lane vectors that hold one token's sums.
    pub(crate) fn padded_vectors(&self) -> usize {
        self.blocks.div_ceil(8)
    }
}

/// Thread pool for matrix work; with one thread it computes on the caller's thread.
#[derive(Debug)]
pub(crate) struct ComputePool {
    pool: Option<rayon::ThreadPool>,
    threads: usize,
}

impl ComputePool {
    /// Creates a pool of `threads` threads.
    pub(crate) fn new(threads: usize) -> Result<Self, rayon::ThreadPoolBuildError> {
        let threads = threads.clamp(1, 256);
        let pool = match threads {
            1 => None,
            _ => Some(
                rayon::ThreadPoolBuilder::new()
                    .num_threads(threads)
                    .thread_name(|index| format!("model-{index}"))
                    .build()?,
            ),
        };
        Ok(Self { pool, threads })
    }

    /// Number of rows per thread; a multiple of four, which is the kernel's tile.
    fn rows_per_thread(&self, rows: usize) -> usize {
        rows.div_ceil(self.threads).next_multiple_of(4).max(1)
    }

    /// Splits `out` into chunks of `size` and runs `work` on each, in parallel.
    pub(crate) fn for_each_chunk(
        &self,
        out: &mut [f32],
        size: usize,
        work: impl Fn(usize, &mut [f32]) + Sync,
    ) {
        match &self.pool {
            None => out.chunks_mut(size).enumerate().for_each(|(chunk, out)| work(chunk, out)),
            Some(pool) => pool.install(|| {
                out.par_chunks_mut(size).enumerate().for_each(|(chunk, out)| work(chunk, out));
            }),
        }
    }
}
