//! Idle detection: counts requests in flight and records when the last one ended.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Counters for idle detection. A request with a streaming response counts twice: the handler, and the stream.
#[derive(Debug)]
pub(super) struct Activity {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Number of handlers and streams that have not ended.
    active: usize,
    last_active: Instant,
}

/// Guard of a request in flight.
pub(super) struct ActivityGuard<'a>(&'a Activity);

/// Guard of a streaming response, which outlives the request handler.
pub(super) struct OwnedActivityGuard(Arc<Activity>);

impl Activity {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State { active: 0, last_active: Instant::now() }) }
    }

    pub(super) fn start(&self) -> ActivityGuard<'_> {
        self.with_state(State::start);
        ActivityGuard(self)
    }

    fn finish(&self) {
        // Read the clock before the lock: it is the slowest part, and all requests contend for the lock.
        let now = Instant::now();
        self.with_state(|state| {
            state.active -= 1;
            state.last_active = state.last_active.max(now);
        });
    }

    /// Returns when no request has been in flight for `time` and `in_use` is false.
    pub(super) async fn wait_idle(&self, time: Duration, in_use: impl Fn() -> bool) {
        loop {
            let since = self.with_state(|state| {
                if state.active > 0 || in_use() {
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

impl State {
    fn start(&mut self) {
        self.active += 1;
    }
}

impl Drop for ActivityGuard<'_> {
    fn drop(&mut self) {
        self.0.finish();
    }
}

impl OwnedActivityGuard {
    pub(super) fn start(activity: Arc<Activity>) -> Self {
        activity.with_state(State::start);
        Self(activity)
    }
}

impl Drop for OwnedActivityGuard {
    fn drop(&mut self) {
        self.0.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_and_other_use_delay_idle() {
        let activity = Activity::new();
        let start = Instant::now();
        let busy = activity.start();
        let idle = activity.wait_idle(Duration::from_secs(10), || start.elapsed() < Duration::from_secs(35));
        let end_request = async {
            tokio::time::sleep(Duration::from_secs(15)).await;
            drop(busy);
        };
        tokio::join!(idle, end_request);
        assert!(start.elapsed() >= Duration::from_secs(40), "idle after {:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_stream_delays_idle() {
        let activity = Arc::new(Activity::new());
        let start = Instant::now();
        let busy = OwnedActivityGuard::start(Arc::clone(&activity));
        let end_stream = async {
            tokio::time::sleep(Duration::from_secs(35)).await;
            drop(busy);
        };
        tokio::join!(activity.wait_idle(Duration::from_secs(10), || false), end_stream);
        assert!(start.elapsed() >= Duration::from_secs(40), "idle after {:?}", start.elapsed());
    }
}
