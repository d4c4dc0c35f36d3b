//! Reduces the memory of an idle daemon: each time it becomes idle, it unmaps the program's pages.

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::Instant;

use crate::memory;

/// Interval between checks for work. Long enough that the pauses of a conversation do not count as idle.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Unmaps pages whenever the daemon becomes idle; `work` returns the number of requests so far and of open turns.
pub(crate) async fn unmap_when_idle(work: impl Fn() -> (u64, usize)) -> Infallible {
    let mut detector = IdleDetector::default();
    let mut interval = tokio::time::interval_at(Instant::now() + CHECK_INTERVAL, CHECK_INTERVAL);
    loop {
        interval.tick().await;
        let (requests, open_turns) = work();
        if detector.observe(requests, open_turns) {
            memory::unmap_program_pages();
        }
    }
}

/// State of the last check.
#[derive(Default)]
struct IdleDetector {
    requests: u64,
    is_idle: bool,
}

impl IdleDetector {
    /// Records a check; returns whether it is the first idle one after work.
    fn observe(&mut self, requests: u64, open_turns: usize) -> bool {
        let was_idle = self.is_idle;
        self.is_idle = open_turns == 0 && requests == self.requests;
        self.requests = requests;
        self.is_idle && !was_idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_is_reported_once_and_again_after_work() {
        let mut detector = IdleDetector::default();
        let checks = [(0, 0), (0, 0), (3, 0), (3, 1), (3, 0), (3, 0), (4, 0), (5, 0), (5, 0), (5, 0)];
        let reported = checks.map(|(requests, open_turns)| detector.observe(requests, open_turns));
        assert_eq!(reported, [true, false, false, false, true, false, false, false, true, false]);
    }
}
