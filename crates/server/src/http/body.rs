//! Response bodies: complete bytes, or an event stream. Streams are pull-based: a piece of an event is only taken
//! when the connection can buffer it.

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use accept::{Activity, OwnedActivityGuard};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use nexus3_protocol::sse;
use rpc::EventBytes;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::stream_permits::StreamPermit;

/// Body of a response.
pub(super) enum ResponseBody {
    Complete(Full<Bytes>),
    Stream(Box<StreamBody>),
}

/// Body of an event stream. It counts as a request in flight as long as it exists.
pub(super) struct StreamBody {
    events: EventBytes,
    /// Bytes before the first event.
    preamble: Bytes,
    heartbeat_interval: Duration,
    heartbeat_timer: Pin<Box<Sleep>>,
    stop: Pin<Box<WaitForCancellationFutureOwned>>,
    is_finished: bool,
    _activity: OwnedActivityGuard,
    _permit: Option<StreamPermit>,
}

/// Everything a stream needs besides its events.
pub(super) struct StreamContext {
    /// Maximum silence before a heartbeat comment.
    pub(super) heartbeat_interval: Duration,
    /// Ends the stream when the daemon shuts down.
    pub(super) stop: CancellationToken,
    /// Counts the stream as a request in flight.
    pub(super) activity: Arc<Activity>,
    /// Permit of the limit on event streams; `None` for the stream of a `send`, which needs none.
    pub(super) permit: Option<StreamPermit>,
}

impl StreamBody {
    pub(super) fn new(events: EventBytes, preamble: impl Into<Bytes>, context: StreamContext) -> Self {
        let StreamContext { heartbeat_interval, stop, activity, permit } = context;
        Self {
            events,
            preamble: preamble.into(),
            heartbeat_interval,
            heartbeat_timer: Box::pin(tokio::time::sleep(heartbeat_interval)),
            stop: Box::pin(stop.cancelled_owned()),
            is_finished: false,
            _activity: OwnedActivityGuard::start(activity),
            _permit: permit,
        }
    }

    fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.is_finished {
            return Poll::Ready(None);
        }
        if !self.preamble.is_empty() {
            return Poll::Ready(Some(std::mem::take(&mut self.preamble)));
        }
        if let Poll::Ready(bytes) = self.events.poll_next(cx) {
            self.is_finished = bytes.is_none();
            let next = Instant::now() + self.heartbeat_interval;
            self.heartbeat_timer.as_mut().reset(next);
            return Poll::Ready(bytes);
        }
        if self.stop.as_mut().poll(cx).is_ready() {
            self.is_finished = true;
            return Poll::Ready(Some(comment("daemon shutting down")));
        }
        if self.heartbeat_timer.as_mut().poll(cx).is_ready() {
            let next = Instant::now() + self.heartbeat_interval;
            self.heartbeat_timer.as_mut().reset(next);
            return Poll::Ready(Some(comment("heartbeat")));
        }
        Poll::Pending
    }
}

fn comment(text: &str) -> Bytes {
    let mut bytes = Vec::new();
    sse::write_comment(&mut bytes, text);
    bytes.into()
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            ResponseBody::Complete(body) => Pin::new(body).poll_frame(cx),
            ResponseBody::Stream(stream) => {
                stream.poll_bytes(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ResponseBody::Complete(body) => body.is_end_stream(),
            ResponseBody::Stream(stream) => stream.is_finished,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ResponseBody::Complete(body) => body.size_hint(),
            ResponseBody::Stream(_) => SizeHint::default(),
        }
    }
}

impl From<Vec<u8>> for ResponseBody {
    fn from(bytes: Vec<u8>) -> Self {
        ResponseBody::Complete(Full::new(Bytes::from(bytes)))
    }
}
