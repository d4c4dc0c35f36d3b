//! A stream that counts its bytes and ends with an error beyond a limit: nothing a server sends is free, neither headers
//! nor framing.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The bytes of a connection.
#[derive(Debug, Default)]
pub(super) struct ByteCounts {
    sent: AtomicUsize,
    received: AtomicUsize,
}

impl ByteCounts {
    pub(super) fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }

    pub(super) fn received(&self) -> usize {
        self.received.load(Ordering::Relaxed)
    }
}

/// A stream with counters.
pub(super) struct Metered<S> {
    stream: S,
    counts: Arc<ByteCounts>,
    received_max: usize,
}

impl<S> Metered<S> {
    pub(super) fn new(stream: S, received_max: usize) -> (Self, Arc<ByteCounts>) {
        let counts = Arc::new(ByteCounts::default());
        (Self { stream, counts: Arc::clone(&counts), received_max }, counts)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        let added = buffer.filled().len().saturating_sub(before);
        let received = self.counts.received.fetch_add(added, Ordering::Relaxed) + added;
        if received > self.received_max {
            let text = format!("the response is larger than {} bytes", self.received_max);
            return Poll::Ready(Err(io::Error::other(text)));
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = polled {
            self.counts.sent.fetch_add(count, Ordering::Relaxed);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
