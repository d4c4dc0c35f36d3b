//! Statistics: percentiles of latencies, and the median, minimum and maximum of several rounds.

use std::time::Duration;

/// The median, minimum and maximum of several rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// NaN when there are no values, so that the table shows that nothing was measured.
    pub(crate) fn from_values(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        let median =
            if values.len() % 2 == 1 { at(middle) } else { at(middle.wrapping_sub(1)).midpoint(at(middle)) };
        Self { median, min: at(0), max: at(values.len().wrapping_sub(1)) }
    }

    /// Compares two sides round by round, because both were measured at nearly the same time.
    pub(crate) fn from_pairs(left: &[f64], right: &[f64], compare: impl Fn(f64, f64) -> f64) -> Self {
        Self::from_values(left.iter().zip(right).map(|(left, right)| compare(*left, *right)))
    }
}

/// The latencies of many calls.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    times: Vec<Duration>,
}

impl Latencies {
    pub(crate) fn push(&mut self, time: Duration) {
        self.times.push(time);
    }

    pub(crate) fn len(&self) -> usize {
        self.times.len()
    }

    /// The latency in seconds that `percent` of the calls did not exceed.
    pub(crate) fn percentile(&mut self, percent: usize) -> f64 {
        self.times.sort_unstable();
        let rank = (self.times.len() * percent).div_ceil(100).saturating_sub(1);
        self.times.get(rank).map_or(f64::NAN, Duration::as_secs_f64)
    }

    /// The median, minimum and maximum latency in seconds.
    pub(crate) fn spread(&self) -> Spread {
        Spread::from_values(self.times.iter().map(Duration::as_secs_f64))
    }
}

/// Formats a figure with about three significant digits.
pub(crate) fn format_number(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        medium if medium >= 10.0 => format!("{value:.1}"),
        small if small >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_has_median_minimum_and_maximum() {
        assert_eq!(Spread::from_values([3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Spread::from_values([4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert!(Spread::from_values([]).median.is_nan());
        let ratio = Spread::from_pairs(&[1.0, 3.0, 8.0], &[2.0, 4.0, 8.0], |left, right| left / right);
        assert_eq!(ratio, Spread { median: 0.75, min: 0.5, max: 1.0 });
    }

    #[test]
    fn percentile_is_a_measured_latency() {
        let mut times = Latencies::default();
        (1..=200).rev().for_each(|ms| times.push(Duration::from_millis(ms)));
        for (percent, ms) in [(50, 100), (99, 198), (100, 200), (0, 1)] {
            assert_eq!(times.percentile(percent), Duration::from_millis(ms).as_secs_f64(), "{percent}");
        }
        assert!(Latencies::default().percentile(50).is_nan());
    }

    #[test]
    fn numbers_are_formatted_with_about_three_digits() {
        for (value, text) in [(25_123.4, "25123"), (12.34, "12.3"), (0.756, "0.76"), (0.0123, "0.012")] {
            assert_eq!(format_number(value), text);
        }
    }
}
