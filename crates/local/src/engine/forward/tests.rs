//! Tests: however the work is cut, the scores are the same.

use super::*;
use crate::engine::fixture::{self, ModelFixture};
use crate::engine::format::Format;
use crate::engine::gguf::Gguf;
use crate::engine::mmap::map_file;

fn network(made: &ModelFixture, threads: usize) -> Network {
    let file = fixture::write(made);
    let bytes = map_file(&file.path).unwrap();
    Network::read(&Gguf::read(&bytes).unwrap(), fixture::token_names().len(), threads).unwrap()
}

fn tokens(count: u32) -> Vec<u32> {
    (0..count).map(|at| (at * 37 + 11) % 260).collect()
}

/// The scores after `prompt`, read in the chunks that `cut` gives.
fn scores(network: &Network, cache: &mut KvCache, prompt: &[u32], cut: usize) -> Vec<f32> {
    let (mut scratch, mut out) = (Scratch::default(), Vec::new());
    for chunk in prompt.chunks(cut) {
        network.forward(cache, chunk, &mut scratch);
    }
    network.logits(&mut scratch, &mut out);
    out
}

fn assert_near(left: &[f32], right: &[f32]) {
    let largest = left.iter().fold(0f32, |largest, score| largest.max(score.abs()));
    assert!(largest > 0.1, "the scores say nothing: {largest}");
    for (a, b) in left.iter().zip(right) {
        assert!((a - b).abs() < largest * 0.02, "{a} and {b} of at most {largest}");
    }
}

#[test]
fn one_token_at_a_time_equals_chunks_equals_all_at_once() {
    let made = [
        ModelFixture::default(),
        ModelFixture { architecture: "qwen2", pre_tokenizer: "qwen2", ..ModelFixture::default() },
    ];
    for made in made {
        let network = network(&made, 1);
        let prompt = tokens(130);
        let all = scores(&network, &mut KvCache::new(&network.shape), &prompt, 130);
        for cut in [1, 3, 64] {
            assert_near(&all, &scores(&network, &mut KvCache::new(&network.shape), &prompt, cut));
        }
    }
}

#[test]
fn a_cut_and_continued_conversation_equals_a_fresh_one() {
    let network = network(&ModelFixture::default(), 1);
    let (prompt, other) = (tokens(100), vec![5; 40]);
    let mut cache = KvCache::new(&network.shape);
    scores(&network, &mut cache, &[&prompt[..70], &other].concat(), 64);
    cache.truncate(70);
    let continued = scores(&network, &mut cache, &prompt[70..], 64);
    assert_eq!(cache.len(), prompt.len());
    assert_near(&continued, &scores(&network, &mut KvCache::new(&network.shape), &prompt, 64));
}

#[test]
fn the_order_of_the_tokens_matters() {
    let network = network(&ModelFixture::default(), 1);
    let mut swapped = tokens(20);
    swapped.swap(3, 4);
    let straight = scores(&network, &mut KvCache::new(&network.shape), &tokens(20), 64);
    let crossed = scores(&network, &mut KvCache::new(&network.shape), &swapped, 64);
    let apart = straight.iter().zip(&crossed).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
    assert!(apart > 0.01, "{apart}");
}

#[test]
fn two_threads_compute_what_one_does() {
    let (one, two) = (network(&ModelFixture::default(), 1), network(&ModelFixture::default(), 2));
    for cut in [1, 64] {
        let single = scores(&one, &mut KvCache::new(&one.shape), &tokens(70), cut);
        assert_eq!(single, scores(&two, &mut KvCache::new(&two.shape), &tokens(70), cut));
    }
}

#[test]
fn every_number_format_gives_about_the_scores_of_the_best_one() {
    let prompt = tokens(30);
    let exact = network(&ModelFixture { format: Format::F32, ..ModelFixture::default() }, 1);
    let exact = scores(&exact, &mut KvCache::new(&exact.shape), &prompt, 64);
    for (format, far) in [
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
        let rough = scores(&network, &mut KvCache::new(&network.shape), &prompt, 64);
        let size = exact.iter().map(|score| score * score).sum::<f32>().sqrt();
        let apart = exact.iter().zip(&rough).map(|(a, b)| (a - b) * (a - b)).sum::<f32>().sqrt();
        assert!(apart < size * far, "{format:?}: {}", apart / size);
    }
}
