//! Retry budget of one provider: at most a tenth of its requests, plus a small allowance that refills over time.

use std::time::Duration;

use tokio::time::Instant;

/// Credit that a request earns, and that a retry costs.
const CREDIT_PER_REQUEST: u32 = 1;
const CREDIT_PER_RETRY: u32 = 10;

/// Most credit that is saved up.
const CREDIT_MAX: u32 = 10 * CREDIT_PER_RETRY;

/// Interval in which one retry is refilled regardless of traffic.
const REFILL_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct RetryBudget {
    credit: u32,
    refilled_at: Instant,
}

impl RetryBudget {
    pub(super) fn new(now: Instant) -> Self {
        Self { credit: CREDIT_MAX, refilled_at: now }
    }

    pub(super) fn deposit(&mut self) {
        self.credit = (self.credit + CREDIT_PER_REQUEST).min(CREDIT_MAX);
    }

    pub(super) fn withdraw(&mut self, now: Instant) -> bool {
        while now.saturating_duration_since(self.refilled_at) >= REFILL_INTERVAL && self.credit < CREDIT_MAX {
            self.refilled_at += REFILL_INTERVAL;
            self.credit = (self.credit + CREDIT_PER_RETRY).min(CREDIT_MAX);
        }
        if self.credit == CREDIT_MAX {
            self.refilled_at = now;
        }
        let enough = self.credit >= CREDIT_PER_RETRY;
        if enough {
            self.credit -= CREDIT_PER_RETRY;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn retries_are_a_tenth_of_requests_plus_an_allowance() {
        let now = Instant::now();
        let mut budget = RetryBudget::new(now);
        let mut retries = 0;
        for _ in 0..1_000 {
            budget.deposit();
            retries += u32::from(budget.withdraw(now));
        }
        assert!((100..=110).contains(&retries), "{retries} retries of 1000 requests");
        assert!(!budget.withdraw(now));
        assert!(budget.withdraw(now + REFILL_INTERVAL), "one retry is refilled per interval");
        assert!(!budget.withdraw(now + REFILL_INTERVAL));
    }
}
