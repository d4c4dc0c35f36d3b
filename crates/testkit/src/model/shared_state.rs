//! State shared by the scripted model's server thread and the tests: counters, requests, responses, releases.
//! Waits use a condition variable with a deadline, so that a test never sleeps and never hangs.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::http::request;
use serde_json::Value;
use tokio::sync::watch;

use super::ledger::{CallCounts, Ledger, RoundKey};

/// One received request.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedRequest {
    /// The HTTP method.
    pub method: String,
    /// The path and query.
    pub path: String,
    /// The headers in order of arrival, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body; null if it was not JSON.
    pub body: Value,
}

impl RecordedRequest {
    /// The first header with this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// Event counters, and the number of requests that hang now.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) connections: usize,
    pub(crate) requests: usize,
    pub(crate) stalled: usize,
    pub(crate) aborted: usize,
}

#[derive(Debug, Default)]
struct State {
    counts: Counts,
    recorded: Vec<(request::Parts, Bytes)>,
    responses: HashMap<String, String>,
    deferred: BTreeSet<String>,
    ledger: Ledger,
}

#[derive(Debug)]
pub(crate) struct SharedState {
    record_requests: bool,
    record_ledger: bool,
    state: Mutex<State>,
    changed: Condvar,
    released: watch::Sender<BTreeSet<String>>,
}

impl SharedState {
    pub(crate) fn new(record_requests: bool, record_ledger: bool) -> Self {
        Self {
            record_requests,
            record_ledger,
            state: Mutex::default(),
            changed: Condvar::new(),
            released: watch::Sender::new(BTreeSet::new()),
        }
    }

    pub(crate) fn set_response(&self, prompt: &str, response: &str) {
        self.lock().responses.insert(prompt.to_owned(), response.to_owned());
    }

    pub(crate) fn response_for(&self, prompt: &str) -> Option<String> {
        self.lock().responses.get(prompt).cloned()
    }

    /// Marks a prompt as deferred; true if it was not marked before.
    pub(crate) fn mark_deferred(&self, prompt: &str) -> bool {
        self.lock().deferred.insert(prompt.to_owned())
    }

    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.lock().recorded.iter().map(|(head, body)| to_recorded_request(head, body)).collect()
    }

    pub(crate) fn ledger(&self) -> Ledger {
        self.lock().ledger.clone()
    }

    pub(crate) fn call_counts(&self, user: &str, round: usize) -> CallCounts {
        self.lock().ledger.counts(user, round)
    }

    pub(crate) fn counts(&self) -> Counts {
        self.lock().counts
    }

    /// Waits until the model has received `n` requests of a round; panics after `within`.
    pub(crate) fn wait_called(&self, within: Duration, round_key: &RoundKey, n: usize) {
        let RoundKey { user, round } = round_key;
        let requests = |state: &State| state.ledger.counts(user, *round).requests;
        let waited = self.changed.wait_timeout_while(self.lock(), within, |state| requests(state) < n);
        let has = requests(&waited.unwrap_or_else(PoisonError::into_inner).0);
        assert!(has >= n, "the scripted model has {has} of {n} requests of {round_key:?} after {within:?}");
    }

    /// Waits until `count` is at least `n`; panics after `within`.
    pub(crate) fn wait(&self, within: Duration, what: &str, n: usize, count: impl Fn(&Counts) -> usize) {
        let waited = self.changed.wait_timeout_while(self.lock(), within, |state| count(&state.counts) < n);
        let counts = waited.unwrap_or_else(PoisonError::into_inner).0.counts;
        let has = count(&counts);
        assert!(has >= n, "the scripted model has {has} of {n} {what} after {within:?}: {counts:?}");
    }

    pub(crate) fn release(&self, name: &str) {
        self.released.send_modify(|names| {
            names.insert(name.to_owned());
        });
    }

    pub(crate) async fn wait_released(&self, name: &str) {
        let mut names = self.released.subscribe();
        // `self` owns the sender, so the channel is never closed here.
        let _ = names.wait_for(|names| names.contains(name)).await;
    }

    pub(crate) fn count_connection(&self) {
        self.update(|state| state.counts.connections += 1);
    }

    /// Records a complete request; returns its number, counted from 1, and the tracker of its response.
    pub(crate) fn record_request(
        self: &Arc<Self>,
        head: request::Parts,
        body: Bytes,
        round_key: Option<RoundKey>,
    ) -> (usize, RequestTracker) {
        let round_key = round_key.filter(|_| self.record_ledger);
        let mut number = 0;
        self.update(|state| {
            state.counts.requests += 1;
            number = state.counts.requests;
            if self.record_requests {
                state.recorded.push((head, body));
            }
            if let Some(round_key) = &round_key {
                state.ledger.record_request(round_key);
            }
        });
        (number, RequestTracker { shared: Arc::clone(self), is_open: true, round_key })
    }

    pub(crate) fn count_stalled(&self) -> StalledGuard<'_> {
        self.update(|state| state.counts.stalled += 1);
        StalledGuard(self)
    }

    fn update(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tracks a request until its response ends. Dropped before that, it counts an abort: hyper drops the service's future
/// or the response body when the peer closes.
#[derive(Debug)]
pub(crate) struct RequestTracker {
    shared: Arc<SharedState>,
    is_open: bool,
    round_key: Option<RoundKey>,
}

impl RequestTracker {
    pub(crate) fn shared(&self) -> &Arc<SharedState> {
        &self.shared
    }

    /// Records that the response was sent to its last byte.
    pub(crate) fn complete(&mut self) {
        self.is_open = false;
        if let Some(round_key) = self.round_key.take() {
            self.shared.update(|state| state.ledger.record_response(&round_key));
        }
    }

    /// Records that the response ends here, incomplete.
    pub(crate) fn end_incomplete(&mut self) {
        self.is_open = false;
        self.round_key = None;
    }
}

impl Drop for RequestTracker {
    fn drop(&mut self) {
        if self.is_open {
            self.shared.update(|state| state.counts.aborted += 1);
        }
    }
}

/// Counts a request as stalled until it is dropped.
pub(crate) struct StalledGuard<'a>(&'a SharedState);

impl Drop for StalledGuard<'_> {
    fn drop(&mut self) {
        self.0.update(|state| state.counts.stalled -= 1);
    }
}

fn to_recorded_request(head: &request::Parts, body: &Bytes) -> RecordedRequest {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    RecordedRequest {
        method: head.method.to_string(),
        path: head.uri.to_string(),
        headers: head
            .headers
            .iter()
            .map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes())))
            .collect(),
        body: serde_json::from_slice(body).unwrap_or(Value::Null),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic = "the scripted model has 1 of 2 requests after 1ms: Counts { connections: 1, requests: 1"]
    fn wait_timeout_reports_the_counts() {
        let shared = Arc::new(SharedState::new(true, true));
        shared.count_connection();
        let (head, _) = hyper::Request::new(()).into_parts();
        let (_, mut tracker) = shared.record_request(head, Bytes::new(), None);
        tracker.complete();
        shared.wait(Duration::from_millis(1), "requests", 2, |counts| counts.requests);
    }

    #[test]
    #[should_panic = "the scripted model has 0 of 1 requests of RoundKey { user: \"never\", round: 0 } after 1ms"]
    fn wait_called_times_out() {
        let round_key = RoundKey { user: "never".to_owned(), round: 0 };
        SharedState::new(true, true).wait_called(Duration::from_millis(1), &round_key, 1);
    }
}
