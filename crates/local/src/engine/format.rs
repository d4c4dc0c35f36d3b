//! Tensor number formats of GGUF: block sizes, and exact dequantisation to f32. `convert` turns them into the formats
//! that the kernels compute with.

mod k_quants;
mod legacy_quants;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

pub(crate) use k_quants::scale_and_minimum;

/// Number format of a tensor, named as in ggml.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
}

impl Format {
    /// Returns the format with the ggml type `number`, if supported.
    pub(crate) fn from_ggml_type(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            6 => Self::Q5_0,
            7 => Self::Q5_1,
            8 => Self::Q8_0,
            10 => Self::Q2K,
            11 => Self::Q3K,
            12 => Self::Q4K,
            13 => Self::Q5K,
            14 => Self::Q6K,
            30 => Self::BF16,
            _ => return None,
        })
    }

    /// Numbers per block.
    pub(crate) fn block_numbers(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => 1,
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => 32,
            Self::Q2K | Self::Q3K | Self::Q4K | Self::Q5K | Self::Q6K => 256,
        }
    }

    /// Bytes per block.
    pub(crate) fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q2K => 84,
            Self::Q3K => 110,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// Dequantises `bytes` to f32; a partial block at the end is ignored.
    pub(crate) fn dequantise(self, bytes: &[u8]) -> Vec<f32> {
        match self {
            Self::F32 => read_each(bytes, f32::from_le_bytes),
            // As a slice: for single numbers, `half` checks for the processor's instruction each time.
            Self::F16 => read_each(bytes, f16::from_le_bytes).to_f32_vec(),
            Self::BF16 => read_each(bytes, |bytes| bf16::from_le_bytes(bytes).to_f32()),
            Self::Q4_0 => dequantise_blocks(bytes, legacy_quants::q4_0),
            Self::Q4_1 => dequantise_blocks(bytes, legacy_quants::q4_1),
            Self::Q5_0 => dequantise_blocks(bytes, legacy_quants::q5_0),
            Self::Q5_1 => dequantise_blocks(bytes, legacy_quants::q5_1),
            Self::Q8_0 => dequantise_blocks(bytes, legacy_quants::q8_0),
            Self::Q2K => dequantise_blocks(bytes, k_quants::q2_k),
            Self::Q3K => dequantise_blocks(bytes, k_quants::q3_k),
            Self::Q4K => dequantise_blocks(bytes, k_quants::q4_k),
            Self::Q5K => dequantise_blocks(bytes, k_quants::q5_k),
            Self::Q6K => dequantise_blocks(bytes, k_quants::q6_k),
        }
    }
}

fn read_each<const BYTES: usize, N>(bytes: &[u8], read: impl Fn([u8; BYTES]) -> N) -> Vec<N> {
    bytes.as_chunks().0.iter().map(|bytes| read(*bytes)).collect()
}

fn dequantise_blocks<const BYTES: usize, const NUMBERS: usize>(
    bytes: &[u8],
    read: impl Fn(&[u8; BYTES], &mut [f32; NUMBERS]),
) -> Vec<f32> {
    let blocks = bytes.as_chunks().0;
    let mut numbers = vec![0f32; blocks.len() * NUMBERS];
    for (block, numbers) in blocks.iter().zip(numbers.as_chunks_mut().0) {
        read(block, numbers);
    }
    numbers
}

/// Reads the half-precision number at byte `at`.
fn read_half(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

#[cfg(test)]
mod tests;
