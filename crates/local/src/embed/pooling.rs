//! Mean pooling: one normalised embedding per text from the vectors of its tokens.

/// Returns the mean of the first `tokens` rows, normalised to length 1; later rows are padding. Zeros stay zeros.
pub(super) fn pool(rows: &[f32], tokens: usize, dimensions: usize) -> Vec<f32> {
    let mut embedding = vec![0.0; dimensions];
    for row in rows.chunks_exact(dimensions).take(tokens) {
        for (sum, value) in embedding.iter_mut().zip(row) {
            *sum += value;
        }
    }
    normalise(&mut embedding);
    embedding
}

/// Scales a vector to length 1. This also makes a division of the sum by the token count unnecessary.
fn normalise(vector: &mut [f32]) {
    let length = vector.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    if length == 0.0 || !length.is_finite() {
        return;
    }
    for value in vector {
        #[expect(clippy::cast_possible_truncation, reason = "the quotient is between -1 and 1")]
        let scaled = (f64::from(*value) / length) as f32;
        *value = scaled;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_has_length_one() {
        assert_eq!(pool(&[1.0, 0.0, 5.0, 8.0], 2, 2), [0.6, 0.8]);
    }

    #[test]
    fn padding_is_ignored() {
        assert_eq!(pool(&[3.0, 4.0, 100.0, -100.0], 1, 2), [0.6, 0.8]);
    }

    #[test]
    fn zero_vector_stays_zero() {
        assert_eq!(pool(&[0.0, 0.0], 1, 2), [0.0, 0.0]);
        assert_eq!(pool(&[], 0, 2), [0.0, 0.0]);
    }

    #[test]
    fn large_numbers_do_not_overflow() {
        let embedding = pool(&[3e30, 4e30], 1, 2);
        assert!((embedding[0] - 0.6).abs() < 1e-6 && (embedding[1] - 0.8).abs() < 1e-6, "{embedding:?}");
    }
}
