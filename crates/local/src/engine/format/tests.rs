//! Tests: dequantised numbers equal, bit for bit, those that candle reads from the same bytes.

use super::*;
use crate::engine::fixture::{candle_dtype, random_numbers};
use candle_core::quantized::QTensor;
use candle_core::{CpuStorage, Device, Tensor};
use std::borrow::Cow;

/// Every supported format.
fn all_formats() -> Vec<Format> {
    (0..256).filter_map(Format::from_ggml_type).collect()
}

fn candle_numbers(format: Format, bytes: &[u8]) -> Vec<f32> {
    let count = bytes.len() / format.block_bytes() * format.block_numbers();
    match candle_dtype(format).from_data(Cow::Borrowed(bytes)).dequantize(count).unwrap() {
        CpuStorage::F32(numbers) => numbers,
        other => panic!("{format:?}: {other:?}"),
    }
}

/// The bits of a number; all NaNs count as equal, because their payload bits may differ.
fn bits(number: f32) -> u32 {
    if number.is_nan() { f32::NAN.to_bits() } else { number.to_bits() }
}

fn assert_same(format: Format, bytes: &[u8]) {
    let (numbers, expected) = (format.dequantise(bytes), candle_numbers(format, bytes));
    assert_eq!(numbers.len(), expected.len(), "{format:?}");
    for (at, (a, b)) in numbers.iter().zip(&expected).enumerate() {
        assert_eq!(bits(*a), bits(*b), "{format:?}: number {at} is {a} and {b}");
    }
}

#[test]
fn block_sizes_match_candle() {
    assert_eq!(all_formats().len(), 13);
    for format in all_formats() {
        let dtype = candle_dtype(format);
        assert_eq!(format.block_numbers(), dtype.block_size(), "{format:?}");
        assert_eq!(format.block_bytes(), dtype.type_size(), "{format:?}");
    }
}

#[test]
fn quantised_numbers_decode_as_in_candle() {
    let numbers = Tensor::from_vec(random_numbers(5, 8 * 512, 0.3), (8, 512), &Device::Cpu).unwrap();
    for format in all_formats() {
        let written = QTensor::quantize(&numbers, candle_dtype(format)).unwrap();
        assert_same(format, &written.data().unwrap());
    }
}

#[test]
fn arbitrary_bytes_decode_as_in_candle() {
    let bytes: Vec<u8> =
        random_numbers(9, 200_000, 1.0).iter().map(|number| number.to_le_bytes()[1]).collect();
    for format in all_formats() {
        assert_same(format, &bytes[..bytes.len() / format.block_bytes() * format.block_bytes()]);
    }
}

#[test]
fn every_half_precision_number_decodes_exactly() {
    let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    for format in [Format::F16, Format::BF16] {
        assert_same(format, &bytes);
    }
}

#[test]
fn partial_block_is_ignored() {
    for format in all_formats() {
        assert!(format.dequantise(&[]).is_empty(), "{format:?}");
        let bytes = vec![0; format.block_bytes() * 2 - 1];
        assert_eq!(format.dequantise(&bytes).len(), format.block_numbers(), "{format:?}");
    }
}
