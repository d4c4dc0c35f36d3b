//! Answers that come piece by piece: what happens, and a turn while it is worked on. Whoever reads pulls; nothing waits
//! for a reader, and a reader that leaves ends nothing but its stream.

mod send;
mod event_filter;
mod watch;

use std::pin::Pin;
use std::task::{Context, Poll};

use agent::{Fault, FaultKind};
use futures_util::Stream;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use nexus3_protocol::events::Event;

use crate::dispatcher::Answer;

/// The bytes of an event stream.
pub struct EventStream {
    pieces: BoxStream<'static, Vec<u8>>,
    begins_behind: Option<u64>,
    ended: bool,
}

/// What a body is answered with.
pub enum Reply {
    /// All of it at once.
    Whole(Answer),
    /// As it comes.
    Stream(EventStream),
}

/// Why there is no stream, with what to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoStream {
    /// The caller may not see this.
    Denied(String),
    /// There is no such agent.
    NoSuchAgent(String),
    /// Not now.
    Busy(String),
    /// The daemon failed.
    Failed(String),
}

/// Pieces that are ready are handed on together, up to this: one write for many events.
const TOGETHER_BYTES_MAX: usize = 16 * 1024;

impl EventStream {
    /// A stream of these pieces.
    #[must_use]
    pub fn of(pieces: impl Stream<Item = Vec<u8>> + Send + 'static) -> Self {
        Self { pieces: pieces.boxed(), begins_behind: None, ended: false }
    }

    fn beginning_behind(mut self, sequence: Option<u64>) -> Self {
        self.begins_behind = sequence;
        self
    }

    /// The sequence that the stream begins behind, when the reader cannot know it: a reader that comes back before it
    /// has seen an event misses nothing then.
    #[must_use]
    pub fn begins_behind(&self) -> Option<u64> {
        self.begins_behind
    }

    /// The next bytes; none at the end.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        let mut together = Vec::new();
        while !self.ended && together.len() < TOGETHER_BYTES_MAX {
            match Pin::new(&mut self.pieces).poll_next(cx) {
                Poll::Ready(Some(piece)) if together.is_empty() => together = piece,
                Poll::Ready(Some(piece)) => together.extend_from_slice(&piece),
                Poll::Ready(None) => self.ended = true,
                Poll::Pending if together.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready((!together.is_empty()).then_some(together))
    }
}

impl From<&Fault> for NoStream {
    fn from(fault: &Fault) -> Self {
        let text = fault.public.to_string();
        match fault.kind {
            FaultKind::Denied => NoStream::Denied(text),
            FaultKind::NotFound | FaultKind::Invalid => NoStream::NoSuchAgent(text),
            FaultKind::Busy { .. } | FaultKind::Full { .. } => NoStream::Busy(text),
            FaultKind::Interrupted | FaultKind::Model | FaultKind::ContextFull | FaultKind::Internal => {
                NoStream::Failed(text)
            }
        }
    }
}

/// An event as it stands on a stream.
fn written(event: &Event) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Err(fault) = event.encode(&mut bytes) {
        // Strings, numbers and lists of them always have a JSON spelling.
        tracing::error!(%fault, kind = event.kind().name(), "an event could not be written");
        bytes.clear();
    }
    bytes
}
