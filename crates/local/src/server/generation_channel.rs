//! Channel from a worker to one HTTP response. The worker never waits for the receiver: a slow receiver gets larger
//! batches, and one that lags beyond a limit, or is dropped, cancels the job.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use super::refusal::Refusal;
use crate::generation::{ChatToolCall, GenerationEvent, GenerationSummary};

/// Most unread bytes before the job is cancelled; far more than the text of any context window.
const UNREAD_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The worker's end of the channel.
#[derive(Clone)]
pub(super) struct GenerationSender(Arc<Channel>);

/// The HTTP response's end of the channel; dropping it cancels the job.
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

/// Everything sent since the last `recv`.
#[derive(Debug, Default)]
pub(super) struct GenerationBatch {
    /// Evaluated and total tokens of the prompt.
    pub(super) prompt_progress: Option<(usize, usize)>,
    pub(super) parts: Vec<OutputPart>,
    pub(super) outcome: Option<Result<GenerationSummary, Refusal>>,
}

/// A part of a response.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OutputPart {
    Text(String),
    ToolCall(ChatToolCall),
}

/// Creates a channel.
pub(super) fn channel() -> (GenerationSender, GenerationReceiver) {
    let channel = Arc::new(Channel { state: Mutex::default(), changed: Notify::new() });
    (GenerationSender(Arc::clone(&channel)), GenerationReceiver(channel))
}

impl GenerationSender {
    /// Sends an event; returns `Break` when the job should be cancelled.
    pub(super) fn send(&self, event: &GenerationEvent<'_>) -> ControlFlow<()> {
        let flow = self.0.with_state(|state| {
            match event {
                GenerationEvent::PromptProgress { tokens, total_tokens } => {
                    state.unread.prompt_progress = Some((*tokens, *total_tokens));
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

    /// Sends the outcome; nothing may be sent after it.
    pub(super) fn finish(&self, outcome: Result<GenerationSummary, Refusal>) {
        self.0.with_state(|state| state.unread.outcome = Some(outcome));
        self.0.changed.notify_one();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.with_state(|state| state.is_receiver_dropped)
    }
}

impl GenerationReceiver {
    /// Receives everything sent since the last call; waits until there is something.
    pub(super) async fn recv(&mut self) -> GenerationBatch {
        loop {
            if let Some(batch) = self.0.with_state(State::take_unread) {
                return batch;
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
        let batch = &self.unread;
        if batch.prompt_progress.is_none() && batch.parts.is_empty() && batch.outcome.is_none() {
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
    async fn slow_receiver_gets_texts_joined() {
        let (sender, mut receiver) = channel();
        for text in ["a", "b", "", "c"] {
            assert!(sender.send(&GenerationEvent::Text(text)).is_continue());
        }
        assert_eq!(receiver.recv().await.parts, [OutputPart::Text("abc".to_owned())]);
    }

    #[tokio::test]
    async fn texts_and_calls_stay_in_order() {
        let (sender, mut receiver) = channel();
        let call = ChatToolCall { id: "1".to_owned(), name: "n".to_owned(), arguments: "{}".to_owned() };
        let _ = sender.send(&GenerationEvent::PromptProgress { tokens: 3, total_tokens: 9 });
        let _ = sender.send(&GenerationEvent::Text("a"));
        let _ = sender.send(&GenerationEvent::ToolCall(&call));
        let _ = sender.send(&GenerationEvent::Text("b"));
        let batch = receiver.recv().await;
        assert_eq!(batch.prompt_progress, Some((3, 9)));
        assert_eq!(
            batch.parts,
            [OutputPart::Text("a".to_owned()), OutputPart::ToolCall(call), OutputPart::Text("b".to_owned())]
        );
    }

    #[test]
    fn dropped_receiver_cancels_at_the_next_event() {
        let (sender, receiver) = channel();
        assert!(sender.send(&GenerationEvent::Text("a")).is_continue() && !sender.is_closed());
        drop(receiver);
        assert!(sender.send(&GenerationEvent::Text("b")).is_break() && sender.is_closed());
    }

    #[tokio::test]
    async fn lagging_receiver_cancels_at_the_byte_limit() {
        let (sender, mut receiver) = channel();
        let text = "x".repeat(UNREAD_BYTES_MAX);
        assert!(sender.send(&GenerationEvent::Text(&text)).is_continue());
        assert!(sender.send(&GenerationEvent::Text("y")).is_break());
        receiver.recv().await;
        assert!(sender.send(&GenerationEvent::Text("z")).is_continue());
    }
}
