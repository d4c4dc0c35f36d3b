//! How a question stands before its answer begins: told by whoever asks, heard as events of the stream. Whoever waits for
//! an answer can tell patience from silence by it.

use agent::outside::{BoxFuture, ModelEvent, ModelStream};
use futures_util::stream::{self, StreamExt};
use tokio::sync::watch;

use crate::error_class::ModelError;

/// What becomes of a question: its answer, or why there is none.
pub(crate) type ResponseFuture = BoxFuture<'static, Result<ModelStream, ModelError>>;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct RequestProgress {
    /// Nobody is asked at the moment: it is in a queue, or the server wants to be left alone.
    is_waiting: bool,
    /// How often the server has shown that it is there.
    heartbeats: u64,
}

/// Tells how a question stands. Clones tell of the same question.
#[derive(Debug, Clone)]
pub(crate) struct ProgressSender(watch::Sender<RequestProgress>);

impl ProgressSender {
    /// The question waits. Whoever says so bounds the wait.
    pub(crate) fn mark_waiting(&self) {
        self.0.send_modify(|standing| standing.is_waiting = true);
    }

    /// The question is on its way.
    pub(crate) fn mark_sent(&self) {
        self.0.send_modify(|standing| standing.is_waiting = false);
    }

    /// The server is at it, though nothing of the answer has come.
    pub(crate) fn heartbeat(&self) {
        self.0.send_modify(|standing| standing.heartbeats += 1);
    }
}

/// The stream of a question that is begun when the stream is polled. Until the answer begins, it tells how it stands.
pub(crate) fn stream_with_progress(begin: impl FnOnce(ProgressSender) -> ResponseFuture) -> ModelStream {
    let (teller, standing) = watch::channel(RequestProgress::default());
    let opening = PendingResponse {
        response: begin(ProgressSender(teller)),
        progress: standing,
        last_reported: RequestProgress::default(),
    };
    let parts = stream::unfold(Some(opening), |opening| async {
        let mut opening = opening?;
        Some(match opening.next().await {
            PendingStep::Progress(event) => (single_item_stream(Ok(event)), Some(opening)),
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
            let begun = tokio::select! {
                biased;
                begun = &mut self.response => begun,
                changed = self.progress.changed() => match changed {
                    Ok(()) => {
                        let now = *self.progress.borrow_and_update();
                        // A wait that took no time was none.
                        if now == std::mem::replace(&mut self.last_reported, now) {
                            continue;
                        }
                        return PendingStep::Progress(if now.is_waiting { ModelEvent::Waiting } else { ModelEvent::Heartbeat });
                    }
                    Err(_) => (&mut self.response).await,
                },
            };
            return PendingStep::Started(
                begun.unwrap_or_else(|failing| single_item_stream(Err(failing.fault))),
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
    async fn a_wait_is_told_when_it_begins_and_when_it_is_over() {
        let events = collect_events(|teller| {
            Box::pin(async move {
                teller.mark_waiting();
                tokio::time::sleep(Duration::from_secs(1)).await;
                teller.mark_sent();
                tokio::time::sleep(Duration::from_secs(1)).await;
                teller.heartbeat();
                tokio::time::sleep(Duration::from_secs(1)).await;
                done_response()
            })
        });
        let expected = [ModelEvent::Waiting, ModelEvent::Heartbeat, ModelEvent::Heartbeat, ModelEvent::Done];
        assert_eq!(events.await, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_need_not_wait_tells_nothing_but_its_answer() {
        let events = collect_events(|teller| {
            Box::pin(async move {
                teller.mark_waiting();
                teller.mark_sent();
                tokio::time::sleep(Duration::from_secs(1)).await;
                done_response()
            })
        });
        assert_eq!(events.await, [ModelEvent::Done]);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_tells_no_more_is_waited_for_all_the_same() {
        let events = collect_events(|teller| {
            Box::pin(async move {
                drop(teller);
                tokio::time::sleep(Duration::from_secs(1)).await;
                done_response()
            })
        });
        assert_eq!(events.await, [ModelEvent::Done]);
    }
}
