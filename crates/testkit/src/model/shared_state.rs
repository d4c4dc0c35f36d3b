//! What the scripted model saw and was told: the one piece of state that its thread and the tests share.
//! Waits are on a condition variable with a deadline, so that a test never sleeps and never hangs.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::http::request;
use serde_json::Value;
use tokio::sync::watch;

use super::ledger::{CallCounts, Ledger, RoundKey};

/// One request as it arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedRequest {
    /// The HTTP method.
    pub method: String,
    /// The path and query.
    pub path: String,
    /// The headers in the order they came, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body; null where it was not JSON.
    pub body: Value,
}

impl RecordedRequest {
    /// The first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }
}

/// How often things happened, and how many requests stand still now.
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
    pub(crate) fn new(keep_requests: bool, keep_ledger: bool) -> Self {
        Self {
            record_requests: keep_requests,
            record_ledger: keep_ledger,
            state: Mutex::default(),
            changed: Condvar::new(),
            released: watch::Sender::new(BTreeSet::new()),
        }
    }

    pub(crate) fn set_response(&self, prompt: &str, reply: &str) {
        self.lock().responses.insert(prompt.to_owned(), reply.to_owned());
    }

    pub(crate) fn response_for(&self, prompt: &str) -> Option<String> {
        self.lock().responses.get(prompt).cloned()
    }

    /// Whether a message that is answered later has come for the first time.
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

    /// Waits until a question was asked so often; panics when that takes longer than `within`.
    pub(crate) fn wait_called(&self, within: Duration, question: &RoundKey, n: usize) {
        let RoundKey { user, round } = question;
        let asked = |state: &State| state.ledger.counts(user, *round).requests;
        let waited = self.changed.wait_timeout_while(self.lock(), within, |state| asked(state) < n);
        let has = asked(&waited.unwrap_or_else(PoisonError::into_inner).0);
        assert!(has >= n, "the scripted model was asked {question:?} {has} times in {within:?}, not {n}");
    }

    /// Waits until `count` is at least `n`; panics when that takes longer than `within`.
    pub(crate) fn wait(&self, within: Duration, what: &str, n: usize, count: impl Fn(&Counts) -> usize) {
        let waited = self.changed.wait_timeout_while(self.lock(), within, |state| count(&state.counts) < n);
        let counts = waited.unwrap_or_else(PoisonError::into_inner).0.counts;
        let has = count(&counts);
        assert!(has >= n, "the scripted model waited {within:?} for {n} {what} and has {has}: {counts:?}");
    }

    pub(crate) fn release(&self, name: &str) {
        self.released.send_modify(|names| {
            names.insert(name.to_owned());
        });
    }

    pub(crate) async fn wait_released(&self, name: &str) {
        let mut names = self.released.subscribe();
        // The sender lives in `self`, so this never ends by a closed channel.
        let _ = names.wait_for(|names| names.contains(name)).await;
    }

    pub(crate) fn count_connection(&self) {
        self.update(|state| state.counts.connections += 1);
    }

    /// Records a request that has arrived whole; its number counts from 1.
    pub(crate) fn record_request(
        self: &Arc<Self>,
        head: request::Parts,
        body: Bytes,
        question: Option<RoundKey>,
    ) -> (usize, RequestTracker) {
        let question = question.filter(|_| self.record_ledger);
        let mut number = 0;
        self.update(|state| {
            state.counts.requests += 1;
            number = state.counts.requests;
            if self.record_requests {
                state.recorded.push((head, body));
            }
            if let Some(question) = &question {
                state.ledger.record_request(question);
            }
        });
        (number, RequestTracker { shared: Arc::clone(self), is_open: true, round_key: question })
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

/// Held by whatever answers a request. Dropped before the answer ended, it means that the client went away: hyper
/// drops the service's future or the response's body when the peer closes.
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

    /// The answer is out, to its last byte.
    pub(crate) fn complete(&mut self) {
        self.is_open = false;
        if let Some(question) = self.round_key.take() {
            self.shared.update(|state| state.ledger.record_response(&question));
        }
    }

    /// The answer ends here, and is not whole.
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

/// Counts one request as standing still while it lives.
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
    #[should_panic = "the scripted model waited 1ms for 2 requests and has 1: Counts { connections: 1, requests: 1"]
    fn a_wait_that_is_in_vain_says_what_there_is() {
        let observed = Arc::new(SharedState::new(true, true));
        observed.count_connection();
        let (head, _) = hyper::Request::new(()).into_parts();
        let (_, mut attendance) = observed.record_request(head, Bytes::new(), None);
        attendance.complete();
        observed.wait(Duration::from_millis(1), "requests", 2, |counts| counts.requests);
    }

    #[test]
    #[should_panic = "the scripted model was asked RoundKey { user: \"never\", round: 0 } 0 times in 1ms, not 1"]
    fn a_wait_for_a_question_that_never_comes_ends() {
        let question = RoundKey { user: "never".to_owned(), round: 0 };
        SharedState::new(true, true).wait_called(Duration::from_millis(1), &question, 1);
    }
}
