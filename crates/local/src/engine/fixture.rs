//! Test fixtures: small GGUF files with random weights, written by candle, so that two implementations agree on the
//! format.

use std::path::PathBuf;

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};

use super::format::Format;

/// Parameters of a fixture model file.
#[derive(Clone)]
pub(crate) struct ModelFixture {
    pub(crate) architecture: &'static str,
    pub(crate) format: Format,
    pub(crate) template: Option<&'static str>,
    pub(crate) pre_tokenizer: &'static str,
    pub(crate) metadata_overrides: Vec<(&'static str, Option<Value>)>,
    pub(crate) omitted_tensor: Option<&'static str>,
}

impl Default for ModelFixture {
    fn default() -> Self {
        Self {
            architecture: "llama",
            format: Format::Q8_0,
            template: None,
            pre_tokenizer: "smollm",
            metadata_overrides: Vec::new(),
            omitted_tensor: None,
        }
    }
}

pub(crate) const HIDDEN: usize = 256;
pub(crate) const FEED_FORWARD_SIZE: usize = 256;
pub(crate) const HEADS: usize = 4;
pub(crate) const KV_HEADS: usize = 2;
pub(crate) const LAYERS: usize = 2;
pub(crate) const WINDOW_TOKENS: usize = 512;

/// A fixture file in a temporary directory; dropping it deletes both.
pub(crate) struct FixtureFile {
    pub(crate) path: PathBuf,
    _folder: tempfile::TempDir,
}

/// Returns the path in `NEXUS3_TEST_MODEL`.
#[cfg(feature = "real-model-tests")]
#[expect(clippy::disallowed_methods, reason = "the test's environment names the weights file")]
pub(crate) fn real_model_path() -> PathBuf {
    std::env::var_os("NEXUS3_TEST_MODEL").expect("set NEXUS3_TEST_MODEL to a GGUF file").into()
}

/// Maps `format` to candle's type.
pub(crate) fn candle_dtype(format: Format) -> GgmlDType {
    match format {
        Format::F32 => GgmlDType::F32,
        Format::F16 => GgmlDType::F16,
        Format::BF16 => GgmlDType::BF16,
        Format::Q4_0 => GgmlDType::Q4_0,
        Format::Q4_1 => GgmlDType::Q4_1,
        Format::Q5_0 => GgmlDType::Q5_0,
        Format::Q5_1 => GgmlDType::Q5_1,
        Format::Q8_0 => GgmlDType::Q8_0,
        Format::Q2K => GgmlDType::Q2K,
        Format::Q3K => GgmlDType::Q3K,
        Format::Q4K => GgmlDType::Q4K,
        Format::Q5K => GgmlDType::Q5K,
        Format::Q6K => GgmlDType::Q6K,
    }
}

/// Returns `count` pseudo-random numbers in ±`size`, the same for the same seed.
pub(crate) fn random_numbers(seed: u64, count: usize, size: f32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ((state >> 40) as f32 / (1u32 << 24) as f32 - 0.5) * 2.0 * size
    };
    (0..count).map(|_| next()).collect()
}

/// Token names of the fixture vocabulary: every byte, some merged words, the control tokens.
pub(crate) fn token_names() -> Vec<String> {
    let character = |byte: u32| match byte {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => byte,
        0x00..=0x20 => byte + 0x100,
        0x7f..=0xa0 => byte - 0x7f + 0x121,
        _ => 0x143,
    };
    let bytes = (0..256).map(|byte| char::from_u32(character(byte)).unwrap().to_string());
    let words = ["he", "ll", "hell", "hello", "Ġhello"].map(str::to_owned);
    let controls = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"].map(str::to_owned);
    bytes.chain(words).chain(controls).collect()
}

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

fn metadata(fixture: &ModelFixture) -> Vec<(String, Value)> {
    let key = |name: &str| format!("{}.{name}", fixture.architecture);
    let number = |value: usize| Value::U32(u32::try_from(value).unwrap());
    let names = token_names();
    let kinds = names.iter().map(|name| Value::I32(if name.starts_with("<|") { 3 } else { 1 })).collect();
    let merges = ["h e", "l l", "he ll", "hell o", "Ġ hello"].map(text).to_vec();
    let mut metadata_entries = vec![
        ("general.architecture".to_owned(), text(fixture.architecture)),
        ("general.name".to_owned(), text("Fixture")),
        (key("block_count"), number(LAYERS)),
        (key("embedding_length"), number(HIDDEN)),
        (key("feed_forward_length"), number(FEED_FORWARD_SIZE)),
        (key("attention.head_count"), number(HEADS)),
        (key("attention.head_count_kv"), number(KV_HEADS)),
        (key("context_length"), number(WINDOW_TOKENS)),
        (key("rope.freq_base"), Value::F32(10_000.0)),
        (key("attention.layer_norm_rms_epsilon"), Value::F32(1e-5)),
        ("tokenizer.ggml.model".to_owned(), text("gpt2")),
        ("tokenizer.ggml.pre".to_owned(), text(fixture.pre_tokenizer)),
        ("tokenizer.ggml.tokens".to_owned(), Value::Array(names.iter().map(|name| text(name)).collect())),
        ("tokenizer.ggml.token_type".to_owned(), Value::Array(kinds)),
        ("tokenizer.ggml.merges".to_owned(), Value::Array(merges)),
        ("tokenizer.ggml.eos_token_id".to_owned(), number(names.len() - 1)),
    ];
    if let Some(template) = fixture.template {
        metadata_entries.push(("tokenizer.chat_template".to_owned(), text(template)));
    }
    for (name, value) in &fixture.metadata_overrides {
        metadata_entries.retain(|(key, _)| key != name);
        metadata_entries.extend(value.clone().map(|value| ((*name).to_owned(), value)));
    }
    metadata_entries
}

fn tensor_shapes(fixture: &ModelFixture) -> Vec<(String, usize, usize)> {
    let (keys, vocabulary) = (KV_HEADS * HIDDEN / HEADS, token_names().len());
    let mut shapes = vec![
        ("token_embd.weight".to_owned(), vocabulary, HIDDEN),
        ("output_norm.weight".to_owned(), 1, HIDDEN),
    ];
    for layer in 0..LAYERS {
        for (name, rows, columns) in [
            ("attn_norm.weight", 1, HIDDEN),
            ("attn_q.weight", HIDDEN, HIDDEN),
            ("attn_k.weight", keys, HIDDEN),
            ("attn_v.weight", keys, HIDDEN),
            ("attn_output.weight", HIDDEN, HIDDEN),
            ("ffn_norm.weight", 1, HIDDEN),
            ("ffn_gate.weight", FEED_FORWARD_SIZE, HIDDEN),
            ("ffn_up.weight", FEED_FORWARD_SIZE, HIDDEN),
            ("ffn_down.weight", HIDDEN, FEED_FORWARD_SIZE),
        ] {
            shapes.push((format!("blk.{layer}.{name}"), rows, columns));
        }
        if fixture.architecture == "qwen2" {
            shapes.push((format!("blk.{layer}.attn_q.bias"), 1, HIDDEN));
            shapes.push((format!("blk.{layer}.attn_k.bias"), 1, keys));
            shapes.push((format!("blk.{layer}.attn_v.bias"), 1, keys));
        }
    }
    shapes
}

/// Writes the model file that `fixture` describes.
pub(crate) fn write(fixture: &ModelFixture) -> FixtureFile {
    let mut tensors = Vec::new();
    for (seed, (name, rows, columns)) in (1u64..).zip(tensor_shapes(fixture)) {
        if fixture.omitted_tensor == Some(name.as_str()) {
            continue;
        }
        let mut numbers = random_numbers(seed, rows * columns, 0.15);
        if name.ends_with("norm.weight") {
            numbers.iter_mut().for_each(|number| *number += 1.0);
        }
        let format = if rows == 1 { Format::F32 } else { fixture.format };
        let shape: Vec<usize> = if rows == 1 { vec![columns] } else { vec![rows, columns] };
        let tensor = Tensor::from_vec(numbers, shape, &Device::Cpu).unwrap();
        tensors.push((name, QTensor::quantize(&tensor, candle_dtype(format)).unwrap()));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fixture.gguf");
    let mut file = std::fs::File::create(&path).unwrap();
    let metadata_entries = metadata(fixture);
    let metadata_entries: Vec<(&str, &Value)> =
        metadata_entries.iter().map(|(key, value)| (key.as_str(), value)).collect();
    let tensors: Vec<(&str, &QTensor)> =
        tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    gguf_file::write(&mut file, &metadata_entries, &tensors).unwrap();
    FixtureFile { path, _folder: folder }
}
