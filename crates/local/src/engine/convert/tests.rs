//! Tests: converted blocks hold the numbers that candle reads from the same bytes.

use super::*;
use crate::engine::fixture::{candle_dtype, random_numbers};
use candle_core::quantized::QTensor;
use candle_core::{Device, Tensor as Numbers};

fn assert_matches_candle(format: Format, tolerance: f32) {
    let (rows, columns) = (8, 512);
    let numbers =
        Numbers::from_vec(random_numbers(3, rows * columns, 0.3), (rows, columns), &Device::Cpu).unwrap();
    let quantised = QTensor::quantize(&numbers, candle_dtype(format)).unwrap();
    let expected: Vec<f32> =
        quantised.dequantize(&Device::Cpu).unwrap().flatten_all().unwrap().to_vec1().unwrap();
    let bytes = quantised.data().unwrap();
    let converted = matrix("tested", Tensor { format, rows, columns, bytes: &bytes }).unwrap();
    let mut row = vec![0f32; columns];
    for (at, expected) in expected.chunks_exact(columns).enumerate() {
        converted.dequantise_row(at, &mut row);
        for (a, b) in row.iter().zip(expected) {
            assert!((a - b).abs() <= tolerance, "{format:?}: {a} and {b}");
        }
    }
}

#[test]
fn native_block_formats_convert_without_loss() {
    assert_matches_candle(Format::Q4_0, 2e-4);
    assert_matches_candle(Format::Q4_1, 1e-6);
    assert_matches_candle(Format::Q4K, 4e-4);
    assert_matches_candle(Format::Q8_0, 1e-6);
}

#[test]
fn other_formats_lose_only_eight_bit_rounding() {
    for format in [
        Format::F32,
        Format::F16,
        Format::BF16,
        Format::Q2K,
        Format::Q3K,
        Format::Q5_0,
        Format::Q5_1,
        Format::Q5K,
        Format::Q6K,
    ] {
        assert_matches_candle(format, 0.4 / 127.0 * 0.6);
    }
}

#[test]
fn partial_blocks_are_rejected() {
    let bytes = [0u8; 40];
    let tensor = Tensor { format: Format::F32, rows: 1, columns: 10, bytes: &bytes };
    assert!(matrix("odd", tensor).unwrap_err().contains("odd has 10 columns"));
}

#[test]
fn nan_in_a_vector_is_rejected() {
    let bytes = f32::NAN.to_le_bytes();
    let aligned: Vec<u8> = bytes.to_vec();
    let tensor = Tensor { format: Format::F32, rows: 1, columns: 1, bytes: &aligned };
    assert!(vector("norm", tensor).unwrap_err().contains("not finite"));
}
