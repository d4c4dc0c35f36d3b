//! What a worker has to say to one client. The worker never waits for the reader: a reader that is slow finds more at once,
//! and one that is far too slow, or gone, ends the job.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use super::refusal::Refusal;
use crate::generation::{ChatToolCall, GenerationEvent, GenerationSummary};

/// Far more than any window's worth of text.
const UNREAD_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The worker's end.
#[derive(Clone)]
pub(super) struct GenerationSender(Arc<Channel>);

/// The client's end; dropping it says that nobody wants the rest.
pub(super) struct GenerationReceiver(Arc<Channel>);

struct Channel {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    unread: GenerationBatch,
    unread_bytes: usize,
    is_receiver_dropped: bool,
}

/// What came since the last look.
#[derive(Debug, Default)]
pub(super) struct GenerationBatch {
    /// How far the prompt is read: so many tokens, of so many.
    pub(super) prompt_progress: Option<(usize, usize)>,
    pub(super) parts: Vec<OutputPart>,
    pub(super) outcome: Option<Result<GenerationSummary, Refusal>>,
}

/// A part of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OutputPart {
    Text(String),
    ToolCall(ChatToolCall),
}

/// Both ends.
pub(super) fn channel() -> (GenerationSender, GenerationReceiver) {
    let shelf = Arc::new(Channel { state: Mutex::default(), changed: Notify::new() });
    (GenerationSender(Arc::clone(&shelf)), GenerationReceiver(shelf))
}

impl GenerationSender {
    /// Adds a piece and says whether somebody still wants the next.
    pub(super) fn send(&self, piece: &GenerationEvent<'_>) -> ControlFlow<()> {
        let flow = self.0.with_state(|state| {
            match piece {
                GenerationEvent::PromptProgress { tokens, total_tokens: of } => {
                    state.unread.prompt_progress = Some((*tokens, *of))
                }
                GenerationEvent::Text(text) => state.add_text(text),
                GenerationEvent::ToolCall(call) => state.add_call(call),
            }
            if state.is_receiver_dropped || state.unread_bytes > UNREAD_BYTES_MAX {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        self.0.changed.notify_one();
        flow
    }

    /// Says how it ended; nothing may come behind it.
    pub(super) fn finish(&self, ended: Result<GenerationSummary, Refusal>) {
        self.0.with_state(|state| state.unread.outcome = Some(ended));
        self.0.changed.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.with_state(|state| state.is_receiver_dropped)
    }
}

impl GenerationReceiver {
    /// What came since the last look; waits until something did.
    pub(super) async fn recv(&mut self) -> GenerationBatch {
        loop {
            if let Some(news) = self.0.with_state(State::take_unread) {
                return news;
            }
            self.0.changed.notified().await;
        }
    }
}

impl Drop for GenerationReceiver {
    fn drop(&mut self) {
        self.0.with_state(|state| state.is_receiver_dropped = true);
    }
}

impl Channel {
    fn with_state<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    fn add_text(&mut self, text: &str) {
        self.unread_bytes += text.len();
        if let Some(OutputPart::Text(last)) = self.unread.parts.last_mut() {
            last.push_str(text);
        } else if !text.is_empty() {
            self.unread.parts.push(OutputPart::Text(text.to_owned()));
        }
    }

    fn add_call(&mut self, call: &ChatToolCall) {
        self.unread_bytes += call.name.len() + call.arguments.len();
        self.unread.parts.push(OutputPart::ToolCall(call.clone()));
    }

    fn take_unread(&mut self) -> Option<GenerationBatch> {
        let news = &self.unread;
        if news.prompt_progress.is_none() && news.parts.is_empty() && news.outcome.is_none() {
            return None;
        }
        self.unread_bytes = 0;
        Some(std::mem::take(&mut self.unread))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slow_reader_finds_the_texts_in_one_piece() {
        let (outbox, mut inbox) = channel();
        for text in ["a", "b", "", "c"] {
            assert!(outbox.send(&GenerationEvent::Text(text)).is_continue());
        }
        assert_eq!(inbox.recv().await.parts, [OutputPart::Text("abc".to_owned())]);
    }

    #[tokio::test]
    async fn texts_and_calls_keep_their_order() {
        let (outbox, mut inbox) = channel();
        let call = ChatToolCall { id: "1".to_owned(), name: "n".to_owned(), arguments: "{}".to_owned() };
        let _ = outbox.send(&GenerationEvent::PromptProgress { tokens: 3, total_tokens: 9 });
        let _ = outbox.send(&GenerationEvent::Text("a"));
        let _ = outbox.send(&GenerationEvent::ToolCall(&call));
        let _ = outbox.send(&GenerationEvent::Text("b"));
        let news = inbox.recv().await;
        assert_eq!(news.prompt_progress, Some((3, 9)));
        assert_eq!(
            news.parts,
            [OutputPart::Text("a".to_owned()), OutputPart::ToolCall(call), OutputPart::Text("b".to_owned())]
        );
    }

    #[test]
    fn a_reader_that_went_away_ends_the_job_at_the_next_piece() {
        let (outbox, inbox) = channel();
        assert!(outbox.send(&GenerationEvent::Text("a")).is_continue() && !outbox.is_closed());
        drop(inbox);
        assert!(outbox.send(&GenerationEvent::Text("b")).is_break() && outbox.is_closed());
    }

    #[tokio::test]
    async fn a_reader_that_reads_nothing_ends_the_job_before_the_memory_is_full() {
        let (outbox, mut inbox) = channel();
        let text = "x".repeat(UNREAD_BYTES_MAX);
        assert!(outbox.send(&GenerationEvent::Text(&text)).is_continue());
        assert!(outbox.send(&GenerationEvent::Text("y")).is_break());
        inbox.recv().await;
        assert!(outbox.send(&GenerationEvent::Text("z")).is_continue());
    }
}
