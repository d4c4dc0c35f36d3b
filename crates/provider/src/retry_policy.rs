//! Retry policy of one provider: timeouts, backoff between attempts, and parsing of `Retry-After`. Admission is left to
//! `fair_queue`.

use std::time::Duration;

/// Longest `Retry-After` that is honoured.
pub(crate) const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

const BACKOFF_FIRST: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Whether another model can take over a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HasFallback {
    /// No fallback: the request waits for the provider.
    No,
    /// A fallback exists: the request waits only briefly for a rate-limited or unavailable provider.
    Yes,
}

/// Longest wait for a rate-limited or unavailable model that has a fallback.
pub(crate) const FALLBACK_WAIT_MAX: Duration = Duration::from_secs(2);

/// Timeouts and retry limit of one provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RetryPolicy {
    /// Time to establish a connection.
    pub(crate) connect_timeout: Duration,
    /// Time from the request to the response head.
    pub(crate) first_byte_timeout: Duration,
    /// Time between two chunks of the response.
    pub(crate) idle_timeout: Duration,
    /// Time for all attempts of one request together, until its response begins.
    pub(crate) total_timeout: Duration,
    /// Most attempts of one request.
    pub(crate) tries_max: u32,
    /// How silence before the response head is treated.
    pub(crate) first_byte_wait: FirstByteWait,
}

/// Treatment of the silence between a request and its response head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirstByteWait {
    /// No event is emitted.
    Silent,
    /// Heartbeats are emitted: the server may be loading the model from disk, and a retry would restart that.
    Heartbeat,
}

impl RetryPolicy {
    /// Policy for a server on this machine, which may have to load the model and process a long prompt on few cores.
    pub(crate) fn for_machine() -> Self {
        let long = Duration::from_secs(600);
        Self {
            first_byte_timeout: long,
            total_timeout: long,
            first_byte_wait: FirstByteWait::Heartbeat,
            ..Self::default()
        }
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            first_byte_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(60),
            total_timeout: Duration::from_secs(120),
            tries_max: 4,
            first_byte_wait: FirstByteWait::Silent,
        }
    }
}

/// Returns the exponential backoff after so many attempts, with full jitter so that clients that failed together do not
/// retry together.
pub(crate) fn backoff(tries: u32) -> Duration {
    let bound = BACKOFF_FIRST.saturating_mul(1 << tries.saturating_sub(1).min(16)).min(BACKOFF_MAX);
    bound.mul_f64(fastrand::f64())
}

/// Parses the retry delay from `retry-after-ms`, or from `retry-after` in seconds or as a date. `None` if absent or
/// malformed.
pub(crate) fn retry_after(headers: &reqwest::header::HeaderMap, now: jiff::Timestamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let milliseconds = text("retry-after-ms").and_then(|text| text.parse::<f64>().ok());
    let wait =
        milliseconds.map(|count| count / 1000.0).or_else(|| parse_retry_after(text("retry-after")?, now));
    let wait = wait.filter(|seconds| seconds.is_finite() && *seconds >= 0.0)?;
    Some(Duration::from_secs_f64(wait.min(RETRY_AFTER_MAX.as_secs_f64())))
}

fn parse_retry_after(text: &str, now: jiff::Timestamp) -> Option<f64> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Some(seconds);
    }
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(date.duration_since(now).as_secs_f64().max(0.0))
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn retry_after_is_parsed_as_seconds_milliseconds_or_date() {
        let now: jiff::Timestamp = "2026-11-16T10:00:00Z".parse().unwrap();
        let cases = [
            ("retry-after", "7", Some(7_000)),
            ("retry-after", " 1.5 ", Some(1_500)),
            ("retry-after", "0", Some(0)),
            ("retry-after-ms", "250", Some(250)),
            ("retry-after", "Mon, 16 Nov 2026 10:00:30 GMT", Some(30_000)),
            ("retry-after", "Mon, 16 Nov 2026 09:00:00 GMT", Some(0)),
            ("retry-after", "Mon, 16 Nov 2099 09:00:00 GMT", Some(300_000)),
            ("retry-after", "99999999999999999999", Some(300_000)),
            ("retry-after", "1e300", Some(300_000)),
            ("retry-after", "-5", None),
            ("retry-after", "NaN", None),
            ("retry-after", "inf", None),
            ("retry-after", "soon", None),
            ("retry-after", "", None),
            ("retry-afterwards", "7", None),
        ];
        for (name, value, expected) in cases {
            let name = HeaderName::from_static(name);
            let headers = HeaderMap::from_iter([(name, HeaderValue::from_static(value))]);
            let expected = expected.map(Duration::from_millis);
            assert_eq!(retry_after(&headers, now), expected, "{value:?}");
        }
    }

    #[test]
    fn backoff_grows_and_is_jittered_below_its_bound() {
        for (tries, bound_ms) in [(1, 500), (2, 1_000), (3, 2_000), (30, 30_000)] {
            let pauses: Vec<Duration> = (0..500).map(|_| backoff(tries)).collect();
            assert!(pauses.iter().all(|pause| *pause <= Duration::from_millis(bound_ms)));
            let low = pauses.iter().filter(|pause| **pause < Duration::from_millis(bound_ms / 2)).count();
            assert!((100..400).contains(&low), "{tries}: {low} of 500 in the lower half");
        }
    }
}
