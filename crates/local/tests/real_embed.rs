//! The embedding model on its real weights: only with the feature `real-model-tests`, from the file that
//! `NEXUS3_TEST_EMBEDDER` names.
#![cfg(feature = "real-model-tests")]
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;

use local::embed::{Embedder, MiniLm};

#[expect(clippy::disallowed_methods, reason = "a test is told by its environment where the weights are")]
fn open_embedder() -> MiniLm {
    let path = std::env::var_os("NEXUS3_TEST_EMBEDDER")
        .expect("set NEXUS3_TEST_EMBEDDER to the path of all-MiniLM-L6-v2's model.onnx");
    MiniLm::open(&PathBuf::from(path), 1).unwrap()
}

fn cosine(left: &[f32], right: &[f32]) -> f32 {
    left.iter().zip(right).map(|(left, right)| left * right).sum()
}

#[test]
fn paraphrases_are_nearer_than_strangers() {
    let pairs = [
        ("How do I change my password?", "What are the steps to set a new passphrase?"),
        ("The meeting was moved to Friday.", "Our appointment is now at the end of the week."),
        ("The disk is full.", "There is no storage space left."),
        ("She cooks dinner for her family.", "A woman prepares an evening meal at home."),
        ("The program crashes when it starts.", "The application fails at launch."),
        ("It will rain tomorrow.", "The forecast for the next day is wet weather."),
    ];
    let texts: Vec<&str> = pairs.iter().flat_map(|(one, other)| [*one, *other]).collect();
    let points = open_embedder().embed(&texts).unwrap();
    for (place, text) in texts.iter().enumerate() {
        let nearest = (0..texts.len())
            .filter(|other| *other != place)
            .max_by(|a, b| {
                cosine(&points[place], &points[*a]).total_cmp(&cosine(&points[place], &points[*b]))
            })
            .unwrap();
        assert_eq!(nearest, place ^ 1, "{text:?} is nearest to {:?}", texts[nearest]);
    }
}

#[test]
fn a_text_has_the_same_point_alone_and_in_a_batch() {
    let long = "a much longer sentence about nothing in particular ".repeat(20);
    let mut embedder = open_embedder();
    let alone = embedder.embed(&["a short one"]).unwrap().remove(0);
    let together = embedder.embed(&[long.as_str(), "a short one", "x"]).unwrap();
    assert!(cosine(&alone, &together[1]) > 0.9999, "{}", cosine(&alone, &together[1]));
    assert_eq!(together.len(), 3);
    for point in &together {
        assert_eq!(point.len(), embedder.dimensions());
        assert!((cosine(point, point) - 1.0).abs() < 1e-4);
    }
}

#[test]
fn a_text_that_is_too_long_is_cut_and_says_so() {
    let mut embedder = open_embedder();
    let long = "word ".repeat(300);
    let longer = "word ".repeat(30_000);
    assert!(embedder.length(&long).is_truncated && !embedder.length("word").is_truncated);
    let points = embedder.embed(&[&long, &longer]).unwrap();
    assert!(cosine(&points[0], &points[1]) > 0.9999);
}
