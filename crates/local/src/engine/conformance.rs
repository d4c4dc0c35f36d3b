//! Tests: what every engine has to hold, whoever computes. Our own engine runs them on a made-up file and on real weights,
//! llama.cpp on real weights when it is part of the build; then both are held against each other.

use super::Engine;
use super::fixture::{self, ModelFixture};
use super::gguf::Gguf;
use super::mmap::map_file;
use super::native::NativeEngine;
use crate::generation::sampler::Sampler;

const SEQUENCES: usize = 3;

/// The scores after `tokens`, read behind what `sequence` holds.
fn scores(engine: &mut dyn Engine, sequence: usize, tokens: &[u32]) -> Vec<f32> {
    let mut scores = Vec::new();
    engine.eval(sequence, tokens, Some(&mut scores)).unwrap();
    scores
}

/// The likeliest tokens, each read before the next, from `scores` on.
fn greedy(engine: &mut dyn Engine, sequence: usize, mut next: Vec<f32>, count: usize) -> Vec<u32> {
    let mut sampler = Sampler::new(0.0, 1.0, 0);
    let mut drawn = Vec::new();
    while drawn.len() < count {
        let token = sampler.sample(&next).unwrap();
        drawn.push(token);
        next = scores(engine, sequence, &[token]);
    }
    drawn
}

/// How alike two lists of scores are: 1 is the same direction.
fn centred_cosine(left: &[f32], right: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let middle = |list: &[f32]| list.iter().sum::<f32>() / list.len() as f32;
    let centred = |list: &[f32]| list.iter().map(|score| score - middle(list)).collect::<Vec<_>>();
    let (left, right) = (centred(left), centred(right));
    dot(&left, &right) / (dot(&left, &left) * dot(&right, &right)).sqrt()
}

fn assert_conforms(engine: &mut dyn Engine, prompt: &[u32], other: &[u32]) {
    assert_eq!(engine.sequences(), SEQUENCES);
    assert!(engine.window_tokens() > prompt.len() + other.len() && engine.chunk_tokens() > 0);
    let (first, rest) = prompt.split_at(prompt.len() / 2);

    let whole = scores(engine, 0, prompt);
    assert_eq!(engine.cached_tokens(0), prompt.len());
    let expected = greedy(engine, 0, whole.clone(), 8);
    assert_eq!(engine.cached_tokens(0), prompt.len() + 8);

    // In two parts, of which the first wants no scores.
    engine.eval(1, first, None).unwrap();
    let parts = scores(engine, 1, rest);
    assert!(centred_cosine(&whole, &parts) > 0.999, "cut: {}", centred_cosine(&whole, &parts));

    // Cut back behind something else, and gone on.
    engine.truncate(1, first.len());
    engine.eval(1, other, None).unwrap();
    assert_eq!(engine.cached_tokens(1), first.len() + other.len());
    engine.truncate(1, first.len());
    assert_eq!(engine.cached_tokens(1), first.len());
    let again = scores(engine, 1, rest);
    assert_eq!(greedy(engine, 1, again, 8), expected, "after a cut");

    // Where a sequence lies may change the last digits, and with them a token that was nearly another. So only the scores
    // are compared here. A copy of a beginning goes on by itself, and what it was taken from is left alone.
    engine.copy_prefix(0, 2, first.len());
    assert_eq!((engine.cached_tokens(2), engine.cached_tokens(0)), (first.len(), prompt.len() + 8));
    let copied = scores(engine, 2, rest);
    assert!(centred_cosine(&whole, &copied) > 0.999, "a copy: {}", centred_cosine(&whole, &copied));
    engine.truncate(0, prompt.len() - 1);
    let repeated = scores(engine, 0, &prompt[prompt.len() - 1..]);
    assert!(centred_cosine(&whole, &repeated) > 0.999, "copied from: {}", centred_cosine(&whole, &repeated));

    engine.truncate(0, 0);
    engine.copy_prefix(0, 1, 0);
    assert_eq!((engine.cached_tokens(0), engine.cached_tokens(1)), (0, 0));
}

#[test]
fn our_own_engine_conforms() {
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
        vocabulary: usize,
        prompt: Vec<u32>,
        other: Vec<u32>,
    }

    fn real_model() -> RealModel {
        let path = fixture::real_model_path();
        let bytes = map_file(&path).unwrap();
        let vocabulary = Vocabulary::read(&Gguf::read(&bytes).unwrap()).unwrap();
        let tokens = vocabulary.encode_plain(TEXT);
        let (prompt, other) = (tokens[..200].to_vec(), tokens[500..600].to_vec());
        RealModel { path, vocabulary: vocabulary.len(), prompt, other }
    }

    fn native_engine(real: &RealModel) -> NativeEngine {
        let bytes = map_file(&real.path).unwrap();
        NativeEngine::read(&Gguf::read(&bytes).unwrap(), real.vocabulary, 1, SEQUENCES).unwrap()
    }

    #[test]
    fn our_own_engine_conforms_with_real_weights() {
        let real = real_model();
        assert_conforms(&mut native_engine(&real), &real.prompt, &real.other);
    }

    #[cfg(feature = "llama-cpp")]
    mod llama_cpp {
        use super::*;
        use crate::engine::llama_cpp::{LlamaCpp, Wanted};

        fn theirs(real: &RealModel, window: usize) -> LlamaCpp {
            let wanted = Wanted {
                vocabulary: real.vocabulary,
                threads: 1,
                sequences: SEQUENCES,
                window_max: Some(window),
            };
            LlamaCpp::open(&real.path, &wanted).unwrap()
        }

        #[test]
        fn llama_cpp_conforms_with_real_weights() {
            let real = real();
            assert_conforms(&mut theirs(&real, 2_048), &real.prompt, &real.other);
        }

        #[test]
        fn both_engines_give_about_the_same_scores() {
            let real = real();
            let (mut own, mut theirs) = (native_engine(&real), theirs(&real, 1_024));
            for end in [1, 20, 100, 200] {
                let (ours, other) = (
                    scores(&mut native_engine, 0, &real.prompt[..end]),
                    scores(&mut theirs, 0, &real.prompt[..end]),
                );
                println!("{end} tokens: likeness {}", likeness(&ours, &other));
                assert!(likeness(&ours, &other) > 0.99, "{end}: {}", likeness(&ours, &other));
                native_engine.truncate(0, 0);
                theirs.truncate(0, 0);
            }
        }

        #[test]
        fn without_room_for_all_the_sequence_that_is_read_wins() {
            let real = real();
            let mut engine = theirs(&real, 256);
            engine.eval(0, &real.prompt[..150], None).unwrap();
            engine.eval(1, &real.prompt[..200], None).unwrap();
            assert_eq!((engine.kept(0), engine.kept(1)), (0, 200));
        }

        #[test]
        fn a_file_that_is_no_model_is_refused() {
            let real = real();
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), b"GGUF is not all of it").unwrap();
            let wanted = Wanted { vocabulary: 1, threads: 1, sequences: 1, window_max: None };
            assert!(LlamaCpp::open(file.path(), &wanted).unwrap_err().contains("llama.cpp"));
            let refused = LlamaCpp::open(&real.path, &wanted).unwrap_err();
            assert!(refused.contains("tokens in it"), "{refused}");
        }
    }
}
