//! How many retries a provider's questions may have: a tenth of the questions, and a few in any case.

use std::time::Duration;

use tokio::time::Instant;

/// Parts of a retry that a question earns, of `RETRY_PARTS`.
const EARNED_PARTS: u32 = 1;
const RETRY_PARTS: u32 = 10;

/// No more than this is saved up.
const PARTS_MAX: u32 = 10 * RETRY_PARTS;

/// Where little is asked, one retry comes back in this time.
const COMES_BACK: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct RetryBudget {
    parts: u32,
    refilled: Instant,
}

impl RetryBudget {
    pub(super) fn new(now: Instant) -> Self {
        Self { parts: PARTS_MAX, refilled: now }
    }

    pub(super) fn earn(&mut self) {
        self.parts = (self.parts + EARNED_PARTS).min(PARTS_MAX);
    }

    pub(super) fn spend(&mut self, now: Instant) -> bool {
        while now.saturating_duration_since(self.refilled) >= COMES_BACK && self.parts < PARTS_MAX {
            self.refilled += COMES_BACK;
            self.parts = (self.parts + RETRY_PARTS).min(PARTS_MAX);
        }
        if self.parts == PARTS_MAX {
            self.refilled = now;
        }
        let enough = self.parts >= RETRY_PARTS;
        if enough {
            self.parts -= RETRY_PARTS;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn retries_are_a_tenth_of_the_questions_beside_a_few() {
        let now = Instant::now();
        let mut budget = RetryBudget::new(now);
        let mut retries = 0;
        for _ in 0..1_000 {
            budget.earn();
            retries += u32::from(budget.spend(now));
        }
        assert!((100..=110).contains(&retries), "{retries} retries of 1000 questions");
        assert!(!budget.spend(now));
        assert!(budget.spend(now + COMES_BACK), "some come back with time");
        assert!(!budget.spend(now + COMES_BACK));
    }
}
