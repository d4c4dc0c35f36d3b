//! How a question stands before its answer begins: told by whoever asks, heard as events of the stream. Whoever waits for
//! an answer can tell patience from silence by it.

use agent::outside::{Doing, ModelEvent, ModelStream};
use futures_util::stream::{self, StreamExt};
use tokio::sync::watch;

use crate::failing::Failing;

/// What becomes of a question: its answer, or why there is none.
pub(crate) type Beginning = Doing<'static, Result<ModelStream, Failing>>;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Standing {
    /// Nobody is asked at the moment: it is in a queue, or the server wants to be left alone.
    waits: bool,
    /// How often the server has shown that it is there.
    signs: u64,
}

/// Tells how a question stands. Clones tell of the same question.
#[derive(Debug, Clone)]
pub(crate) struct Teller(watch::Sender<Standing>);

impl Teller {
    /// The question waits. Whoever says so bounds the wait.
    pub(crate) fn waits(&self) {
        self.0.send_modify(|standing| standing.waits = true);
    }

    /// The question is on its way.
    pub(crate) fn asks(&self) {
        self.0.send_modify(|standing| standing.waits = false);
    }

    /// The server is at it, though nothing of the answer has come.
    pub(crate) fn lives(&self) {
        self.0.send_modify(|standing| standing.signs += 1);
    }
}

/// The stream of a question that is begun when the stream is polled. Until the answer begins, it tells how it stands.
pub(crate) fn begun_when_polled(begin: impl FnOnce(Teller) -> Beginning) -> ModelStream {
    let (teller, standing) = watch::channel(Standing::default());
    let opening = Opening { beginning: begin(Teller(teller)), standing, told: Standing::default() };
    let parts = stream::unfold(Some(opening), |opening| async {
        let mut opening = opening?;
        Some(match opening.next().await {
            Next::Told(event) => (once(Ok(event)), Some(opening)),
            Next::Begun(stream) => (stream, None),
        })
    });
    Box::pin(parts.flatten())
}

struct Opening {
    beginning: Beginning,
    standing: watch::Receiver<Standing>,
    told: Standing,
}

enum Next {
    Told(ModelEvent),
    Begun(ModelStream),
}

impl Opening {
    async fn next(&mut self) -> Next {
        loop {
            let begun = tokio::select! {
                biased;
                begun = &mut self.beginning => begun,
                changed = self.standing.changed() => match changed {
                    Ok(()) => {
                        let now = *self.standing.borrow_and_update();
                        // A wait that took no time was none.
                        if now == std::mem::replace(&mut self.told, now) {
                            continue;
                        }
                        return Next::Told(if now.waits { ModelEvent::Waiting } else { ModelEvent::Alive });
                    }
                    Err(_) => (&mut self.beginning).await,
                },
            };
            return Next::Begun(begun.unwrap_or_else(|failing| once(Err(failing.fault))));
        }
    }
}

fn once(item: Result<ModelEvent, agent::Fault>) -> ModelStream {
    stream::once(std::future::ready(item)).boxed()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn told(begin: impl FnOnce(Teller) -> Beginning) -> Vec<ModelEvent> {
        begun_when_polled(begin).map(|item| item.expect("nothing fails")).collect().await
    }

    fn answer() -> Result<ModelStream, Failing> {
        Ok(once(Ok(ModelEvent::Done)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_is_told_when_it_begins_and_when_it_is_over() {
        let events = told(|teller| {
            Box::pin(async move {
                teller.waits();
                tokio::time::sleep(Duration::from_secs(1)).await;
                teller.asks();
                tokio::time::sleep(Duration::from_secs(1)).await;
                teller.lives();
                tokio::time::sleep(Duration::from_secs(1)).await;
                answer()
            })
        });
        let expected = [ModelEvent::Waiting, ModelEvent::Alive, ModelEvent::Alive, ModelEvent::Done];
        assert_eq!(events.await, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_need_not_wait_tells_nothing_but_its_answer() {
        let events = told(|teller| {
            Box::pin(async move {
                teller.waits();
                teller.asks();
                tokio::time::sleep(Duration::from_secs(1)).await;
                answer()
            })
        });
        assert_eq!(events.await, [ModelEvent::Done]);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_tells_no_more_is_waited_for_all_the_same() {
        let events = told(|teller| {
            Box::pin(async move {
                drop(teller);
                tokio::time::sleep(Duration::from_secs(1)).await;
                answer()
            })
        });
        assert_eq!(events.await, [ModelEvent::Done]);
    }
}
