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
    under_way: usize,
    last: Instant,
}

/// Work under way.
pub(super) struct Busy(Arc<Activity>);

impl Activity {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State { under_way: 0, last: Instant::now() }) }
    }

    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        self.with(|state| state.under_way += 1);
        Busy(Arc::clone(self))
    }

    /// Returns when no work has been under way for `time`; never when there is none.
    pub(super) async fn idle(&self, time: Option<Duration>) {
        let Some(time) = time else {
            return std::future::pending().await;
        };
        loop {
            let since = self.with(|state| {
                if state.under_way > 0 {
                    state.last = Instant::now();
                }
                state.last
            });
            if since.elapsed() >= time {
                return;
            }
            tokio::time::sleep_until(since + time).await;
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.with(|state| {
            state.under_way -= 1;
            state.last = Instant::now();
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
        let busy = activity.begin();
        let work = async {
            tokio::time::sleep(Duration::from_secs(35)).await;
            drop(busy);
        };
        tokio::join!(activity.idle(Some(Duration::from_secs(10))), work);
        let took = start.elapsed();
        assert!(took >= Duration::from_secs(45) && took < Duration::from_secs(46), "idle after {took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_time_it_never_ends() {
        let activity = Activity::new();
        let waited = tokio::time::timeout(Duration::from_secs(100_000), activity.idle(None)).await;
        assert!(waited.is_err());
    }
}
