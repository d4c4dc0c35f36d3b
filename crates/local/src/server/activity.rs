//! Activity tracking for the idle timeout: the number of requests in flight and when the last one ended. Health checks
//! do not count.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Counter of requests in flight.
#[derive(Debug)]
pub(super) struct Activity {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    active: usize,
    last_active: Instant,
}

/// Marks a request as in flight until dropped.
pub(super) struct ActivityGuard(Arc<Activity>);

impl Activity {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State { active: 0, last_active: Instant::now() }) }
    }

    pub(super) fn start(self: &Arc<Self>) -> ActivityGuard {
        self.with_state(|state| state.active += 1);
        ActivityGuard(Arc::clone(self))
    }

    /// Returns when no request has been in flight for `timeout`; never returns when it is `None`.
    pub(super) async fn wait_idle(&self, timeout: Option<Duration>) {
        let Some(timeout) = timeout else {
            return std::future::pending().await;
        };
        loop {
            let last_active = self.with_state(|state| {
                if state.active > 0 {
                    state.last_active = Instant::now();
                }
                state.last_active
            });
            if last_active.elapsed() >= timeout {
                return;
            }
            tokio::time::sleep_until(last_active + timeout).await;
        }
    }

    fn with_state<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        self.0.with_state(|state| {
            state.active -= 1;
            state.last_active = Instant::now();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn idle_timeout_starts_when_the_last_request_ends() {
        let activity = Arc::new(Activity::new());
        let start = Instant::now();
        let guard = activity.start();
        let request = async {
            tokio::time::sleep(Duration::from_secs(35)).await;
            drop(guard);
        };
        tokio::join!(activity.wait_idle(Some(Duration::from_secs(10))), request);
        let elapsed = start.elapsed();
        assert!(
            elapsed >= Duration::from_secs(45) && elapsed < Duration::from_secs(46),
            "idle after {elapsed:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_timeout_it_waits_forever() {
        let activity = Activity::new();
        let result = tokio::time::timeout(Duration::from_secs(100_000), activity.wait_idle(None)).await;
        assert!(result.is_err());
    }
}
