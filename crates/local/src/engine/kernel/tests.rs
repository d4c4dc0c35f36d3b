//! Tests: the AVX2 kernel, the scalar kernel and f32 arithmetic agree.

use super::*;
use crate::engine::fixture::random_numbers;
use crate::engine::math::f32_to_f16;
use crate::engine::matrix::{Blocks, Matrix};

fn eight_bit_matrix(rows: usize, columns: usize) -> Matrix {
    let numbers = random_numbers(1, rows * columns, 1.0);
    let (mut quants, mut scales) = (Vec::new(), Vec::new());
    for block in numbers.as_chunks::<BLOCK_NUMBERS>().0 {
        let mut quant = [0; BLOCK_NUMBERS];
        scales.push(f32_to_f16(quantise_block(block, &mut quant).0));
        quants.push(quant);
    }
    Matrix { rows, columns, blocks: Blocks::EightBit { quants, scales } }
}

fn four_bit_matrix(rows: usize, columns: usize) -> Matrix {
    let count = rows * columns / BLOCK_NUMBERS;
    let halves = |seed| random_numbers(seed, count, 0.1).into_iter().map(f32_to_f16).collect();
    let bytes = random_numbers(2, count * 16, 1.0);
    let quants =
        bytes.as_chunks::<16>().0.iter().map(|bytes| bytes.map(|byte| byte.to_bits() as u8)).collect();
    Matrix { rows, columns, blocks: Blocks::FourBit { quants, scales: halves(3), minima: halves(4) } }
}

fn all_blocks(matrix: &Matrix) -> BlocksView<'_> {
    match &matrix.blocks {
        Blocks::FourBit { quants, scales, minima } => BlocksView::FourBit { quants, scales, minima },
        Blocks::EightBit { quants, scales } => BlocksView::EightBit { quants, scales },
    }
}

#[test]
fn vector_scalar_and_f32_products_agree() {
    for matrix in
        [eight_bit_matrix(7, 576), four_bit_matrix(7, 576), four_bit_matrix(4, 32), eight_bit_matrix(1, 64)]
    {
        for tokens in [1, 2, 4, 5, 9] {
            let numbers = random_numbers(9, tokens * matrix.columns, 2.0);
            let mut inputs = Inputs::default();
            inputs.fill(&numbers, matrix.columns);
            let mut vectorized = vec![0f32; matrix.rows * tokens];
            let mut scalar = vectorized.clone();
            multiply(Product { blocks: all_blocks(&matrix), inputs: &inputs, out: &mut vectorized });
            multiply_scalar(&mut Product { blocks: all_blocks(&matrix), inputs: &inputs, out: &mut scalar });
            let mut row = vec![0f32; matrix.columns];
            for (at, (vectorized, scalar)) in vectorized.iter().zip(&scalar).enumerate() {
                matrix.dequantise_row(at / tokens, &mut row);
                let first = at % tokens * matrix.columns;
                let exact = dot(&row, &numbers[first..first + matrix.columns]);
                assert!((vectorized - scalar).abs() < 1e-3, "{vectorized} {scalar}");
                assert!((vectorized - exact).abs() < 0.5, "{vectorized} {exact}");
            }
        }
    }
}

#[test]
fn zeros_and_extremes_quantise() {
    let mut quants = [1; BLOCK_NUMBERS];
    assert_eq!(quantise_block(&[0.0; BLOCK_NUMBERS], &mut quants), (0.0, 0.0));
    assert_eq!(quants, [0; BLOCK_NUMBERS]);
    let mut block = [0.0; BLOCK_NUMBERS];
    (block[0], block[31]) = (-3.0, 3.0);
    let (scale, sum) = quantise_block(&block, &mut quants);
    assert_eq!((quants[0], quants[31]), (-127, 127));
    assert!((scale - 3.0 / 127.0).abs() < 1e-7 && sum == 0.0);
}
