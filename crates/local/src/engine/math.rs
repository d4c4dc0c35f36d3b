//! Arithmetic that the compiler vectorizes inside a kernel: half-precision conversion, dot product, exponential.
//! Scalar Rust with the same results on every machine.

/// Converts a half-precision number by shifting its bits; wrong only for infinities and NaN, which no weight holds.
#[inline(always)]
pub(crate) fn f16_to_f32(half: u16) -> f32 {
    const POWER: f32 = f32::from_bits(0x7780_0000);
    let bits = u32::from(half);
    let magnitude = f32::from_bits((bits & 0x7fff) << 13) * POWER;
    f32::from_bits(magnitude.to_bits() | ((bits & 0x8000) << 16))
}

/// Converts half-precision numbers into `into`, a slice of the same length.
#[inline(always)]
pub(crate) fn f16_to_f32_into(halves: &[u16], into: &mut [f32]) {
    for (half, wide) in halves.iter().zip(into) {
        *wide = f16_to_f32(*half);
    }
}

/// Rounds to half precision; numbers beyond its range become the largest finite one.
pub(crate) fn f32_to_f16(wide: f32) -> u16 {
    half::f16::from_f32(wide.clamp(-65_504.0, 65_504.0)).to_bits()
}

/// Dot product of two slices of the same length, in independent lanes.
#[inline(always)]
pub(crate) fn dot(left: &[f32], right: &[f32]) -> f32 {
    let mut lanes = [[0f32; 8]; 4];
    let (left_chunks, left_remainder) = left.as_chunks::<32>();
    let (right_chunks, right_remainder) = right.as_chunks::<32>();
    for (a, b) in left_chunks.iter().zip(right_chunks) {
        for part in 0..4 {
            for lane in 0..8 {
                lanes[part][lane] += a[part * 8 + lane] * b[part * 8 + lane];
            }
        }
    }
    let mut lane_sums = [0f32; 8];
    for lane in 0..8 {
        lane_sums[lane] = (lanes[0][lane] + lanes[1][lane]) + (lanes[2][lane] + lanes[3][lane]);
    }
    let (left_chunks, left_remainder) = left_remainder.as_chunks::<8>();
    let (right_chunks, right_remainder) = right_remainder.as_chunks::<8>();
    for (a, b) in left_chunks.iter().zip(right_chunks) {
        for lane in 0..8 {
            lane_sums[lane] += a[lane] * b[lane];
        }
    }
    let mut sum = sum_lanes(lane_sums);
    for (a, b) in left_remainder.iter().zip(right_remainder) {
        sum += a * b;
    }
    sum
}

/// Sums eight lanes, always in the same order.
#[inline(always)]
pub(crate) fn sum_lanes(lanes: [f32; 8]) -> f32 {
    ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]))
}

/// e to the power of `x`, accurate to a few units in the last place. The argument is clamped to −87..88, so the result
/// is always finite and positive.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the clamp keeps the exponent within ±127")]
pub(crate) fn exponential(x: f32) -> f32 {
    let x = x.clamp(-87.0, 88.0);
    // Adding and subtracting 1.5 · 2²³ rounds to the nearest integer without a library call.
    const ROUND: f32 = 12_582_912.0;
    let power = (x * std::f32::consts::LOG2_E + ROUND) - ROUND;
    let rest = (x - power * 0.693_359_4) - power * -2.121_944_4e-4;
    let mut value = 1.987_569_1e-4;
    value = value * rest + 1.398_2e-3;
    value = value * rest + 8.333_452e-3;
    value = value * rest + 4.166_579_6e-2;
    value = value * rest + 1.666_666_5e-1;
    value = value * rest + 5e-1;
    value = value * rest * rest + rest + 1.0;
    value * f32::from_bits(((power as i32 + 127) << 23).cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_round_trips() {
        for bits in (0..0x7c00u16).chain(0x8000..0xfc00) {
            assert_eq!(f16_to_f32(bits).to_bits(), half::f16::from_bits(bits).to_f32().to_bits());
            assert_eq!(f32_to_f16(f16_to_f32(bits)), bits);
        }
    }

    #[test]
    fn exponential_is_close_to_the_standard_library() {
        let mut x = -80.0f32;
        while x < 80.0 {
            let (actual, expected) = (exponential(x), x.exp());
            assert!((actual - expected).abs() <= expected * 4e-7, "{x}: {actual} {expected}");
            x += 0.037;
        }
        assert!(exponential(-1e9) < 1e-37);
        assert!(exponential(1e9).is_finite());
    }

    #[test]
    fn dot_product_uses_every_element() {
        let left: Vec<f32> = (0u8..53).map(f32::from).collect();
        assert!((dot(&left, &left) - 48_230.0).abs() < 1e-3);
    }
}
