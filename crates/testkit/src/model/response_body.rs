//! Executes the steps of a planned response as an HTTP body, with its waits.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::response::{BodyPlan, Step, Wait};
use super::shared_state::{RequestTracker, SharedState};

/// The body of one response. Hyper drops it when the peer disconnects; the fields drop in this order, so that the wait
/// stops counting as stalled before the tracker counts the abort.
pub(crate) struct ScriptedBody {
    pending_wait: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    steps: VecDeque<Step>,
    content_length: Option<u64>,
    tracker: RequestTracker,
}

/// Error that ends a body early: hyper closes the connection without the last chunk.
#[derive(Debug)]
pub(crate) struct BodyAborted;

impl fmt::Display for BodyAborted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the script closes the connection here")
    }
}

impl std::error::Error for BodyAborted {}

impl ScriptedBody {
    pub(crate) fn new(plan: BodyPlan, mut tracker: RequestTracker) -> Self {
        let (steps, content_length) = match plan {
            BodyPlan::Complete(bytes) => {
                // Hyper drops a complete body without polling it if the status or the method allows no body.
                tracker.complete();
                let length = bytes.len() as u64;
                (VecDeque::from_iter((length > 0).then_some(Step::Send(bytes))), Some(length))
            }
            BodyPlan::Steps(steps) => (steps, None),
        };
        Self { pending_wait: None, steps, content_length, tracker }
    }
}

impl Body for ScriptedBody {
    type Data = Bytes;
    type Error = BodyAborted;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyAborted>>> {
        loop {
            if let Some(wait) = &mut self.pending_wait {
                ready!(wait.as_mut().poll(cx));
                self.pending_wait = None;
            }
            let step = self.steps.pop_front();
            match step {
                Some(Step::Disconnect) => self.tracker.end_incomplete(),
                Some(Step::Send(_)) | None if self.steps.is_empty() => self.tracker.complete(),
                _ => {}
            }
            match step {
                Some(Step::Send(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Some(Step::Wait(wait)) => {
                    let shared = Arc::clone(self.tracker.shared());
                    self.pending_wait = Some(Box::pin(async move { wait.run(&shared).await }));
                }
                Some(Step::Disconnect) => return Poll::Ready(Some(Err(BodyAborted))),
                None => return Poll::Ready(None),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.pending_wait.is_none() && self.steps.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.content_length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Wait {
    /// Waits; while only a test or the peer can end the wait, the request counts as stalled.
    pub(crate) async fn run(self, shared: &SharedState) {
        match self {
            Self::Pause(pause) => tokio::time::sleep(pause).await,
            // Hyper flushes whenever the body is pending.
            Self::Flush => tokio::task::yield_now().await,
            Self::Release(name) => {
                let _stalled = shared.count_stalled();
                shared.wait_released(&name).await;
            }
            Self::Forever => {
                let _stalled = shared.count_stalled();
                std::future::pending::<()>().await;
            }
        }
    }
}
