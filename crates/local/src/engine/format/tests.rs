//! Tests: our numbers are bit for bit those that candle reads from the same bytes.

use super::*;
use crate::engine::fixture::{candle_dtype, random_numbers};
use candle_core::quantized::QTensor;
use candle_core::{CpuStorage, Device, Tensor};
use std::borrow::Cow;

/// Every format that files may name.
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

/// Numbers that are none differ in bits that mean nothing.
fn bits(number: f32) -> u32 {
    if number.is_nan() { f32::NAN.to_bits() } else { number.to_bits() }
}

fn assert_same(format: Format, bytes: &[u8]) {
    let (ours, theirs) = (format.dequantise(bytes), candle_numbers(format, bytes));
    assert_eq!(ours.len(), theirs.len(), "{format:?}");
    for (at, (a, b)) in ours.iter().zip(&theirs).enumerate() {
        assert_eq!(bits(*a), bits(*b), "{format:?}: number {at} is {a} and {b}");
    }
}

#[test]
fn every_format_has_its_blocks() {
    assert_eq!(all_formats().len(), 13);
    for format in all_formats() {
        let theirs = candle_dtype(format);
        assert_eq!(format.block_numbers(), theirs.block_size(), "{format:?}");
        assert_eq!(format.block_bytes(), theirs.type_size(), "{format:?}");
    }
}

#[test]
fn written_numbers_are_read_as_candle_reads_them() {
    let numbers = Tensor::from_vec(random_numbers(5, 8 * 512, 0.3), (8, 512), &Device::Cpu).unwrap();
    for format in all_formats() {
        let written = QTensor::quantize(&numbers, candle_dtype(format)).unwrap();
        assert_same(format, &written.data().unwrap());
    }
}

#[test]
fn any_bytes_are_read_as_candle_reads_them() {
    let bytes: Vec<u8> =
        random_numbers(9, 200_000, 1.0).iter().map(|number| number.to_le_bytes()[1]).collect();
    for format in all_formats() {
        assert_same(format, &bytes[..bytes.len() / format.block_bytes() * format.block_bytes()]);
    }
}

#[test]
fn every_half_number_is_read_exactly() {
    let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    for format in [Format::F16, Format::BF16] {
        assert_same(format, &bytes);
    }
}

#[test]
fn bytes_that_make_no_whole_block_are_passed_over() {
    for format in all_formats() {
        assert!(format.dequantise(&[]).is_empty(), "{format:?}");
        let bytes = vec![0; format.block_bytes() * 2 - 1];
        assert_eq!(format.dequantise(&bytes).len(), format.block_numbers(), "{format:?}");
    }
}
