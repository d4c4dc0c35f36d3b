//! What a worker has to say to one client. The worker never waits for the reader: a reader that is slow finds more at once,
//! and one that is far too slow, or gone, ends the job.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use super::refusal::Refusal;
use crate::generation::{Answered, MadeCall, Piece};

/// Far more than any window's worth of text.
const UNREAD_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The worker's end.
#[derive(Clone)]
pub(super) struct Outbox(Arc<Shelf>);

/// The client's end; dropping it says that nobody wants the rest.
pub(super) struct Inbox(Arc<Shelf>);

struct Shelf {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    news: News,
    unread_bytes: usize,
    is_gone: bool,
}

/// What came since the last look.
#[derive(Debug, Default)]
pub(super) struct News {
    /// How far the prompt is read: so many tokens, of so many.
    pub(super) read: Option<(usize, usize)>,
    pub(super) said: Vec<Said>,
    pub(super) ended: Option<Result<Answered, Refusal>>,
}

/// A part of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    Text(String),
    Call(MadeCall),
}

/// Both ends.
pub(super) fn open() -> (Outbox, Inbox) {
    let shelf = Arc::new(Shelf { state: Mutex::default(), changed: Notify::new() });
    (Outbox(Arc::clone(&shelf)), Inbox(shelf))
}

impl Outbox {
    /// Adds a piece and says whether somebody still wants the next.
    pub(super) fn add(&self, piece: &Piece<'_>) -> ControlFlow<()> {
        let flow = self.0.with(|state| {
            match piece {
                Piece::Read { tokens, of } => state.news.read = Some((*tokens, *of)),
                Piece::Text(text) => state.add_text(text),
                Piece::Call(call) => state.add_call(call),
            }
            if state.is_gone || state.unread_bytes > UNREAD_BYTES_MAX {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        self.0.changed.notify_one();
        flow
    }

    /// Says how it ended; nothing may come behind it.
    pub(super) fn end(&self, ended: Result<Answered, Refusal>) {
        self.0.with(|state| state.news.ended = Some(ended));
        self.0.changed.notify_one();
    }

    pub(super) fn is_gone(&self) -> bool {
        self.0.with(|state| state.is_gone)
    }
}

impl Inbox {
    /// What came since the last look; waits until something did.
    pub(super) async fn news(&mut self) -> News {
        loop {
            if let Some(news) = self.0.with(State::take) {
                return news;
            }
            self.0.changed.notified().await;
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.0.with(|state| state.is_gone = true);
    }
}

impl Shelf {
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    fn add_text(&mut self, text: &str) {
        self.unread_bytes += text.len();
        if let Some(Said::Text(last)) = self.news.said.last_mut() {
            last.push_str(text);
        } else if !text.is_empty() {
            self.news.said.push(Said::Text(text.to_owned()));
        }
    }

    fn add_call(&mut self, call: &MadeCall) {
        self.unread_bytes += call.name.len() + call.arguments.len();
        self.news.said.push(Said::Call(call.clone()));
    }

    fn take(&mut self) -> Option<News> {
        let news = &self.news;
        if news.read.is_none() && news.said.is_empty() && news.ended.is_none() {
            return None;
        }
        self.unread_bytes = 0;
        Some(std::mem::take(&mut self.news))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slow_reader_finds_the_texts_in_one_piece() {
        let (outbox, mut inbox) = open();
        for text in ["a", "b", "", "c"] {
            assert!(outbox.add(&Piece::Text(text)).is_continue());
        }
        assert_eq!(inbox.news().await.said, [Said::Text("abc".to_owned())]);
    }

    #[tokio::test]
    async fn texts_and_calls_keep_their_order() {
        let (outbox, mut inbox) = open();
        let call = MadeCall { id: "1".to_owned(), name: "n".to_owned(), arguments: "{}".to_owned() };
        let _ = outbox.add(&Piece::Read { tokens: 3, of: 9 });
        let _ = outbox.add(&Piece::Text("a"));
        let _ = outbox.add(&Piece::Call(&call));
        let _ = outbox.add(&Piece::Text("b"));
        let news = inbox.news().await;
        assert_eq!(news.read, Some((3, 9)));
        assert_eq!(news.said, [Said::Text("a".to_owned()), Said::Call(call), Said::Text("b".to_owned())]);
    }

    #[test]
    fn a_reader_that_went_away_ends_the_job_at_the_next_piece() {
        let (outbox, inbox) = open();
        assert!(outbox.add(&Piece::Text("a")).is_continue() && !outbox.is_gone());
        drop(inbox);
        assert!(outbox.add(&Piece::Text("b")).is_break() && outbox.is_gone());
    }

    #[tokio::test]
    async fn a_reader_that_reads_nothing_ends_the_job_before_the_memory_is_full() {
        let (outbox, mut inbox) = open();
        let text = "x".repeat(UNREAD_BYTES_MAX);
        assert!(outbox.add(&Piece::Text(&text)).is_continue());
        assert!(outbox.add(&Piece::Text("y")).is_break());
        inbox.news().await;
        assert!(outbox.add(&Piece::Text("z")).is_continue());
    }
}
