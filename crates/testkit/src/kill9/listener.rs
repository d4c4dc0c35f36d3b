//! Reads the event stream on its own thread, across restarts of the daemon, and lets callers wait for a journal state.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::call::DaemonAddress;
use super::journal::Journal;
use crate::events::{NextEvent, TestEventStream};

/// Interval between checks of the stop flag.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Reader of the daemon's event stream, on a thread of its own.
pub(super) struct Listener {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    journal: Journal,
    /// The daemon's address and its generation.
    address: Option<(u64, DaemonAddress)>,
    generation: u64,
    is_stopped: bool,
}

impl Listener {
    pub(super) fn start() -> Self {
        let shared = Arc::new(Shared::default());
        let reader = Arc::clone(&shared);
        let thread = thread::Builder::new().name("listener".to_owned()).spawn(move || reader.listen());
        Self { shared, thread: Some(thread.expect("a thread can be started")) }
    }

    /// Sets the address of the restarted daemon.
    pub(super) fn connect_to(&self, address: DaemonAddress) {
        let mut state = self.shared.lock();
        state.generation += 1;
        state.address = Some((state.generation, address));
        self.shared.changed.notify_all();
    }

    /// Waits until the condition holds for the journal; false on timeout.
    pub(super) fn wait(&self, deadline: Instant, condition: impl Fn(&Journal) -> bool) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let waited = self
            .shared
            .changed
            .wait_timeout_while(self.shared.lock(), left, |state| !condition(&state.journal));
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    pub(super) fn with_journal<T>(&self, read: impl FnOnce(&mut Journal) -> T) -> T {
        read(&mut self.shared.lock().journal)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.shared.lock().is_stopped = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed already.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn listen(&self) {
        let mut generation = 0;
        while let Some((next, address)) = self.next_generation(generation) {
            generation = next;
            let after = self.lock().journal.last_sequence;
            // The daemon may have been killed already; then the next generation follows.
            let opened = TestEventStream::open(address.0.port(), "/events", address.0.token(), Some(after));
            if let Ok(stream) = opened {
                self.follow(stream);
            }
        }
    }

    fn next_generation(&self, last: u64) -> Option<(u64, DaemonAddress)> {
        let is_old = |state: &mut State| {
            !state.is_stopped && state.address.as_ref().is_none_or(|(generation, _)| *generation <= last)
        };
        let waited = self.changed.wait_while(self.lock(), is_old);
        let state = waited.unwrap_or_else(PoisonError::into_inner);
        state.address.clone().filter(|_| !state.is_stopped)
    }

    fn follow(&self, mut stream: TestEventStream) {
        loop {
            let received = stream.wait_event(STOP_POLL_INTERVAL);
            let mut state = self.lock();
            match received {
                Ok(NextEvent::Event(event)) => state.journal.apply_event(&event),
                Ok(NextEvent::TimedOut) if !state.is_stopped => {}
                Ok(NextEvent::TimedOut | NextEvent::Ended) => return,
                Err(cause) => {
                    state.journal.violations.push(format!("the event stream broke: {cause}"));
                    return;
                }
            }
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
