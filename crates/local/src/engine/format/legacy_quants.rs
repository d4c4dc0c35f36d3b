//! Dequantisation of legacy quants: blocks of 32 numbers with one scale, and with a minimum in formats whose name ends
//! in 1. The low nibble of byte `i` is number `i`, the high nibble number `i + 16`.

use super::read_half;

/// Q4_0. Layout: scale; 16 bytes of quants with offset 8.
pub(super) fn q4_0(block: &[u8; 18], numbers: &mut [f32; 32]) {
    let scale = read_half(block, 0);
    dequantise_pairs(&block[2..], numbers, |quant, _| (quant - 8.0) * scale);
}

/// Q4_1. Layout: scale; minimum; 16 bytes of quants.
pub(super) fn q4_1(block: &[u8; 20], numbers: &mut [f32; 32]) {
    let (scale, minimum) = (read_half(block, 0), read_half(block, 2));
    dequantise_pairs(&block[4..], numbers, |quant, _| quant * scale + minimum);
}

/// Q5_0. Layout: scale; 32 fifth bits; 16 bytes of quants with offset 16.
pub(super) fn q5_0(block: &[u8; 22], numbers: &mut [f32; 32]) {
    let (scale, fifths) = (read_half(block, 0), fifth_bits(block, 2));
    dequantise_pairs(&block[6..], numbers, |quant, at| (quant + fifths[at] - 16.0) * scale);
}

/// Q5_1. Layout: scale; minimum; 32 fifth bits; 16 bytes of quants.
pub(super) fn q5_1(block: &[u8; 24], numbers: &mut [f32; 32]) {
    let (scale, minimum, fifths) = (read_half(block, 0), read_half(block, 2), fifth_bits(block, 4));
    dequantise_pairs(&block[8..], numbers, |quant, at| (quant + fifths[at]) * scale + minimum);
}

/// Q8_0. Layout: scale; 32 signed quants.
pub(super) fn q8_0(block: &[u8; 34], numbers: &mut [f32; 32]) {
    let scale = read_half(block, 0);
    for (number, quant) in numbers.iter_mut().zip(&block[2..]) {
        *number = f32::from(quant.cast_signed()) * scale;
    }
}

/// Dequantises both nibbles of each byte; `read` gets the four bits and the number's index.
#[inline(always)]
fn dequantise_pairs(bytes: &[u8], numbers: &mut [f32; 32], read: impl Fn(f32, usize) -> f32) {
    for (at, byte) in bytes.iter().enumerate().take(16) {
        numbers[at] = read(f32::from(byte & 15), at);
        numbers[at + 16] = read(f32::from(byte >> 4), at + 16);
    }
}

/// Returns what the fifth bits at byte `at` add to each quant: 16 or 0.
#[inline(always)]
fn fifth_bits(block: &[u8], at: usize) -> [f32; 32] {
    std::array::from_fn(|number| f32::from((block[at + number / 8] >> (number % 8) & 1) << 4))
}
