//! The captured output of one pipe of a process, and waiting for more of it.

use std::io::{ErrorKind, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct CapturedOutput {
    buffer: Mutex<OutputBuffer>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct OutputBuffer {
    bytes: Vec<u8>,
    is_closed: bool,
}

/// How a wait for output ended.
pub(crate) enum OutputWait<T> {
    Found(T),
    Closed,
    TimedOut,
}

impl CapturedOutput {
    /// Reads `pipe` to its end on a thread of its own.
    pub(crate) fn spawn_reader(name: &str, pipe: impl Read + Send + 'static) -> Arc<Self> {
        let captured = Arc::new(Self::default());
        let collector = Arc::clone(&captured);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || collector.collect(pipe));
        // Detached on purpose: it ends with the pipe, which may outlive the process.
        drop(thread.expect("a thread can be started"));
        captured
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.lock().bytes).into_owned()
    }

    /// Waits until `find` returns a value for the text, or the pipe is closed.
    pub(crate) fn wait<T>(&self, within: Duration, find: impl Fn(&str) -> Option<T>) -> OutputWait<T> {
        let mut found = None;
        let waited = self.changed.wait_timeout_while(self.lock(), within, |buffer| {
            found = find(&String::from_utf8_lossy(&buffer.bytes));
            found.is_none() && !buffer.is_closed
        });
        let (buffer, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match found {
            Some(found) => OutputWait::Found(found),
            None if buffer.is_closed => OutputWait::Closed,
            None => OutputWait::TimedOut,
        }
    }

    pub(crate) fn wait_closed(&self, within: Duration) {
        let waited = self.changed.wait_timeout_while(self.lock(), within, |buffer| !buffer.is_closed);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn collect(&self, mut pipe: impl Read) {
        let mut chunk = [0; 8 * 1024];
        loop {
            let read = match pipe.read(&mut chunk) {
                Ok(read) => read,
                Err(cause) if cause.kind() == ErrorKind::Interrupted => continue,
                Err(_) => 0,
            };
            let mut buffer = self.lock();
            buffer.bytes.extend_from_slice(&chunk[..read]);
            buffer.is_closed = read == 0;
            self.changed.notify_all();
            if read == 0 {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, OutputBuffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
