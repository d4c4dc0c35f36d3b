//! Whether anybody uses the server: work under way, and when the last of it ended. Looking at its health is no use of it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Counts work.
#[derive(Debug)]
pub(super) struct Activity {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    active: usize,
    last_active: Instant,
}

/// Work under way.
pub(super) struct ActivityGuard(Arc<Activity>);

impl Activity {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State { active: 0, last_active: Instant::now() }) }
    }

    pub(super) fn start(self: &Arc<Self>) -> ActivityGuard {
        self.with_state(|state| state.active += 1);
        ActivityGuard(Arc::clone(self))
    }

    /// Returns when no work has been under way for `time`; never when there is none.
    pub(super) async fn wait_idle(&self, time: Option<Duration>) {
        let Some(time) = time else {
            return std::future::pending().await;
        };
        loop {
            let since = self.with_state(|state| {
                if state.active > 0 {
                    state.last_active = Instant::now();
                }
                state.last_active
            });
            if since.elapsed() >= time {
                return;
            }
            tokio::time::sleep_until(since + time).await;
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
    async fn work_puts_the_end_off_as_long_as_it_lasts() {
        let activity = Arc::new(Activity::new());
        let start = Instant::now();
        let busy = activity.start();
        let work = async {
            tokio::time::sleep(Duration::from_secs(35)).await;
            drop(busy);
        };
        tokio::join!(activity.wait_idle(Some(Duration::from_secs(10))), work);
        let took = start.elapsed();
        assert!(took >= Duration::from_secs(45) && took < Duration::from_secs(46), "idle after {took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_time_it_never_ends() {
        let activity = Activity::new();
        let waited = tokio::time::timeout(Duration::from_secs(100_000), activity.wait_idle(None)).await;
        assert!(waited.is_err());
    }
}
