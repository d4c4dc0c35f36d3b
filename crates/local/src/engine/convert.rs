//! Turns a file's tensors into our two block formats. Four-bit formats keep their quants exactly; every
//! other one goes through plain numbers to eight bits, which loses next to nothing.

use super::format::{Format, scale_and_minimum};
use super::gguf::{Tensor, Wrong};
use super::kernel::quantise_block;
use super::matrix::{BLOCK, Blocks, Matrix};
use super::numbers::{narrow, widen};

/// Numbers converted at a time, so that a large tensor never exists twice.
const NUMBERS_AT_ONCE: usize = 1 << 20;

/// The tensor as a matrix to multiply with.
pub(crate) fn matrix(name: &str, tensor: Tensor<'_>) -> Result<Matrix, Wrong> {
    if !tensor.columns.is_multiple_of(BLOCK) {
        return Err(format!("tensor {name} has {} columns, no multiple of {BLOCK}", tensor.columns));
    }
    let blocks = match tensor.format {
        Format::Q4_0 => from_q4_0(tensor.bytes),
        Format::Q4_1 => from_q4_1(tensor.bytes),
        Format::Q4K => from_q4_k(tensor.bytes),
        Format::Q8_0 => from_q8_0(tensor.bytes),
        _ => through_numbers(tensor),
    };
    Ok(Matrix { rows: tensor.rows, columns: tensor.columns, blocks })
}

/// The tensor as plain numbers: norms and biases.
pub(crate) fn vector(name: &str, tensor: Tensor<'_>) -> Result<Vec<f32>, Wrong> {
    let numbers = tensor.format.numbers(tensor.bytes);
    if numbers.iter().any(|number| !number.is_finite()) {
        return Err(format!("tensor {name} holds numbers that are not finite"));
    }
    Ok(numbers)
}

fn through_numbers(tensor: Tensor<'_>) -> Blocks {
    let format = tensor.format;
    let count = tensor.rows * tensor.columns / BLOCK;
    let (mut quants, mut scales) = (Vec::with_capacity(count), Vec::with_capacity(count));
    let bytes_at_once = NUMBERS_AT_ONCE / format.block_numbers() * format.block_bytes();
    for bytes in tensor.bytes.chunks(bytes_at_once) {
        for block in format.numbers(bytes).as_chunks::<BLOCK>().0 {
            let mut quant = [0; BLOCK];
            let (scale, _) = quantise_block(block, &mut quant);
            quants.push(quant);
            scales.push(narrow(scale));
        }
    }
    Blocks::Eight { quants, scales }
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn from_q8_0(bytes: &[u8]) -> Blocks {
    let blocks = bytes.as_chunks::<34>().0;
    let quants = blocks.iter().map(|block| std::array::from_fn(|at| block[at + 2].cast_signed())).collect();
    Blocks::Eight { quants, scales: blocks.iter().map(|block| half(block, 0)).collect() }
}

fn from_q4_1(bytes: &[u8]) -> Blocks {
    let blocks = bytes.as_chunks::<20>().0;
    Blocks::Four {
        quants: blocks.iter().map(|block| std::array::from_fn(|at| block[at + 4])).collect(),
        scales: blocks.iter().map(|block| half(block, 0)).collect(),
        minima: blocks.iter().map(|block| half(block, 2)).collect(),
    }
}

fn from_q4_0(bytes: &[u8]) -> Blocks {
    let blocks = bytes.as_chunks::<18>().0;
    Blocks::Four {
        quants: blocks.iter().map(|block| std::array::from_fn(|at| block[at + 2])).collect(),
        scales: blocks.iter().map(|block| half(block, 0)).collect(),
        minima: blocks.iter().map(|block| narrow(-8.0 * widen(half(block, 0)))).collect(),
    }
}

fn from_q4_k(bytes: &[u8]) -> Blocks {
    let blocks = bytes.as_chunks::<144>().0;
    let count = blocks.len() * 8;
    let mut quants = Vec::with_capacity(count);
    let mut scales = Vec::with_capacity(count);
    let mut minima = Vec::with_capacity(count);
    for block in blocks {
        let (scale, minimum) = (widen(half(block, 0)), widen(half(block, 2)));
        for part in 0..8 {
            let (part_scale, part_minimum) = scale_and_minimum(&block[4..16], part);
            scales.push(narrow(scale * f32::from(part_scale)));
            minima.push(narrow(-minimum * f32::from(part_minimum)));
            quants.push(pack_part(&block[16..], part));
        }
    }
    Blocks::Four { quants, scales, minima }
}

/// Two parts share 32 bytes there, low halves first; here a part has 16 bytes of its own.
fn pack_part(quants: &[u8], part: usize) -> [u8; 16] {
    let shared = &quants[part / 2 * 32..part / 2 * 32 + 32];
    let shift = part % 2 * 4;
    std::array::from_fn(|at| (shared[at] >> shift & 15) | (shared[at + 16] >> shift & 15) << 4)
}

#[cfg(test)]
mod tests;
