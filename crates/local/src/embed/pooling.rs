//! From a vector for each token to one point for the text: the mean of the real tokens, brought to length 1.

/// The mean of the first `tokens` rows of `rows`, at length 1. Rows behind them are padding. All zeros stay so.
pub(super) fn pool(rows: &[f32], tokens: usize, dimensions: usize) -> Vec<f32> {
    let mut point = vec![0.0; dimensions];
    for row in rows.chunks_exact(dimensions).take(tokens) {
        for (sum, value) in point.iter_mut().zip(row) {
            *sum += value;
        }
    }
    normalise(&mut point);
    point
}

/// Dividing by the count first would change nothing: the length is made 1 either way.
fn normalise(point: &mut [f32]) {
    let length = point.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    if length == 0.0 || !length.is_finite() {
        return;
    }
    for value in point {
        #[expect(clippy::cast_possible_truncation, reason = "a share of the length is between -1 and 1")]
        let share = (f64::from(*value) / length) as f32;
        *value = share;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_the_real_tokens_has_length_one() {
        assert_eq!(pool(&[1.0, 0.0, 5.0, 8.0], 2, 2), [0.6, 0.8]);
    }

    #[test]
    fn padding_does_not_count() {
        assert_eq!(pool(&[3.0, 4.0, 100.0, -100.0], 1, 2), [0.6, 0.8]);
    }

    #[test]
    fn nothing_stays_nothing() {
        assert_eq!(pool(&[0.0, 0.0], 1, 2), [0.0, 0.0]);
        assert_eq!(pool(&[], 0, 2), [0.0, 0.0]);
    }

    #[test]
    fn large_numbers_keep_their_direction() {
        let point = pool(&[3e30, 4e30], 1, 2);
        assert!((point[0] - 0.6).abs() < 1e-6 && (point[1] - 0.8).abs() < 1e-6, "{point:?}");
    }
}
