//! Event streams: watching events, and streaming the turn of a `send`. The client pulls; no agent waits for a slow
//! client, and a client that disconnects ends only its stream.

mod encoded_events;
mod event_filter;
mod send;
mod watch;

use std::pin::Pin;
use std::task::{Context, Poll};

use agent::FaultKind;
use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use nexus3_protocol::events::Event;

pub(crate) use self::encoded_events::SharedEncodedEvents;
use crate::dispatcher::CallResponse;
use crate::operation::{CallFault, PANICKED_TEXT};

/// Serialized event stream (SSE). While it is not polled, it holds no event.
pub struct EventBytes {
    chunks: BoxStream<'static, Bytes>,
    starts_after: Option<u64>,
    has_ended: bool,
}

/// Reply to a request body.
pub enum CallReply {
    /// A complete response.
    Complete(CallResponse),
    /// An event stream.
    Stream(EventBytes),
}

/// Why a stream was refused, with the message for the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamError {
    /// The caller is not authorized.
    Denied(String),
    /// The agent does not exist.
    AgentNotFound(String),
    /// The daemon is busy; the client may retry.
    Busy(String),
    /// Internal error.
    Failed(String),
}

/// Ready chunks are coalesced until they have this size, to write many events at once.
const COALESCED_BYTES: usize = encoded_events::PIECE_BYTES_MAX;

impl EventBytes {
    /// Creates a stream of chunks.
    #[must_use]
    pub fn new(chunks: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self { chunks: chunks.boxed(), starts_after: None, has_ended: false }
    }

    fn starting_after(mut self, sequence: Option<u64>) -> Self {
        self.starts_after = sequence;
        self
    }

    /// Returns the sequence after which the stream starts, if the client did not choose it. With it, a client that
    /// reconnects before its first event misses nothing.
    #[must_use]
    pub fn starts_after(&self) -> Option<u64> {
        self.starts_after
    }

    /// Polls for the next bytes; `None` at the end.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let (mut first, mut coalesced) = (Bytes::new(), BytesMut::new());
        while !self.has_ended && first.len() + coalesced.len() < COALESCED_BYTES {
            match Pin::new(&mut self.chunks).poll_next(cx) {
                Poll::Ready(Some(chunk)) if first.is_empty() && coalesced.is_empty() => first = chunk,
                Poll::Ready(Some(chunk)) => {
                    coalesced.extend_from_slice(&std::mem::take(&mut first));
                    coalesced.extend_from_slice(&chunk);
                }
                Poll::Ready(None) => self.has_ended = true,
                Poll::Pending if first.is_empty() && coalesced.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        let bytes = if coalesced.is_empty() { first } else { coalesced.freeze() };
        Poll::Ready((!bytes.is_empty()).then_some(bytes))
    }
}

impl From<CallFault> for StreamError {
    fn from(fault: CallFault) -> Self {
        let fault = match fault {
            CallFault::Fault(fault) => fault,
            CallFault::Panicked => return StreamError::Failed(PANICKED_TEXT.to_owned()),
        };
        let text = fault.public.to_string();
        match fault.kind {
            FaultKind::Denied => StreamError::Denied(text),
            FaultKind::NotFound | FaultKind::Invalid | FaultKind::Conflict => {
                StreamError::AgentNotFound(text)
            }
            FaultKind::Busy { .. } | FaultKind::Full { .. } => StreamError::Busy(text),
            FaultKind::Interrupted | FaultKind::Model | FaultKind::ContextFull | FaultKind::Internal => {
                StreamError::Failed(text)
            }
        }
    }
}

/// Serializes an event for the stream.
fn encode_event(event: &Event) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Err(fault) = event.encode(&mut bytes) {
        // Not expected: events consist of strings, numbers and lists of them.
        tracing::error!(%fault, kind = event.kind().name(), "cannot serialize an event; it is dropped");
        bytes.clear();
    }
    bytes
}
