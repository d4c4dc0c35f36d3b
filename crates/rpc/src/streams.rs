//! Answers that come piece by piece: what happens, and a turn while it is worked on. Whoever reads pulls; nothing waits
//! for a reader, and a reader that leaves ends nothing but its stream.

mod event_filter;
mod send;
mod watch;

use std::pin::Pin;
use std::task::{Context, Poll};

use agent::{Fault, FaultKind};
use futures_util::Stream;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use nexus3_protocol::events::Event;

use crate::dispatcher::CallResponse;

/// The bytes of an event stream.
pub struct EventBytes {
    chunks: BoxStream<'static, Vec<u8>>,
    starts_after: Option<u64>,
    has_ended: bool,
}

/// What a body is answered with.
pub enum CallReply {
    /// All of it at once.
    Complete(CallResponse),
    /// As it comes.
    Stream(EventBytes),
}

/// Why there is no stream, with what to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamError {
    /// The caller may not see this.
    Denied(String),
    /// There is no such agent.
    AgentNotFound(String),
    /// Not now.
    Busy(String),
    /// The daemon failed.
    Failed(String),
}

/// Pieces that are ready are handed on together, up to this: one write for many events.
const COALESCED_BYTES_MAX: usize = 16 * 1024;

impl EventBytes {
    /// A stream of these pieces.
    #[must_use]
    pub fn new(pieces: impl Stream<Item = Vec<u8>> + Send + 'static) -> Self {
        Self { chunks: pieces.boxed(), starts_after: None, has_ended: false }
    }

    fn starting_after(mut self, sequence: Option<u64>) -> Self {
        self.starts_after = sequence;
        self
    }

    /// The sequence that the stream begins behind, when the reader cannot know it: a reader that comes back before it
    /// has seen an event misses nothing then.
    #[must_use]
    pub fn starts_after(&self) -> Option<u64> {
        self.starts_after
    }

    /// The next bytes; none at the end.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        let mut together = Vec::new();
        while !self.has_ended && together.len() < COALESCED_BYTES_MAX {
            match Pin::new(&mut self.chunks).poll_next(cx) {
                Poll::Ready(Some(piece)) if together.is_empty() => together = piece,
                Poll::Ready(Some(piece)) => together.extend_from_slice(&piece),
                Poll::Ready(None) => self.has_ended = true,
                Poll::Pending if together.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        Poll::Ready((!together.is_empty()).then_some(together))
    }
}

impl From<&Fault> for StreamError {
    fn from(fault: &Fault) -> Self {
        let text = fault.public.to_string();
        match fault.kind {
            FaultKind::Denied => StreamError::Denied(text),
            FaultKind::NotFound | FaultKind::Invalid => StreamError::AgentNotFound(text),
            FaultKind::Busy { .. } | FaultKind::Full { .. } => StreamError::Busy(text),
            FaultKind::Interrupted | FaultKind::Model | FaultKind::ContextFull | FaultKind::Internal => {
                StreamError::Failed(text)
            }
        }
    }
}

/// An event as it stands on a stream.
fn encode_event(event: &Event) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Err(fault) = event.encode(&mut bytes) {
        // Strings, numbers and lists of them always have a JSON spelling.
        tracing::error!(%fault, kind = event.kind().name(), "an event could not be written");
        bytes.clear();
    }
    bytes
}
