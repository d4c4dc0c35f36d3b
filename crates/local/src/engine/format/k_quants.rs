//! Dequantisation of K-quants: blocks of 256 numbers in eight parts of 32, whose small scales share one half-precision
//! scale. Each byte of a bit field holds bits of the numbers at the same index in two, four or eight parts.

use super::read_half;

const PART_NUMBERS: usize = 32;

/// Q2_K. Layout: 16 bytes of scale and minimum, each for 16 numbers; two bits per quant; block scale and minimum.
pub(super) fn q2_k(block: &[u8; 84], numbers: &mut [f32; 256]) {
    let (scale, minimum) = (read_half(block, 80), read_half(block, 82));
    for (part, numbers) in parts(numbers) {
        let quants = &block[16 + part / 4 * PART_NUMBERS..][..PART_NUMBERS];
        let scales = half_part_values(part, |at| scale * f32::from(block[at] & 15));
        let minima = half_part_values(part, |at| minimum * f32::from(block[at] >> 4));
        for (at, number) in numbers.iter_mut().enumerate() {
            let quant = quants[at] >> (part % 4 * 2) & 3;
            *number = scales[at / 16] * f32::from(quant) - minima[at / 16];
        }
    }
}

/// Q3_K. Layout: the third bit of each quant; the lower two bits; 16 scales with offset 32; block scale. Quants have
/// offset 4.
pub(super) fn q3_k(block: &[u8; 110], numbers: &mut [f32; 256]) {
    let scale = read_half(block, 108);
    for (part, numbers) in parts(numbers) {
        let (thirds, quants) =
            (&block[..PART_NUMBERS], &block[PART_NUMBERS + part / 4 * PART_NUMBERS..][..PART_NUMBERS]);
        let scales = half_part_values(part, |at| scale * (f32::from(q3_k_scale(&block[96..108], at)) - 32.0));
        for (at, number) in numbers.iter_mut().enumerate() {
            let quant = (quants[at] >> (part % 4 * 2) & 3) | (thirds[at] >> part & 1) << 2;
            *number = scales[at / 16] * (f32::from(quant) - 4.0);
        }
    }
}

/// Unpacks the six-bit scale `at`: eight bytes hold the lower four bits of two scales each, four bytes the upper two
/// bits of four scales each.
fn q3_k_scale(bytes: &[u8], at: usize) -> u8 {
    (bytes[at % 8] >> (at / 8 * 4) & 15) | (bytes[8 + at % 4] >> (at / 4 * 2) & 3) << 4
}

/// Q4_K. Layout: block scale and minimum; those of each part; four bits per quant.
pub(super) fn q4_k(block: &[u8; 144], numbers: &mut [f32; 256]) {
    for (part, numbers) in parts(numbers) {
        let (scale, minimum) = part_scale_and_minimum(block, part);
        let quants = &block[16 + part / 2 * PART_NUMBERS..][..PART_NUMBERS];
        for (number, quant) in numbers.iter_mut().zip(quants) {
            *number = scale * f32::from(quant >> (part % 2 * 4) & 15) - minimum;
        }
    }
}

/// Q5_K. Layout as Q4_K, with the fifth bit of each quant before the four-bit quants.
pub(super) fn q5_k(block: &[u8; 176], numbers: &mut [f32; 256]) {
    for (part, numbers) in parts(numbers) {
        let (scale, minimum) = part_scale_and_minimum(block, part);
        let (fifths, quants) =
            (&block[16..][..PART_NUMBERS], &block[48 + part / 2 * PART_NUMBERS..][..PART_NUMBERS]);
        for (at, number) in numbers.iter_mut().enumerate() {
            let quant = (quants[at] >> (part % 2 * 4) & 15) | (fifths[at] >> part & 1) << 4;
            *number = scale * f32::from(quant) - minimum;
        }
    }
}

/// Q6_K. Layout: lower four bits of each quant; upper two; 16 signed scales; block scale. Quants have offset 32.
pub(super) fn q6_k(block: &[u8; 210], numbers: &mut [f32; 256]) {
    let scale = read_half(block, 208);
    for (part, numbers) in parts(numbers) {
        let (group, index) = (part / 4, part % 4);
        let lower = &block[group * 2 * PART_NUMBERS + index % 2 * PART_NUMBERS..][..PART_NUMBERS];
        let upper = &block[128 + group * PART_NUMBERS..][..PART_NUMBERS];
        let scales = half_part_values(part, |at| scale * f32::from(block[192 + at].cast_signed()));
        for (at, number) in numbers.iter_mut().enumerate() {
            let quant = (lower[at] >> (index / 2 * 4) & 15) | (upper[at] >> (index * 2) & 3) << 4;
            *number = scales[at / 16] * (f32::from(quant) - 32.0);
        }
    }
}

/// Unpacks the six-bit scale and minimum of `part`, which Q4_K and Q5_K spread over twelve bytes.
pub(crate) fn scale_and_minimum(bytes: &[u8], part: usize) -> (u8, u8) {
    if part < 4 {
        return (bytes[part] & 63, bytes[part + 4] & 63);
    }
    let low = bytes[part + 4];
    ((low & 15) | (bytes[part - 4] >> 6 << 4), (low >> 4) | (bytes[part] >> 6 << 4))
}

/// Returns the scale and minimum of `part` of a Q4_K or Q5_K block.
fn part_scale_and_minimum(block: &[u8], part: usize) -> (f32, f32) {
    let (scale, minimum) = scale_and_minimum(&block[4..16], part);
    (read_half(block, 0) * f32::from(scale), read_half(block, 2) * f32::from(minimum))
}

fn parts(numbers: &mut [f32; 256]) -> impl Iterator<Item = (usize, &mut [f32; PART_NUMBERS])> {
    numbers.as_chunks_mut().0.iter_mut().enumerate()
}

/// Calls `read` for the two halves of `part`, which have a scale each.
fn half_part_values(part: usize, read: impl Fn(usize) -> f32) -> [f32; 2] {
    [read(part * 2), read(part * 2 + 1)]
}
