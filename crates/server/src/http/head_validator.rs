//! The gate between the socket and hyper. It lets a head pass only whole and well formed, keeps the clock on slow
//! peers, and has a head that may not pass answered with a reason.
//!
//! A refused head is replaced by a stand-in that hyper can read; the service answers it with what lies in the
//! [`Slot`]. So the refusal is written by hyper, behind the answers to everything that was pipelined before it.

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

/// Where the gate leaves the reason for the service to find.
pub(super) type RefusalSlot = Arc<OnceLock<Refusal>>;

/// The path of the stand-in. A client that asks for it without having been refused gets 404 as for any other.
pub(super) const PLACEHOLDER_PATH: &str = "/.refused";

const PLACEHOLDER_REQUEST: &[u8] =
    b"POST /.refused HTTP/1.1\r\nHost: refused\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// What is read and thrown away after a refusal, so that closing does not reset the answer away from the peer.
const LINGER_BYTES_MAX: usize = 4 * 1024 * 1024;
const LINGER: Duration = Duration::from_secs(2);

/// A head and a body up to this size are joined before they are written: the kernel takes one short piece with less
/// work than two. Hyper would join them itself, but keep a buffer of the longest answer for each connection.
const COALESCED_BYTES_MAX: usize = 1024;

/// A socket behind its gate.
pub(super) struct HeadValidator<S> {
    socket: S,
    limits: Arc<HttpLimits>,
    slot: RefusalSlot,
    state: ReadState,
    parser: HeadParser,
    /// Bytes from the socket that hyper has not been given.
    buffer: Vec<u8>,
    /// How many of `held` hyper may have.
    released_bytes: usize,
    awaiting: Awaiting,
    waiting_since: Option<Instant>,
    read_timer: LazyTimer,
    write_waiting_since: Option<Instant>,
    write_timer: LazyTimer,
    lingered_bytes: usize,
    is_write_shut: bool,
}

/// What the next byte from the socket belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadState {
    Head,
    Body(u64),
    /// A chunked body; nothing follows it.
    ChunkedBody,
    /// The head was refused; what comes is thrown away.
    Refused,
}

/// Which clock runs while a head is awaited.
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

    /// Judges what was read behind `start`. A head that comes alone and whole, as nearly all do, stays where hyper
    /// wants it; anything else is held. True when there is something to hand on.
    fn parse_read(&mut self, into: &mut ReadBuf<'_>, start: usize) -> bool {
        if !self.buffer.is_empty() {
            self.buffer.extend_from_slice(&into.filled()[start..]);
            into.set_filled(start);
            return self.parse_buffered();
        }
        let read = &into.filled()[start..];
        let passing = match self.parser.parse(read, &self.limits) {
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
        self.buffer.extend_from_slice(&read[passing..]);
        into.set_filled(start + passing);
        passing > 0
    }

    /// Judges what is held as the start of a head; true when there is something to hand on.
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

    /// Lets a head pass, with what has arrived of its body; how many bytes that is.
    fn release(&mut self, head_bytes: usize, framing: Framing, arrived_bytes: usize) -> usize {
        self.awaiting = Awaiting::NextRequest;
        self.waiting_since = None;
        let (passing, place) = match framing {
            Framing::Length(length) => {
                let body_bytes = length.min((arrived_bytes - head_bytes) as u64);
                let left = length - body_bytes;
                let passing = head_bytes + usize::try_from(body_bytes).unwrap_or(usize::MAX);
                (passing, if left == 0 { ReadState::Head } else { ReadState::Body(left) })
            }
            Framing::Chunked => (arrived_bytes, ReadState::ChunkedBody),
        };
        self.state = place;
        passing
    }

    /// What a pipelining peer sent ahead is held; it may already be a whole head.
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
            // Ten thousand idle connections must not keep ten thousand buffers.
            self.buffer = Vec::new();
        }
    }

    /// Reads more of a head. Ready when there is something to hand on, or the peer has ended.
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
        let time = match self.awaiting {
            Awaiting::FirstByte => self.limits.first_byte_timeout,
            Awaiting::RestOfHead => self.limits.head_timeout,
            Awaiting::NextRequest => self.limits.keep_alive_timeout,
        };
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        self.read_timer.poll(cx, since + time)
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

    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        loop {
            let mut space = [std::mem::MaybeUninit::uninit(); 8192];
            let mut chunk = ReadBuf::uninit(&mut space);
            match Pin::new(&mut self.socket).poll_read(cx, &mut chunk) {
                Poll::Ready(Ok(())) if !chunk.filled().is_empty() => {
                    self.lingered_bytes += chunk.filled().len();
                    if self.lingered_bytes > LINGER_BYTES_MAX {
                        return Poll::Ready(());
                    }
                }
                Poll::Ready(_) => return Poll::Ready(()),
                // After an ordinary end nothing is on its way.
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
        let gate = self.get_mut();
        let start = into.filled().len();
        loop {
            if gate.released_bytes > 0 {
                gate.copy_released(into);
                return Poll::Ready(Ok(()));
            }
            let place = gate.state;
            match place {
                ReadState::Head if gate.release_buffered_head() => {}
                ReadState::Head => match ready!(gate.poll_head(cx, into))? {
                    HeadRead::Data if into.filled().len() == start => {}
                    HeadRead::Data | HeadRead::EndOfInput => return Poll::Ready(Ok(())),
                },
                ReadState::Body(left) => {
                    let read = gate.poll_body(cx, into, left);
                    return if read.is_ready() { read } else { gate.poll_body_timeout(cx) };
                }
                ReadState::ChunkedBody => {
                    let read = Pin::new(&mut gate.socket).poll_read(cx, into);
                    return if read.is_ready() { read } else { gate.poll_body_timeout(cx) };
                }
                ReadState::Refused => return Poll::Pending,
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> HeadValidator<S> {
    fn poll_body(&mut self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>, left: u64) -> Poll<io::Result<()>> {
        let room = usize::try_from(left).unwrap_or(usize::MAX).min(into.remaining());
        let mut part = ReadBuf::new(into.initialize_unfilled_to(room));
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut part))?;
        let count = part.filled().len();
        into.advance(count);
        self.state = match left - count as u64 {
            0 => {
                self.waiting_since = None;
                ReadState::Head
            }
            left => ReadState::Body(left),
        };
        Poll::Ready(Ok(()))
    }

    /// The body's clock. It is here because a body that has already come must not cost a timer; the service finds the
    /// reason for the broken body in the slot.
    fn poll_body_timeout(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        ready!(self.read_timer.poll(cx, since + self.limits.body_timeout));
        let _ = self.slot.set(Refusal::closing(StatusCode::REQUEST_TIMEOUT, "Body read timeout"));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the body does not come")))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for HeadValidator<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let gate = self.get_mut();
        let written = Pin::new(&mut gate.socket).poll_write(cx, bytes);
        gate.poll_write_timeout(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let gate = self.get_mut();
        let socket = Pin::new(&mut gate.socket);
        let mut space = [0; COALESCED_BYTES_MAX];
        let written = match coalesce(slices, &mut space) {
            Some(bytes) => socket.poll_write(cx, bytes),
            None => socket.poll_write_vectored(cx, slices),
        };
        gate.poll_write_timeout(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let gate = self.get_mut();
        if !gate.is_write_shut {
            ready!(Pin::new(&mut gate.socket).poll_shutdown(cx))?;
            gate.is_write_shut = true;
            gate.waiting_since = None;
        }
        // Closing a socket with unread bytes resets it, and the reset can overtake the answer.
        gate.poll_linger(cx).map(Ok)
    }
}

/// The slices in one, if they are short.
fn coalesce<'a>(slices: &[io::IoSlice<'_>], space: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut end = 0;
    for slice in slices {
        let start = end;
        end += slice.len();
        space.get_mut(start..end)?.copy_from_slice(slice);
    }
    Some(&space[..end])
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
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not take the answer")))
    }
}

/// A timer that is made when it is first needed and moved only when it would ring too late: most requests come and
/// go without touching it.
#[derive(Default)]
struct LazyTimer {
    sleep: Option<Pin<Box<Sleep>>>,
}

impl LazyTimer {
    fn poll(&mut self, cx: &mut Context<'_>, at: Instant) -> Poll<()> {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        if sleep.deadline() > at {
            sleep.as_mut().reset(at);
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            if sleep.deadline() >= at {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_joined_as_long_as_there_is_space() {
        let slices = [&b"ab"[..], b"", b"c"].map(io::IoSlice::new);
        assert_eq!(coalesce(&slices, &mut [0; 3]), Some(&b"abc"[..]));
        assert_eq!(coalesce(&slices, &mut [0; 2]), None);
        assert_eq!(coalesce(&[], &mut [0; 2]), Some(&b""[..]));
    }
}
