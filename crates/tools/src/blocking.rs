//! Runs blocking work on a thread of its own, with cooperative cancellation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::definition::{ToolResult, execution_failed};

/// A cancellation flag. Long-running work checks it regularly.
#[derive(Clone)]
pub(crate) struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    /// Creates a flag that is not set.
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicBool::new(false)))
    }

    /// Creates a flag that is already set.
    #[cfg(test)]
    pub(crate) fn cancelled() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    /// Fails when the call was cancelled.
    pub(crate) fn check(&self) -> Result<(), agent::ToolOutcome> {
        if self.0.load(Ordering::Relaxed) { Err(execution_failed("the call was cancelled")) } else { Ok(()) }
    }
}

/// Runs work on a blocking thread. Dropping the future sets the cancellation flag: a thread cannot be stopped from
/// outside.
pub(crate) async fn run_blocking(
    work: impl FnOnce(&CancelFlag) -> ToolResult + Send + 'static,
) -> ToolResult {
    let stop = CancelFlag::new();
    let cancel_on_drop = CancelOnDrop(stop.clone());
    let result = tokio::task::spawn_blocking(move || work(&stop)).await;
    drop(cancel_on_drop);
    result.unwrap_or_else(|_| Err(execution_failed("the tool panicked; this is a bug in the tool")))
}

struct CancelOnDrop(CancelFlag);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::{Context, Waker};

    use super::*;

    #[tokio::test]
    async fn dropping_the_future_cancels_the_work() {
        let (begun, is_begun) = mpsc::channel();
        let (ended, is_ended) = mpsc::channel();
        let mut working = Box::pin(run_blocking(move |stop| {
            begun.send(()).unwrap();
            while stop.check().is_ok() {
                std::thread::yield_now();
            }
            ended.send(()).unwrap();
            Ok(String::new())
        }));
        assert!(working.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        is_begun.recv().unwrap();
        drop(working);
        is_ended.recv().unwrap();
    }

    #[tokio::test]
    async fn panic_fails_only_the_call() {
        let result = run_blocking(|_| panic!("broken")).await;
        assert!(result.unwrap_err().text().starts_with("Execution failed: the tool panicked"));
    }
}
