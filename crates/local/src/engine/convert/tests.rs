//! Tests: our blocks hold the numbers that candle reads from the same bytes.

use super::*;
use crate::engine::fixture::{candle_dtype, random_numbers};
use candle_core::quantized::QTensor;
use candle_core::{Device, Tensor as Numbers};

fn check(format: Format, far: f32) {
    let (rows, columns) = (8, 512);
    let numbers =
        Numbers::from_vec(random_numbers(3, rows * columns, 0.3), (rows, columns), &Device::Cpu).unwrap();
    let quantised = QTensor::quantize(&numbers, candle_dtype(format)).unwrap();
    let theirs: Vec<f32> =
        quantised.dequantize(&Device::Cpu).unwrap().flatten_all().unwrap().to_vec1().unwrap();
    let bytes = quantised.data().unwrap();
    let ours = matrix("tested", Tensor { format, rows, columns, bytes: &bytes }).unwrap();
    let mut row = vec![0f32; columns];
    for (at, theirs) in theirs.chunks_exact(columns).enumerate() {
        ours.dequantise_row(at, &mut row);
        for (a, b) in row.iter().zip(theirs) {
            assert!((a - b).abs() <= far, "{format:?}: {a} and {b}");
        }
    }
}

#[test]
fn four_bit_formats_keep_their_numbers() {
    check(Format::Q4_0, 2e-4);
    check(Format::Q4_1, 1e-6);
    check(Format::Q4K, 4e-4);
    check(Format::Q8_0, 1e-6);
}

#[test]
fn other_formats_come_as_near_as_eight_bits_allow() {
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
        check(format, 0.4 / 127.0 * 0.6);
    }
}

#[test]
fn columns_that_make_no_whole_blocks_are_refused() {
    let bytes = [0u8; 40];
    let tensor = Tensor { format: Format::F32, rows: 1, columns: 10, bytes: &bytes };
    assert!(matrix("odd", tensor).unwrap_err().contains("odd has 10 columns"));
}

#[test]
fn numbers_that_are_none_are_refused() {
    let bytes = f32::NAN.to_le_bytes();
    let aligned: Vec<u8> = bytes.to_vec();
    let tensor = Tensor { format: Format::F32, rows: 1, columns: 1, bytes: &aligned };
    assert!(vector("sick", tensor).unwrap_err().contains("not finite"));
}
