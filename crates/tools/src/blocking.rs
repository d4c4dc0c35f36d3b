//! Work that would hold up the thread of the turns: done on a thread of its own, and told when nobody waits any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::definition::{ToolResult, execution_failed};

/// Says whether whoever asked is gone. Work that takes long looks at it again and again.
#[derive(Clone)]
pub(crate) struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    /// One that is never given.
    pub(crate) fn never() -> Self {
        Self(Arc::new(AtomicBool::new(false)))
    }

    /// One that was given.
    #[cfg(test)]
    pub(crate) fn cancelled() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    /// An error when nobody waits for the answer any more.
    pub(crate) fn check(&self) -> Result<(), agent::ToolOutcome> {
        if self.0.load(Ordering::Relaxed) {
            Err(execution_failed("nobody waits for it any more"))
        } else {
            Ok(())
        }
    }
}

/// Does work on a thread of its own. Dropping the future tells the work to stop: a thread cannot be ended from outside.
pub(crate) async fn run_blocking(
    work: impl FnOnce(&CancelFlag) -> ToolResult + Send + 'static,
) -> ToolResult {
    let stop = CancelFlag::never();
    let waiting = CancelOnDrop(stop.clone());
    let answer = tokio::task::spawn_blocking(move || work(&stop)).await;
    drop(waiting);
    answer
        .unwrap_or_else(|_| Err(execution_failed("the tool broke down; this is a fault of the tool itself")))
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
    async fn dropping_the_wait_stops_the_work() {
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
    async fn a_panic_fails_the_call_alone() {
        let answer = run_blocking(|_| panic!("broken")).await;
        assert!(answer.unwrap_err().text().starts_with("Execution failed: the tool broke down"));
    }
}
