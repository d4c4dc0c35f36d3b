//! Tests: the conformance suite of the `Engine` trait. The native engine runs it on a fixture file and on real weights;
//! llama.cpp, when built in, runs it on real weights, and both engines' logits are compared.

use super::Engine;
use super::fixture::{self, ModelFixture};
use super::gguf::Gguf;
use super::mmap::map_file;
use super::native::NativeEngine;
use crate::generation::sampler::Sampler;

const SEQUENCES: usize = 3;

/// Appends `tokens` to `sequence` and returns the logits of the next token.
fn logits(engine: &mut dyn Engine, sequence: usize, tokens: &[u32]) -> Vec<f32> {
    let mut logits = Vec::new();
    engine.eval(sequence, tokens, Some(&mut logits)).unwrap();
    logits
}

/// Greedy decoding of `count` tokens, starting with the logits `next`.
fn greedy(engine: &mut dyn Engine, sequence: usize, mut next: Vec<f32>, count: usize) -> Vec<u32> {
    let mut sampler = Sampler::new(0.0, 1.0, 0);
    let mut sampled = Vec::new();
    while sampled.len() < count {
        let token = sampler.sample(&next).unwrap();
        sampled.push(token);
        next = logits(engine, sequence, &[token]);
    }
    sampled
}

/// Cosine similarity of two logit vectors after subtracting their means.
fn centred_cosine(left: &[f32], right: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let mean = |list: &[f32]| list.iter().sum::<f32>() / list.len() as f32;
    let centred = |list: &[f32]| list.iter().map(|logit| logit - mean(list)).collect::<Vec<_>>();
    let (left, right) = (centred(left), centred(right));
    dot(&left, &right) / (dot(&left, &left) * dot(&right, &right)).sqrt()
}

fn assert_conforms(engine: &mut dyn Engine, prompt: &[u32], other: &[u32]) {
    assert_eq!(engine.sequences(), SEQUENCES);
    assert!(engine.window_tokens() > prompt.len() + other.len() && engine.chunk_tokens() > 0);
    let (first, second) = prompt.split_at(prompt.len() / 2);

    let whole = logits(engine, 0, prompt);
    assert_eq!(engine.cached_tokens(0), prompt.len());
    let expected = greedy(engine, 0, whole.clone(), 8);
    assert_eq!(engine.cached_tokens(0), prompt.len() + 8);

    // Evaluated in two parts, the first without logits.
    engine.eval(1, first, None).unwrap();
    let parts = logits(engine, 1, second);
    assert!(centred_cosine(&whole, &parts) > 0.999, "two parts: {}", centred_cosine(&whole, &parts));

    // Continued with other tokens, truncated, and continued with the original ones.
    engine.truncate(1, first.len());
    engine.eval(1, other, None).unwrap();
    assert_eq!(engine.cached_tokens(1), first.len() + other.len());
    engine.truncate(1, first.len());
    assert_eq!(engine.cached_tokens(1), first.len());
    let again = logits(engine, 1, second);
    assert_eq!(greedy(engine, 1, again, 8), expected, "after truncation");

    // A copied prefix continues independently and leaves its source unchanged. Only logits are compared: the slot of a
    // sequence may change the last digits, and with them a nearly tied greedy token.
    engine.copy_prefix(0, 2, first.len());
    assert_eq!((engine.cached_tokens(2), engine.cached_tokens(0)), (first.len(), prompt.len() + 8));
    let copied = logits(engine, 2, second);
    assert!(centred_cosine(&whole, &copied) > 0.999, "copy: {}", centred_cosine(&whole, &copied));
    engine.truncate(0, prompt.len() - 1);
    let repeated = logits(engine, 0, &prompt[prompt.len() - 1..]);
    assert!(centred_cosine(&whole, &repeated) > 0.999, "source: {}", centred_cosine(&whole, &repeated));

    engine.truncate(0, 0);
    engine.copy_prefix(0, 1, 0);
    assert_eq!((engine.cached_tokens(0), engine.cached_tokens(1)), (0, 0));
}

#[test]
fn native_engine_conforms() {
    let file = fixture::write(&ModelFixture::default());
    let bytes = map_file(&file.path).unwrap();
    let gguf = Gguf::read(&bytes).unwrap();
    let mut engine = NativeEngine::read(&gguf, fixture::token_names().len(), 1, SEQUENCES).unwrap();
    let tokens: Vec<u32> = (0..150).map(|at| (at * 37 + 11) % 256).collect();
    assert_conforms(&mut engine, &tokens, &[5; 70]);
}

#[cfg(feature = "real-model-tests")]
mod real {
    use super::*;
    use crate::chat::vocabulary::Vocabulary;

    const TEXT: &str = include_str!("../../../../LICENSE-APACHE");

    struct RealModel {
        path: std::path::PathBuf,
        vocabulary_size: usize,
        prompt: Vec<u32>,
        other: Vec<u32>,
    }

    fn real_model() -> RealModel {
        let path = fixture::real_model_path();
        let bytes = map_file(&path).unwrap();
        let vocabulary = Vocabulary::read(&Gguf::read(&bytes).unwrap()).unwrap();
        let tokens = vocabulary.encode_plain(TEXT);
        let (prompt, other) = (tokens[..200].to_vec(), tokens[500..600].to_vec());
        RealModel { path, vocabulary_size: vocabulary.len(), prompt, other }
    }

    fn native_engine(real: &RealModel) -> NativeEngine {
        let bytes = map_file(&real.path).unwrap();
        NativeEngine::read(&Gguf::read(&bytes).unwrap(), real.vocabulary_size, 1, SEQUENCES).unwrap()
    }

    #[test]
    fn native_engine_conforms_with_real_weights() {
        let real = real_model();
        assert_conforms(&mut native_engine(&real), &real.prompt, &real.other);
    }

    #[cfg(feature = "llama-cpp")]
    mod llama_cpp {
        use super::*;
        use crate::engine::llama_cpp::{LlamaCpp, LlamaCppOptions};

        fn llama_cpp_engine(real: &RealModel, window_tokens: usize) -> LlamaCpp {
            let options = LlamaCppOptions {
                vocabulary_size: real.vocabulary_size,
                threads: 1,
                sequences: SEQUENCES,
                window_tokens_max: Some(window_tokens),
            };
            LlamaCpp::open(&real.path, &options).unwrap()
        }

        #[test]
        fn llama_cpp_conforms_with_real_weights() {
            let real = real_model();
            assert_conforms(&mut llama_cpp_engine(&real, 2_048), &real.prompt, &real.other);
        }

        #[test]
        fn both_engines_compute_similar_logits() {
            let real = real_model();
            let (mut native, mut llama_cpp) = (native_engine(&real), llama_cpp_engine(&real, 1_024));
            for end in [1, 20, 100, 200] {
                let similarity = centred_cosine(
                    &logits(&mut native, 0, &real.prompt[..end]),
                    &logits(&mut llama_cpp, 0, &real.prompt[..end]),
                );
                println!("{end} tokens: similarity {similarity}");
                assert!(similarity > 0.99, "{end}: {similarity}");
                native.truncate(0, 0);
                llama_cpp.truncate(0, 0);
            }
        }

        #[test]
        fn full_cache_evicts_other_sequences() {
            let real = real_model();
            let mut engine = llama_cpp_engine(&real, 256);
            engine.eval(0, &real.prompt[..150], None).unwrap();
            engine.eval(1, &real.prompt[..200], None).unwrap();
            assert_eq!((engine.cached_tokens(0), engine.cached_tokens(1)), (0, 200));
        }

        #[test]
        fn invalid_model_file_is_rejected() {
            let real = real_model();
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), b"GGUF is not all of it").unwrap();
            let options =
                LlamaCppOptions { vocabulary_size: 1, threads: 1, sequences: 1, window_tokens_max: None };
            assert!(LlamaCpp::open(file.path(), &options).unwrap_err().contains("llama.cpp"));
            let fault = LlamaCpp::open(&real.path, &options).unwrap_err();
            assert!(fault.contains("tokens in it"), "{fault}");
        }
    }
}
