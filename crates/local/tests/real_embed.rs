//! Tests of the embedding model with real weights: `NEXUS3_TEST_EMBEDDER=FILE cargo test -p local --features
//! real-model-tests`.
#![cfg(feature = "real-model-tests")]
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;

use local::embed::{Embedder, MiniLm};

#[expect(clippy::disallowed_methods, reason = "the test's environment names the weights file")]
fn open_embedder() -> MiniLm {
    let path = std::env::var_os("NEXUS3_TEST_EMBEDDER")
        .expect("set NEXUS3_TEST_EMBEDDER to the path of all-MiniLM-L6-v2's model.onnx");
    MiniLm::open(&PathBuf::from(path), 1).unwrap()
}

fn cosine(left: &[f32], right: &[f32]) -> f32 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

#[test]
fn paraphrases_are_nearest_neighbours() {
    let pairs = [
        ("How do I change my password?", "What are the steps to set a new passphrase?"),
        ("The meeting was moved to Friday.", "Our appointment is now at the end of the week."),
        ("The disk is full.", "There is no storage space left."),
        ("She cooks dinner for her family.", "A woman prepares an evening meal at home."),
        ("The program crashes when it starts.", "The application fails at launch."),
        ("It will rain tomorrow.", "The forecast for the next day is wet weather."),
    ];
    let texts: Vec<&str> = pairs.iter().flat_map(|(left, right)| [*left, *right]).collect();
    let embeddings = open_embedder().embed(&texts).unwrap();
    for (index, text) in texts.iter().enumerate() {
        let similarity = |other: usize| cosine(&embeddings[index], &embeddings[other]);
        let nearest = (0..texts.len())
            .filter(|other| *other != index)
            .max_by(|a, b| similarity(*a).total_cmp(&similarity(*b)))
            .unwrap();
        assert_eq!(nearest, index ^ 1, "{text:?} is nearest to {:?}", texts[nearest]);
    }
}

#[test]
fn embedding_does_not_depend_on_the_batch() {
    let long = "a much longer sentence about nothing in particular ".repeat(20);
    let mut embedder = open_embedder();
    let alone = embedder.embed(&["a short one"]).unwrap().remove(0);
    let together = embedder.embed(&[long.as_str(), "a short one", "x"]).unwrap();
    assert!(cosine(&alone, &together[1]) > 0.9999, "{}", cosine(&alone, &together[1]));
    assert_eq!(together.len(), 3);
    for embedding in &together {
        assert_eq!(embedding.len(), embedder.dimensions());
        assert!((cosine(embedding, embedding) - 1.0).abs() < 1e-4);
    }
}

#[test]
fn long_text_is_truncated_and_reported() {
    let mut embedder = open_embedder();
    let long = "word ".repeat(300);
    let longer = "word ".repeat(30_000);
    assert!(embedder.length(&long).is_truncated && !embedder.length("word").is_truncated);
    let embeddings = embedder.embed(&[&long, &longer]).unwrap();
    assert!(cosine(&embeddings[0], &embeddings[1]) > 0.9999);
}
