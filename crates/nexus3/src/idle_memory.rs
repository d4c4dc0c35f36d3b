//! A daemon that nobody calls takes little memory: each time it comes to rest, it lets go of the program's pages that it
//! worked with.

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::Instant;

use crate::memory;

/// How often it is looked whether there was something to do. Long enough that a conversation is no row of rests.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Looks again and again; `work` says how many requests have come so far, and how many turns are open.
pub(crate) async fn unmap_when_idle(work: impl Fn() -> (u64, usize)) -> Infallible {
    let mut rest = IdleDetector::default();
    let mut looks = tokio::time::interval_at(Instant::now() + CHECK_INTERVAL, CHECK_INTERVAL);
    loop {
        looks.tick().await;
        let (requests, open_turns) = work();
        if rest.became_idle(requests, open_turns) {
            memory::unmap_program_pages();
        }
    }
}

/// What was seen at the last look.
#[derive(Default)]
struct IdleDetector {
    requests: u64,
    is_idle: bool,
}

impl IdleDetector {
    /// Whether nothing has happened since the last look, for the first time after something had.
    fn became_idle(&mut self, requests: u64, open_turns: usize) -> bool {
        let was_at_rest = self.is_idle;
        self.is_idle = open_turns == 0 && requests == self.requests;
        self.requests = requests;
        self.is_idle && !was_at_rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_begins_once_and_again_after_work() {
        let mut rest = IdleDetector::default();
        let looks = [(0, 0), (0, 0), (3, 0), (3, 1), (3, 0), (3, 0), (4, 0), (5, 0), (5, 0), (5, 0)];
        let begins = looks.map(|(requests, open_turns)| rest.became_idle(requests, open_turns));
        assert_eq!(begins, [true, false, false, false, true, false, false, false, true, false]);
    }
}
