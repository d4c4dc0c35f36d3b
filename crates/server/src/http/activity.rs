//! Whether anybody uses the door: requests under way, and when the last one ended.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Counts requests.
#[derive(Debug)]
pub(super) struct Activity {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// How many have come so far.
    begun: u64,
    under_way: usize,
    last: Instant,
}

/// A request under way.
pub(super) struct Busy<'a>(&'a Activity);

/// A request that goes on when its answer has begun.
pub(super) struct LongBusy(Arc<Activity>);

impl Activity {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State { begun: 0, under_way: 0, last: Instant::now() }) }
    }

    pub(super) fn begin(&self) -> Busy<'_> {
        self.with(State::begin);
        Busy(self)
    }

    fn end(&self) {
        // Before the lock, which all requests meet at: reading the clock is the longest part.
        let now = Instant::now();
        self.with(|state| {
            state.under_way -= 1;
            state.last = state.last.max(now);
        });
    }

    /// How many requests have come so far.
    pub(super) fn begun(&self) -> u64 {
        self.with(|state| state.begun)
    }

    /// Returns when no request has been under way for `time` and `in_use` says no.
    pub(super) async fn idle(&self, time: Duration, in_use: impl Fn() -> bool) {
        loop {
            let since = self.with(|state| {
                if state.under_way > 0 || in_use() {
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

impl State {
    fn begin(&mut self) {
        self.begun += 1;
        self.under_way += 1;
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl LongBusy {
    pub(super) fn begin(activity: Arc<Activity>) -> Self {
        activity.with(State::begin);
        Self(activity)
    }
}

impl Drop for LongBusy {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_or_other_use_puts_the_end_off() {
        let activity = Activity::new();
        let start = Instant::now();
        let busy = activity.begin();
        let idle = activity.idle(Duration::from_secs(10), || start.elapsed() < Duration::from_secs(35));
        let end_request = async {
            tokio::time::sleep(Duration::from_secs(15)).await;
            drop(busy);
        };
        tokio::join!(idle, end_request);
        assert!(start.elapsed() >= Duration::from_secs(40), "idle after {:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_puts_the_end_off_as_long_as_it_lasts() {
        let activity = Arc::new(Activity::new());
        let start = Instant::now();
        let busy = LongBusy::begin(Arc::clone(&activity));
        let end_stream = async {
            tokio::time::sleep(Duration::from_secs(35)).await;
            drop(busy);
        };
        tokio::join!(activity.idle(Duration::from_secs(10), || false), end_stream);
        assert!(start.elapsed() >= Duration::from_secs(40), "idle after {:?}", start.elapsed());
    }
}
