//! Converts a file's tensors into the engine's two block formats. Four-bit formats keep their quants exactly; every
//! other format is dequantised and requantised to eight bits, which loses next to no precision.

use super::format::{Format, scale_and_minimum};
use super::gguf::{ModelFileError, Tensor};
use super::kernel::quantise_block;
use super::math::{f16_to_f32, f32_to_f16};
use super::matrix::{BLOCK_NUMBERS, Blocks, Matrix};

/// Numbers dequantised at a time, so that a large tensor is never in memory twice.
const NUMBERS_AT_ONCE: usize = 1 << 20;

/// Converts a tensor to a weight matrix.
pub(crate) fn matrix(name: &str, tensor: Tensor<'_>) -> Result<Matrix, ModelFileError> {
    if !tensor.columns.is_multiple_of(BLOCK_NUMBERS) {
        return Err(format!(
            "tensor {name} has {} columns, not a multiple of {BLOCK_NUMBERS}",
            tensor.columns
        ));
    }
    let blocks = match tensor.format {
        Format::Q4_0 => from_q4_0(tensor.bytes),
        Format::Q4_1 => from_q4_1(tensor.bytes),
        Format::Q4K => from_q4_k(tensor.bytes),
        Format::Q8_0 => from_q8_0(tensor.bytes),
        _ => requantise(tensor),
    };
    Ok(Matrix { rows: tensor.rows, columns: tensor.columns, blocks })
}

/// Converts a tensor to f32 numbers, as norms and biases are used.
pub(crate) fn vector(name: &str, tensor: Tensor<'_>) -> Result<Vec<f32>, ModelFileError> {
    let numbers = tensor.format.dequantise(tensor.bytes);
    if numbers.iter().any(|number| !number.is_finite()) {
        return Err(format!("tensor {name} holds numbers that are not finite"));
    }
    Ok(numbers)
}

fn requantise(tensor: Tensor<'_>) -> Blocks {
    let format = tensor.format;
    let count = tensor.rows * tensor.columns / BLOCK_NUMBERS;
    let (mut quants, mut scales) = (Vec::with_capacity(count), Vec::with_capacity(count));
    let bytes_at_once = NUMBERS_AT_ONCE / format.block_numbers() * format.block_bytes();
    for bytes in tensor.bytes.chunks(bytes_at_once) {
        for block in format.dequantise(bytes).as_chunks::<BLOCK_NUMBERS>().0 {
            let mut quant = [0; BLOCK_NUMBERS];
            let (scale, _) = quantise_block(block, &mut quant);
            quants.push(quant);
            scales.push(f32_to_f16(scale));
        }
    }
    Blocks::EightBit { quants, scales }
}

fn read_half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn from_q8_0(bytes: &[u8]) -> Blocks {
    let blocks = bytes.as_chunks::<34>().0;
    let quants = blocks.iter().map(|block| std::array::from_fn(|at| block[at + 2].cast_signed())).collect();
    Blocks::EightBit { quants, scales: blocks.iter().map(|block| read_half(block, 0)).collect() }
}

fn from_q4_1(bytes: &[u8]) -> Blocks {
    let blocks = bytes.as_chunks::<20>().0;
    Blocks::FourBit {
        quants: blocks.iter().map(|block| std::array::from_fn(|at| block[at + 4])).collect(),
        scales: blocks.iter().map(|block| read_half(block, 0)).collect(),
        minima: blocks.iter().map(|block| read_half(block, 2)).collect(),
    }
}

fn from_q4_0(bytes: &[u8]) -> Blocks {
    let blocks = bytes.as_chunks::<18>().0;
    Blocks::FourBit {
        quants: blocks.iter().map(|block| std::array::from_fn(|at| block[at + 2])).collect(),
        scales: blocks.iter().map(|block| read_half(block, 0)).collect(),
        minima: blocks.iter().map(|block| f32_to_f16(-8.0 * f16_to_f32(read_half(block, 0)))).collect(),
    }
}

fn from_q4_k(bytes: &[u8]) -> Blocks {
    let blocks = bytes.as_chunks::<144>().0;
    let count = blocks.len() * 8;
    let mut quants = Vec::with_capacity(count);
    let mut scales = Vec::with_capacity(count);
    let mut minima = Vec::with_capacity(count);
    for block in blocks {
        let (scale, minimum) = (f16_to_f32(read_half(block, 0)), f16_to_f32(read_half(block, 2)));
        for part in 0..8 {
            let (part_scale, part_minimum) = scale_and_minimum(&block[4..16], part);
            scales.push(f32_to_f16(scale * f32::from(part_scale)));
            minima.push(f32_to_f16(-minimum * f32::from(part_minimum)));
            quants.push(pack_part(&block[16..], part));
        }
    }
    Blocks::FourBit { quants, scales, minima }
}

/// Repacks one part of a Q4_K block. In the file two parts share 32 bytes, the first in the low nibbles; in
/// [`Blocks::FourBit`] each part has 16 bytes of its own.
fn pack_part(quants: &[u8], part: usize) -> [u8; 16] {
    let shared = &quants[part / 2 * 32..part / 2 * 32 + 32];
    let shift = part % 2 * 4;
    std::array::from_fn(|at| (shared[at] >> shift & 15) | (shared[at + 16] >> shift & 15) << 4)
}

#[cfg(test)]
mod tests;
