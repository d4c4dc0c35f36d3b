//! Validating stream between the socket and hyper. It passes only complete, well-formed heads on to hyper and enforces
//! the timeouts of slow peers.
//!
//! It replaces a refused head by a placeholder request; the service responds to it with the refusal in the
//! [`RefusalSlot`]. So hyper writes the refusal in order, after the responses to earlier pipelined requests.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::head::{Framing, HeadParser, HeadVerdict};
use super::limits::HttpLimits;
use super::refusal::Refusal;

/// Cell in which the validator passes a refusal to the service.
pub(super) type RefusalSlot = Arc<OnceLock<Refusal>>;

/// Path of the placeholder request. A client that requests it itself gets 404, as for any unknown path.
pub(super) const PLACEHOLDER_PATH: &str = "/.refused";

const PLACEHOLDER_REQUEST: &[u8] =
    b"POST /.refused HTTP/1.1\r\nHost: refused\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// Limits on input that is read and discarded before the socket is closed. Closing a socket with unread input resets
/// the connection, and the peer could lose the response.
const LINGER_BYTES_MAX: usize = 4 * 1024 * 1024;
const LINGER: Duration = Duration::from_secs(2);

/// Head and body up to this total size are copied into one write, which is cheaper than a vectored write. Hyper could
/// do this itself, but would keep a buffer as large as the largest response for each connection.
const COALESCED_BYTES_MAX: usize = 1024;

/// A socket whose input is validated before hyper reads it.
pub(super) struct HeadValidator<S> {
    socket: S,
    limits: Arc<HttpLimits>,
    slot: RefusalSlot,
    state: ReadState,
    parser: HeadParser,
    /// Bytes read from the socket that hyper has not read yet.
    buffer: Vec<u8>,
    /// Number of bytes in `buffer` that hyper may read.
    released_bytes: usize,
    awaiting: Awaiting,
    waiting_since: Option<Instant>,
    read_timer: LazyTimer,
    write_waiting_since: Option<Instant>,
    write_timer: LazyTimer,
    lingered_bytes: usize,
    is_write_shut: bool,
}

/// Part of the message that the next byte of the socket belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadState {
    Head,
    Body(u64),
    /// A chunked body; no request follows it.
    ChunkedBody,
    /// The head was refused; further input is discarded.
    Refused,
}

/// Which timeout applies while a head is awaited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaiting {
    FirstByte,
    RestOfHead,
    NextRequest,
}

impl<S: AsyncRead + AsyncWrite + Unpin> HeadValidator<S> {
    pub(super) fn new(socket: S, limits: Arc<HttpLimits>, slot: RefusalSlot) -> Self {
        Self {
            socket,
            limits,
            slot,
            state: ReadState::Head,
            parser: HeadParser::default(),
            buffer: Vec::new(),
            released_bytes: 0,
            awaiting: Awaiting::FirstByte,
            waiting_since: None,
            read_timer: LazyTimer::default(),
            write_waiting_since: None,
            write_timer: LazyTimer::default(),
            lingered_bytes: 0,
            is_write_shut: false,
        }
    }

    fn refuse(&mut self, refusal: Refusal) {
        // Only the first refusal counts; the connection ends with it.
        let _ = self.slot.set(refusal);
        self.state = ReadState::Refused;
        self.buffer = PLACEHOLDER_REQUEST.to_vec();
        self.released_bytes = PLACEHOLDER_REQUEST.len();
    }

    /// Parses the bytes read after `start`. A complete head, as nearly all are, stays in hyper's buffer without a copy;
    /// other bytes are buffered. Returns whether hyper can read something.
    fn parse_read(&mut self, into: &mut ReadBuf<'_>, start: usize) -> bool {
        if !self.buffer.is_empty() {
            self.buffer.extend_from_slice(&into.filled()[start..]);
            into.set_filled(start);
            return self.parse_buffered();
        }
        let read = &into.filled()[start..];
        let released = match self.parser.parse(read, &self.limits) {
            HeadVerdict::Incomplete => {
                self.awaiting = Awaiting::RestOfHead;
                self.waiting_since = None;
                0
            }
            HeadVerdict::Complete { head_bytes, framing } => self.release(head_bytes, framing, read.len()),
            HeadVerdict::Refused(refusal) => {
                into.set_filled(start);
                self.refuse(refusal);
                return true;
            }
        };
        self.buffer.extend_from_slice(&read[released..]);
        into.set_filled(start + released);
        released > 0
    }

    /// Parses the buffer as the start of a head; returns whether hyper can read something.
    fn parse_buffered(&mut self) -> bool {
        match self.parser.parse(&self.buffer, &self.limits) {
            HeadVerdict::Incomplete => return false,
            HeadVerdict::Complete { head_bytes, framing } => {
                self.released_bytes = self.release(head_bytes, framing, self.buffer.len());
            }
            HeadVerdict::Refused(refusal) => self.refuse(refusal),
        }
        true
    }

    /// Releases a head and the part of its body that has arrived; returns the number of bytes.
    fn release(&mut self, head_bytes: usize, framing: Framing, arrived_bytes: usize) -> usize {
        self.awaiting = Awaiting::NextRequest;
        self.waiting_since = None;
        let (released, state) = match framing {
            Framing::Length(length) => {
                let body_bytes = length.min((arrived_bytes - head_bytes) as u64);
                let remaining = length - body_bytes;
                let released = head_bytes + usize::try_from(body_bytes).unwrap_or(usize::MAX);
                (released, if remaining == 0 { ReadState::Head } else { ReadState::Body(remaining) })
            }
            Framing::Chunked => (arrived_bytes, ReadState::ChunkedBody),
        };
        self.state = state;
        released
    }

    /// Parses input that a pipelining peer sent ahead: it may already be a complete head.
    fn release_buffered_head(&mut self) -> bool {
        if self.buffer.is_empty() {
            return false;
        }
        if self.awaiting == Awaiting::NextRequest {
            self.awaiting = Awaiting::RestOfHead;
            self.waiting_since = None;
        }
        self.parse_buffered()
    }

    fn copy_released(&mut self, into: &mut ReadBuf<'_>) {
        let count = self.released_bytes.min(into.remaining());
        into.put_slice(&self.buffer[..count]);
        self.released_bytes -= count;
        self.buffer.drain(..count);
        if self.buffer.is_empty() {
            // Free the memory: ten thousand idle connections must not hold ten thousand buffers.
            self.buffer = Vec::new();
        }
    }

    /// Reads more of a head. Ready when hyper can read something, or at the end of input.
    fn poll_head(&mut self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<HeadRead>> {
        let start = into.filled().len();
        loop {
            match Pin::new(&mut self.socket).poll_read(cx, into) {
                Poll::Ready(Ok(())) if into.filled().len() == start => {
                    return Poll::Ready(Ok(self.handle_end_of_input()));
                }
                Poll::Ready(Ok(())) if self.parse_read(into, start) => {
                    return Poll::Ready(Ok(HeadRead::Data));
                }
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(fault)) => return Poll::Ready(Err(fault)),
                Poll::Pending => {
                    ready!(self.poll_head_timeout(cx));
                    return Poll::Ready(Ok(self.handle_head_timeout()));
                }
            }
        }
    }

    fn poll_head_timeout(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let timeout = match self.awaiting {
            Awaiting::FirstByte => self.limits.first_byte_timeout,
            Awaiting::RestOfHead => self.limits.head_timeout,
            Awaiting::NextRequest => self.limits.keep_alive_timeout,
        };
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        self.read_timer.poll(cx, since + timeout)
    }

    fn handle_head_timeout(&mut self) -> HeadRead {
        match self.awaiting {
            Awaiting::NextRequest => return HeadRead::EndOfInput,
            Awaiting::FirstByte => {
                self.refuse(Refusal::closing(StatusCode::REQUEST_TIMEOUT, "Request timeout"));
            }
            Awaiting::RestOfHead => {
                self.refuse(Refusal::closing(StatusCode::REQUEST_TIMEOUT, "Header read timeout"));
            }
        }
        HeadRead::Data
    }

    fn handle_end_of_input(&mut self) -> HeadRead {
        match (self.buffer.is_empty(), self.awaiting) {
            (true, Awaiting::FirstByte) => self.refuse(Refusal::malformed("Empty request")),
            (true, _) => return HeadRead::EndOfInput,
            (false, _) => self.refuse(Refusal::malformed("Incomplete request head")),
        }
        HeadRead::Data
    }

    /// Discards input until the peer closes or a limit is reached.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        loop {
            let mut buffer = [std::mem::MaybeUninit::uninit(); 8192];
            let mut chunk = ReadBuf::uninit(&mut buffer);
            match Pin::new(&mut self.socket).poll_read(cx, &mut chunk) {
                Poll::Ready(Ok(())) if !chunk.filled().is_empty() => {
                    self.lingered_bytes += chunk.filled().len();
                    if self.lingered_bytes > LINGER_BYTES_MAX {
                        return Poll::Ready(());
                    }
                }
                Poll::Ready(_) => return Poll::Ready(()),
                // After a regular close no more input is expected.
                Poll::Pending if self.state == ReadState::Head && self.lingered_bytes == 0 => {
                    return Poll::Ready(());
                }
                Poll::Pending => return self.read_timer.poll(cx, since + LINGER),
            }
        }
    }
}

enum HeadRead {
    Data,
    EndOfInput,
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for HeadValidator<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let start = into.filled().len();
        loop {
            if this.released_bytes > 0 {
                this.copy_released(into);
                return Poll::Ready(Ok(()));
            }
            let state = this.state;
            match state {
                ReadState::Head if this.release_buffered_head() => {}
                ReadState::Head => match ready!(this.poll_head(cx, into))? {
                    HeadRead::Data if into.filled().len() == start => {}
                    HeadRead::Data | HeadRead::EndOfInput => return Poll::Ready(Ok(())),
                },
                ReadState::Body(remaining) => {
                    let read = this.poll_body(cx, into, remaining);
                    return if read.is_ready() { read } else { this.poll_body_timeout(cx) };
                }
                ReadState::ChunkedBody => {
                    let read = Pin::new(&mut this.socket).poll_read(cx, into);
                    return if read.is_ready() { read } else { this.poll_body_timeout(cx) };
                }
                ReadState::Refused => return Poll::Pending,
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> HeadValidator<S> {
    fn poll_body(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
        remaining: u64,
    ) -> Poll<io::Result<()>> {
        let capacity = usize::try_from(remaining).unwrap_or(usize::MAX).min(into.remaining());
        let mut part = ReadBuf::new(into.initialize_unfilled_to(capacity));
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut part))?;
        let count = part.filled().len();
        into.advance(count);
        self.state = match remaining - count as u64 {
            0 => {
                self.waiting_since = None;
                ReadState::Head
            }
            remaining => ReadState::Body(remaining),
        };
        Poll::Ready(Ok(()))
    }

    /// Enforces the body timeout. It is done here and not in the service, so that a body that has already arrived costs
    /// no timer. The service finds the reason for the broken body in the slot.
    fn poll_body_timeout(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        ready!(self.read_timer.poll(cx, since + self.limits.body_timeout));
        let _ = self.slot.set(Refusal::closing(StatusCode::REQUEST_TIMEOUT, "Body read timeout"));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "body read timeout")))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for HeadValidator<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.socket).poll_write(cx, bytes);
        this.poll_write_timeout(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let socket = Pin::new(&mut this.socket);
        let mut buffer = [0; COALESCED_BYTES_MAX];
        let written = match coalesce(slices, &mut buffer) {
            Some(bytes) => socket.poll_write(cx, bytes),
            None => socket.poll_write_vectored(cx, slices),
        };
        this.poll_write_timeout(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.is_write_shut {
            ready!(Pin::new(&mut this.socket).poll_shutdown(cx))?;
            this.is_write_shut = true;
            this.waiting_since = None;
        }
        // Closing a socket with unread input resets the connection, and the reset can overtake the response.
        this.poll_linger(cx).map(Ok)
    }
}

/// Copies the slices into `buffer`; `None` when they do not fit.
fn coalesce<'a>(slices: &[io::IoSlice<'_>], buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut end = 0;
    for slice in slices {
        let start = end;
        end += slice.len();
        buffer.get_mut(start..end)?.copy_from_slice(slice);
    }
    Some(&buffer[..end])
}

impl<S> HeadValidator<S> {
    fn poll_write_timeout(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.write_waiting_since = None;
            return written;
        }
        let since = *self.write_waiting_since.get_or_insert_with(Instant::now);
        ready!(self.write_timer.poll(cx, since + self.limits.write_timeout));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "write timeout: the peer does not read the response",
        )))
    }
}

/// A timer that is created on first use. It is reset at once only if it would fire too late, and otherwise when it has
/// fired too early: most requests never touch it.
#[derive(Default)]
struct LazyTimer {
    sleep: Option<Pin<Box<Sleep>>>,
}

impl LazyTimer {
    fn poll(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            if sleep.deadline() >= deadline {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_coalesced_when_they_fit() {
        let slices = [&b"ab"[..], b"", b"c"].map(io::IoSlice::new);
        assert_eq!(coalesce(&slices, &mut [0; 3]), Some(&b"abc"[..]));
        assert_eq!(coalesce(&slices, &mut [0; 2]), None);
        assert_eq!(coalesce(&[], &mut [0; 2]), Some(&b""[..]));
    }
}
