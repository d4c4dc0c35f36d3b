//! Tests: damaged files are rejected with a reason, without a panic and without allocating more than the file holds.

use super::*;
use crate::engine::fixture::{self, ModelFixture};
use crate::generation::{EngineKind, LoadFault, LoadOptions, LoadedModel};
use candle_core::quantized::gguf_file::Value;
use std::path::Path;

const OPTIONS: LoadOptions =
    LoadOptions { engine: EngineKind::Native, threads: 1, window_tokens_max: None, sequences: 1 };

fn load_fault(path: &Path) -> String {
    LoadedModel::open(path, &OPTIONS).unwrap_err().to_string()
}

#[test]
fn fixture_model_loads_with_its_name_and_window() {
    let file = fixture::write(&ModelFixture::default());
    let model = LoadedModel::open(&file.path, &OPTIONS).unwrap();
    assert_eq!((model.name(), model.window_tokens()), ("Fixture", fixture::WINDOW_TOKENS));
    let options = LoadOptions { window_tokens_max: Some(100), ..OPTIONS };
    assert_eq!(LoadedModel::open(&file.path, &options).unwrap().window_tokens(), 100);
}

#[test]
fn file_truncated_anywhere_is_rejected() {
    let file = fixture::write(&ModelFixture::default());
    let bytes = std::fs::read(&file.path).unwrap();
    let in_tensors = bytes.len() - fixture::token_names().len() * 272;
    for length in (0..2_000).chain((2_000..bytes.len() - 64).step_by(997)).chain([in_tensors]) {
        assert!(Gguf::read(&bytes[..length]).is_err(), "truncated at {length}");
    }
}

#[test]
fn corrupt_header_bytes_never_panic() {
    let file = fixture::write(&ModelFixture::default());
    let bytes = std::fs::read(&file.path).unwrap();
    for at in 0..1_200 {
        for value in [0x00, 0x7f, 0xff] {
            let mut corrupt = bytes.clone();
            corrupt[at] = value;
            if let Ok(file) = Gguf::read(&corrupt) {
                drop(crate::chat::vocabulary::Vocabulary::read(&file));
            }
        }
    }
}

#[test]
fn missing_empty_and_foreign_files_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.gguf");
    assert!(matches!(LoadedModel::open(&path, &OPTIONS), Err(LoadFault::Unreadable { .. })));
    std::fs::write(&path, b"").unwrap();
    LoadedModel::open(&path, &OPTIONS).unwrap_err();
    std::fs::write(&path, vec![b'x'; 4096]).unwrap();
    assert!(load_fault(&path).contains("not a GGUF file"));
    assert!(matches!(LoadedModel::open(folder.path(), &OPTIONS), Err(LoadFault::Unreadable { .. })));
}

#[test]
fn invalid_metadata_is_rejected_by_name() {
    let cases: [(&str, Option<Value>, &str); 11] = [
        ("general.architecture", Some(Value::String("bert".to_owned())), "architecture is bert"),
        ("general.alignment", Some(Value::U32(0)), "alignment 0"),
        ("llama.block_count", Some(Value::U32(4_000_000)), "llama.block_count is 4000000"),
        ("llama.block_count", None, "llama.block_count is missing"),
        ("llama.block_count", Some(Value::U32(3)), "blk.2.attn_norm.weight is missing"),
        ("llama.embedding_length", Some(Value::U32(512)), "expected"),
        ("llama.attention.head_count", Some(Value::U32(3)), "do not fit together"),
        ("llama.rope.scaling.type", Some(Value::String("yarn".to_owned())), "RoPE scaling yarn"),
        ("tokenizer.ggml.pre", Some(Value::String("martian".to_owned())), "pre-tokenizer martian"),
        ("tokenizer.ggml.model", Some(Value::String("llama".to_owned())), "tokenizer is llama"),
        ("tokenizer.chat_template", Some(Value::String("{% if %}".to_owned())), "chat template"),
    ];
    for (key, value, reason) in cases {
        let file = fixture::write(&ModelFixture {
            metadata_overrides: vec![(key, value)],
            ..ModelFixture::default()
        });
        let fault = load_fault(&file.path);
        assert!(fault.contains(reason), "{key}: {fault}");
    }
}

#[test]
fn missing_tensor_is_named() {
    let file = fixture::write(&ModelFixture {
        omitted_tensor: Some("blk.1.ffn_up.weight"),
        ..ModelFixture::default()
    });
    assert!(load_fault(&file.path).contains("tensor blk.1.ffn_up.weight is missing"));
}

#[test]
fn counts_beyond_the_file_allocate_nothing() {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend(1u64.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    bytes.push(b'k');
    bytes.extend(9u32.to_le_bytes());
    bytes.extend(8u32.to_le_bytes());
    bytes.extend(u64::MAX.to_le_bytes());
    assert!(Gguf::read(&bytes).unwrap_err().contains("array elements"));
    let at = bytes.len() - 8;
    bytes[at..].copy_from_slice(&3_000_000u64.to_le_bytes());
    assert!(Gguf::read(&bytes).unwrap_err().contains("header is truncated"));
}
