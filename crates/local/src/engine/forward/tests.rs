//! Tests: logits do not depend on chunking, on threads or on truncation, and little on the number format.

use super::*;
use crate::engine::fixture::{self, ModelFixture};
use crate::engine::format::Format;
use crate::engine::gguf::Gguf;
use crate::engine::mmap::map_file;

fn network(fixture: &ModelFixture, threads: usize) -> Network {
    let file = fixture::write(fixture);
    let bytes = map_file(&file.path).unwrap();
    Network::read(&Gguf::read(&bytes).unwrap(), fixture::token_names().len(), threads).unwrap()
}

fn tokens(count: u32) -> Vec<u32> {
    (0..count).map(|at| (at * 37 + 11) % 260).collect()
}

/// Evaluates `prompt` in chunks of `chunk_tokens` and returns the logits.
fn logits(network: &Network, cache: &mut KvCache, prompt: &[u32], chunk_tokens: usize) -> Vec<f32> {
    let (mut scratch, mut out) = (Scratch::default(), Vec::new());
    for chunk in prompt.chunks(chunk_tokens) {
        network.forward(cache, chunk, &mut scratch);
    }
    network.logits(&mut scratch, &mut out);
    out
}

fn assert_near(left: &[f32], right: &[f32]) {
    let largest = left.iter().fold(0f32, |largest, logit| largest.max(logit.abs()));
    assert!(largest > 0.1, "logits too small to compare: {largest}");
    for (a, b) in left.iter().zip(right) {
        assert!((a - b).abs() < largest * 0.02, "{a} and {b}, largest {largest}");
    }
}

#[test]
fn logits_do_not_depend_on_chunk_size() {
    let fixtures = [
        ModelFixture::default(),
        ModelFixture { architecture: "qwen2", pre_tokenizer: "qwen2", ..ModelFixture::default() },
    ];
    for fixture in fixtures {
        let network = network(&fixture, 1);
        let prompt = tokens(130);
        let all = logits(&network, &mut KvCache::new(&network.shape), &prompt, 130);
        for chunk_tokens in [1, 3, 64] {
            assert_near(&all, &logits(&network, &mut KvCache::new(&network.shape), &prompt, chunk_tokens));
        }
    }
}

#[test]
fn truncated_and_continued_cache_equals_a_fresh_one() {
    let network = network(&ModelFixture::default(), 1);
    let (prompt, other) = (tokens(100), vec![5; 40]);
    let mut cache = KvCache::new(&network.shape);
    logits(&network, &mut cache, &[&prompt[..70], &other].concat(), 64);
    cache.truncate(70);
    let continued = logits(&network, &mut cache, &prompt[70..], 64);
    assert_eq!(cache.len(), prompt.len());
    assert_near(&continued, &logits(&network, &mut KvCache::new(&network.shape), &prompt, 64));
}

#[test]
fn token_order_changes_the_logits() {
    let network = network(&ModelFixture::default(), 1);
    let mut swapped = tokens(20);
    swapped.swap(3, 4);
    let original = logits(&network, &mut KvCache::new(&network.shape), &tokens(20), 64);
    let changed = logits(&network, &mut KvCache::new(&network.shape), &swapped, 64);
    let difference = original.iter().zip(&changed).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
    assert!(difference > 0.01, "{difference}");
}

#[test]
fn two_threads_compute_the_same_logits_as_one() {
    let (one, two) = (network(&ModelFixture::default(), 1), network(&ModelFixture::default(), 2));
    for chunk_tokens in [1, 64] {
        let single = logits(&one, &mut KvCache::new(&one.shape), &tokens(70), chunk_tokens);
        assert_eq!(single, logits(&two, &mut KvCache::new(&two.shape), &tokens(70), chunk_tokens));
    }
}

#[test]
fn every_format_computes_logits_close_to_f32() {
    let prompt = tokens(30);
    let exact = network(&ModelFixture { format: Format::F32, ..ModelFixture::default() }, 1);
    let exact = logits(&exact, &mut KvCache::new(&exact.shape), &prompt, 64);
    for (format, tolerance) in [
        (Format::F16, 0.03),
        (Format::Q8_0, 0.03),
        (Format::Q6K, 0.12),
        (Format::Q5_0, 0.5),
        (Format::Q5_1, 0.5),
        (Format::Q5K, 0.5),
        (Format::Q4_0, 0.9),
        (Format::Q4_1, 0.9),
        (Format::Q4K, 0.9),
    ] {
        let network = network(&ModelFixture { format, ..ModelFixture::default() }, 1);
        let quantised = logits(&network, &mut KvCache::new(&network.shape), &prompt, 64);
        let norm = exact.iter().map(|logit| logit * logit).sum::<f32>().sqrt();
        let distance = exact.iter().zip(&quantised).map(|(a, b)| (a - b) * (a - b)).sum::<f32>().sqrt();
        assert!(distance < norm * tolerance, "{format:?}: {}", distance / norm);
    }
}
