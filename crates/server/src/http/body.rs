//! The body of an answer: nearly always whole bytes; for an event stream, what there is to tell as it comes. A stream is
//! pulled by whoever reads it: what is not read is not made.

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use nexus3_protocol::sse;
use rpc::EventStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::activity::{Activity, LongBusy};

/// The body of an answer.
pub(super) enum AnswerBody {
    Whole(Full<Bytes>),
    Stream(Box<StreamBody>),
}

/// An event stream under way. It counts as a request under way as long as it lasts.
pub(super) struct StreamBody {
    events: EventStream,
    /// What comes before the first event.
    opening: Vec<u8>,
    heartbeat: Duration,
    alarm: Pin<Box<Sleep>>,
    stop: Pin<Box<WaitForCancellationFutureOwned>>,
    is_over: bool,
    _busy: LongBusy,
    _place: Option<OwnedSemaphorePermit>,
}

/// What a stream needs beside its events.
pub(super) struct StreamTerms {
    /// How often a reader hears something.
    pub(super) heartbeat: Duration,
    /// Ends the stream.
    pub(super) stop: CancellationToken,
    /// Where it counts.
    pub(super) activity: Arc<Activity>,
    /// Its place among the streams, if it needs one.
    pub(super) place: Option<OwnedSemaphorePermit>,
}

impl StreamBody {
    pub(super) fn new(events: EventStream, opening: Vec<u8>, terms: StreamTerms) -> Self {
        let StreamTerms { heartbeat, stop, activity, place } = terms;
        Self {
            events,
            opening,
            heartbeat,
            alarm: Box::pin(tokio::time::sleep(heartbeat)),
            stop: Box::pin(stop.cancelled_owned()),
            is_over: false,
            _busy: LongBusy::begin(activity),
            _place: place,
        }
    }

    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if !self.opening.is_empty() {
            return Poll::Ready(Some(std::mem::take(&mut self.opening)));
        }
        if let Poll::Ready(bytes) = self.events.poll_next(cx) {
            self.is_over = bytes.is_none();
            let next = Instant::now() + self.heartbeat;
            self.alarm.as_mut().reset(next);
            return Poll::Ready(bytes);
        }
        if self.stop.as_mut().poll(cx).is_ready() {
            self.is_over = true;
            return Poll::Ready(Some(comment("the daemon stops")));
        }
        if self.alarm.as_mut().poll(cx).is_ready() {
            let next = Instant::now() + self.heartbeat;
            self.alarm.as_mut().reset(next);
            return Poll::Ready(Some(comment("still here")));
        }
        Poll::Pending
    }
}

fn comment(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    sse::write_comment(&mut bytes, text);
    bytes
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            AnswerBody::Whole(whole) => Pin::new(whole).poll_frame(cx),
            AnswerBody::Stream(stream) => {
                let frame = |bytes: Vec<u8>| Ok(Frame::data(Bytes::from(bytes)));
                stream.poll_bytes(cx).map(|bytes| bytes.map(frame))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            AnswerBody::Whole(whole) => whole.is_end_stream(),
            AnswerBody::Stream(stream) => stream.is_over,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            AnswerBody::Whole(whole) => whole.size_hint(),
            AnswerBody::Stream(_) => SizeHint::default(),
        }
    }
}

impl From<Vec<u8>> for AnswerBody {
    fn from(bytes: Vec<u8>) -> Self {
        AnswerBody::Whole(Full::new(Bytes::from(bytes)))
    }
}
