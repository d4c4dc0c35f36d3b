//! Progress of a request before its response begins: the client reports it, the stream emits it as events. The runtime
//! thereby distinguishes a queued or slow request from a dead connection.

use agent::outside::{BoxFuture, ModelEvent, ModelStream};
use futures_util::stream::{self, StreamExt};
use tokio::sync::watch;

use crate::error_class::ModelError;

/// Future of a request: the response stream, or why it failed.
pub(crate) type ResponseFuture = BoxFuture<'static, Result<ModelStream, ModelError>>;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct RequestProgress {
    /// Whether the request is not in flight: it is queued or backs off.
    is_waiting: bool,
    /// Number of heartbeats so far.
    heartbeats: u64,
}

/// Reports the progress of one request; clones report the same request.
#[derive(Debug, Clone)]
pub(crate) struct ProgressSender(watch::Sender<RequestProgress>);

impl ProgressSender {
    /// Marks the request as waiting. The caller must bound the wait.
    pub(crate) fn mark_waiting(&self) {
        self.0.send_modify(|progress| progress.is_waiting = true);
    }

    /// Marks the request as sent.
    pub(crate) fn mark_sent(&self) {
        self.0.send_modify(|progress| progress.is_waiting = false);
    }

    /// Reports that the request is still in progress although no content has arrived.
    pub(crate) fn heartbeat(&self) {
        self.0.send_modify(|progress| progress.heartbeats += 1);
    }
}

/// Returns the stream of a request, which starts when the stream is polled. Until the response begins, the stream emits
/// progress events.
pub(crate) fn stream_with_progress(begin: impl FnOnce(ProgressSender) -> ResponseFuture) -> ModelStream {
    let (sender, progress) = watch::channel(RequestProgress::default());
    let pending = PendingResponse {
        response: begin(ProgressSender(sender)),
        progress,
        last_reported: RequestProgress::default(),
    };
    let parts = stream::unfold(Some(pending), |pending| async {
        let mut pending = pending?;
        Some(match pending.next().await {
            PendingStep::Progress(event) => (single_item_stream(Ok(event)), Some(pending)),
            PendingStep::Started(stream) => (stream, None),
        })
    });
    Box::pin(parts.flatten())
}

struct PendingResponse {
    response: ResponseFuture,
    progress: watch::Receiver<RequestProgress>,
    last_reported: RequestProgress,
}

enum PendingStep {
    Progress(ModelEvent),
    Started(ModelStream),
}

impl PendingResponse {
    async fn next(&mut self) -> PendingStep {
        loop {
            let response = tokio::select! {
                biased;
                response = &mut self.response => response,
                changed = self.progress.changed() => match changed {
                    Ok(()) => {
                        let now = *self.progress.borrow_and_update();
                        // A wait that began and ended between two polls is not reported.
                        if now == std::mem::replace(&mut self.last_reported, now) {
                            continue;
                        }
                        return PendingStep::Progress(if now.is_waiting { ModelEvent::Waiting } else { ModelEvent::Heartbeat });
                    }
                    Err(_) => (&mut self.response).await,
                },
            };
            return PendingStep::Started(
                response.unwrap_or_else(|error| single_item_stream(Err(error.fault))),
            );
        }
    }
}

fn single_item_stream(item: Result<ModelEvent, agent::Fault>) -> ModelStream {
    stream::once(std::future::ready(item)).boxed()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn collect_events(begin: impl FnOnce(ProgressSender) -> ResponseFuture) -> Vec<ModelEvent> {
        stream_with_progress(begin).map(|item| item.expect("nothing fails")).collect().await
    }

    fn done_response() -> Result<ModelStream, ModelError> {
        Ok(single_item_stream(Ok(ModelEvent::Done)))
    }

    #[tokio::test(start_paused = true)]
    async fn start_and_end_of_a_wait_are_reported() {
        let events = collect_events(|progress| {
            Box::pin(async move {
                progress.mark_waiting();
                tokio::time::sleep(Duration::from_secs(1)).await;
                progress.mark_sent();
                tokio::time::sleep(Duration::from_secs(1)).await;
                progress.heartbeat();
                tokio::time::sleep(Duration::from_secs(1)).await;
                done_response()
            })
        });
        let expected = [ModelEvent::Waiting, ModelEvent::Heartbeat, ModelEvent::Heartbeat, ModelEvent::Done];
        assert_eq!(events.await, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn request_without_a_wait_emits_only_its_response() {
        let events = collect_events(|progress| {
            Box::pin(async move {
                progress.mark_waiting();
                progress.mark_sent();
                tokio::time::sleep(Duration::from_secs(1)).await;
                done_response()
            })
        });
        assert_eq!(events.await, [ModelEvent::Done]);
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_progress_sender_does_not_end_the_stream() {
        let events = collect_events(|progress| {
            Box::pin(async move {
                drop(progress);
                tokio::time::sleep(Duration::from_secs(1)).await;
                done_response()
            })
        });
        assert_eq!(events.await, [ModelEvent::Done]);
    }
}
