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

use super::head::{Framing, Judge, Verdict};
use super::limits::HttpLimits;
use super::refusal::Refusal;

/// Where the gate leaves the reason for the service to find.
pub(super) type Slot = Arc<OnceLock<Refusal>>;

/// The path of the stand-in. A client that asks for it without having been refused gets 404 as for any other.
pub(super) const STAND_IN_PATH: &str = "/.refused";

const STAND_IN: &[u8] =
    b"POST /.refused HTTP/1.1\r\nHost: refused\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// What is read and thrown away after a refusal, so that closing does not reset the answer away from the peer.
const LINGER_BYTES_MAX: usize = 4 * 1024 * 1024;
const LINGER: Duration = Duration::from_secs(2);

/// A head and a body up to this size are joined before they are written: the kernel takes one short piece with less
/// work than two. Hyper would join them itself, but keep a buffer of the longest answer for each connection.
const JOINED_BYTES_MAX: usize = 1024;

/// A socket behind its gate.
pub(super) struct Gate<S> {
    socket: S,
    limits: Arc<HttpLimits>,
    slot: Slot,
    place: Place,
    judge: Judge,
    /// Bytes from the socket that hyper has not been given.
    held: Vec<u8>,
    /// How many of `held` hyper may have.
    free: usize,
    waiting: Waiting,
    since: Option<Instant>,
    read_alarm: Alarm,
    write_since: Option<Instant>,
    write_alarm: Alarm,
    lingered_bytes: usize,
    write_is_shut: bool,
}

/// What the next byte from the socket belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Head,
    Body(u64),
    /// A chunked body; nothing follows it.
    Chunks,
    /// The head was refused; what comes is thrown away.
    Refused,
}

/// Which clock runs while a head is awaited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    FirstByte,
    RestOfHead,
    NextRequest,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Gate<S> {
    pub(super) fn new(socket: S, limits: Arc<HttpLimits>, slot: Slot) -> Self {
        Self {
            socket,
            limits,
            slot,
            place: Place::Head,
            judge: Judge::default(),
            held: Vec::new(),
            free: 0,
            waiting: Waiting::FirstByte,
            since: None,
            read_alarm: Alarm::default(),
            write_since: None,
            write_alarm: Alarm::default(),
            lingered_bytes: 0,
            write_is_shut: false,
        }
    }

    fn refuse(&mut self, refusal: Refusal) {
        // Only the first refusal counts; the connection ends with it.
        let _ = self.slot.set(refusal);
        self.place = Place::Refused;
        self.held = STAND_IN.to_vec();
        self.free = STAND_IN.len();
    }

    /// Judges what was read behind `start`. A head that comes alone and whole, as nearly all do, stays where hyper
    /// wants it; anything else is held. True when there is something to hand on.
    fn judge_read(&mut self, into: &mut ReadBuf<'_>, start: usize) -> bool {
        if !self.held.is_empty() {
            self.held.extend_from_slice(&into.filled()[start..]);
            into.set_filled(start);
            return self.judge_held();
        }
        let read = &into.filled()[start..];
        let passing = match self.judge.judge(read, &self.limits) {
            Verdict::Unfinished => {
                self.waiting = Waiting::RestOfHead;
                self.since = None;
                0
            }
            Verdict::Whole { head_bytes, framing } => self.pass(head_bytes, framing, read.len()),
            Verdict::Refused(refusal) => {
                into.set_filled(start);
                self.refuse(refusal);
                return true;
            }
        };
        self.held.extend_from_slice(&read[passing..]);
        into.set_filled(start + passing);
        passing > 0
    }

    /// Judges what is held as the start of a head; true when there is something to hand on.
    fn judge_held(&mut self) -> bool {
        match self.judge.judge(&self.held, &self.limits) {
            Verdict::Unfinished => return false,
            Verdict::Whole { head_bytes, framing } => {
                self.free = self.pass(head_bytes, framing, self.held.len());
            }
            Verdict::Refused(refusal) => self.refuse(refusal),
        }
        true
    }

    /// Lets a head pass, with what has arrived of its body; how many bytes that is.
    fn pass(&mut self, head_bytes: usize, framing: Framing, arrived_bytes: usize) -> usize {
        self.waiting = Waiting::NextRequest;
        self.since = None;
        let (passing, place) = match framing {
            Framing::Length(length) => {
                let body_bytes = length.min((arrived_bytes - head_bytes) as u64);
                let left = length - body_bytes;
                let passing = head_bytes + usize::try_from(body_bytes).unwrap_or(usize::MAX);
                (passing, if left == 0 { Place::Head } else { Place::Body(left) })
            }
            Framing::Chunked => (arrived_bytes, Place::Chunks),
        };
        self.place = place;
        passing
    }

    /// What a pipelining peer sent ahead is held; it may already be a whole head.
    fn has_whole_head(&mut self) -> bool {
        if self.held.is_empty() {
            return false;
        }
        if self.waiting == Waiting::NextRequest {
            self.waiting = Waiting::RestOfHead;
            self.since = None;
        }
        self.judge_held()
    }

    fn hand_over(&mut self, into: &mut ReadBuf<'_>) {
        let count = self.free.min(into.remaining());
        into.put_slice(&self.held[..count]);
        self.free -= count;
        self.held.drain(..count);
        if self.held.is_empty() {
            // Ten thousand idle connections must not keep ten thousand buffers.
            self.held = Vec::new();
        }
    }

    /// Reads more of a head. Ready when there is something to hand on, or the peer has ended.
    fn poll_head(&mut self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<Progress>> {
        let start = into.filled().len();
        loop {
            match Pin::new(&mut self.socket).poll_read(cx, into) {
                Poll::Ready(Ok(())) if into.filled().len() == start => return Poll::Ready(Ok(self.ended())),
                Poll::Ready(Ok(())) if self.judge_read(into, start) => {
                    return Poll::Ready(Ok(Progress::Something));
                }
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(fault)) => return Poll::Ready(Err(fault)),
                Poll::Pending => {
                    ready!(self.poll_late(cx));
                    return Poll::Ready(Ok(self.late()));
                }
            }
        }
    }

    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let time = match self.waiting {
            Waiting::FirstByte => self.limits.first_byte,
            Waiting::RestOfHead => self.limits.head,
            Waiting::NextRequest => self.limits.keep_alive,
        };
        let since = *self.since.get_or_insert_with(Instant::now);
        self.read_alarm.poll(cx, since + time)
    }

    fn late(&mut self) -> Progress {
        match self.waiting {
            Waiting::NextRequest => return Progress::End,
            Waiting::FirstByte => {
                self.refuse(Refusal::closing(StatusCode::REQUEST_TIMEOUT, "Request timeout"));
            }
            Waiting::RestOfHead => {
                self.refuse(Refusal::closing(StatusCode::REQUEST_TIMEOUT, "Header read timeout"));
            }
        }
        Progress::Something
    }

    fn ended(&mut self) -> Progress {
        match (self.held.is_empty(), self.waiting) {
            (true, Waiting::FirstByte) => self.refuse(Refusal::malformed("Empty request")),
            (true, _) => return Progress::End,
            (false, _) => self.refuse(Refusal::malformed("Incomplete request head")),
        }
        Progress::Something
    }

    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let since = *self.since.get_or_insert_with(Instant::now);
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
                Poll::Pending if self.place == Place::Head && self.lingered_bytes == 0 => {
                    return Poll::Ready(());
                }
                Poll::Pending => return self.read_alarm.poll(cx, since + LINGER),
            }
        }
    }
}

enum Progress {
    Something,
    End,
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Gate<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let gate = self.get_mut();
        let start = into.filled().len();
        loop {
            if gate.free > 0 {
                gate.hand_over(into);
                return Poll::Ready(Ok(()));
            }
            let place = gate.place;
            match place {
                Place::Head if gate.has_whole_head() => {}
                Place::Head => match ready!(gate.poll_head(cx, into))? {
                    Progress::Something if into.filled().len() == start => {}
                    Progress::Something | Progress::End => return Poll::Ready(Ok(())),
                },
                Place::Body(left) => {
                    let read = gate.poll_body(cx, into, left);
                    return if read.is_ready() { read } else { gate.poll_late_body(cx) };
                }
                Place::Chunks => {
                    let read = Pin::new(&mut gate.socket).poll_read(cx, into);
                    return if read.is_ready() { read } else { gate.poll_late_body(cx) };
                }
                Place::Refused => return Poll::Pending,
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Gate<S> {
    fn poll_body(&mut self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>, left: u64) -> Poll<io::Result<()>> {
        let room = usize::try_from(left).unwrap_or(usize::MAX).min(into.remaining());
        let mut part = ReadBuf::new(into.initialize_unfilled_to(room));
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut part))?;
        let count = part.filled().len();
        into.advance(count);
        self.place = match left - count as u64 {
            0 => {
                self.since = None;
                Place::Head
            }
            left => Place::Body(left),
        };
        Poll::Ready(Ok(()))
    }

    /// The body's clock. It is here because a body that has already come must not cost a timer; the service finds the
    /// reason for the broken body in the slot.
    fn poll_late_body(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let since = *self.since.get_or_insert_with(Instant::now);
        ready!(self.read_alarm.poll(cx, since + self.limits.body));
        let _ = self.slot.set(Refusal::closing(StatusCode::REQUEST_TIMEOUT, "Body read timeout"));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the body does not come")))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Gate<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let gate = self.get_mut();
        let written = Pin::new(&mut gate.socket).poll_write(cx, bytes);
        gate.watch_write(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let gate = self.get_mut();
        let socket = Pin::new(&mut gate.socket);
        let mut space = [0; JOINED_BYTES_MAX];
        let written = match join(slices, &mut space) {
            Some(bytes) => socket.poll_write(cx, bytes),
            None => socket.poll_write_vectored(cx, slices),
        };
        gate.watch_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let gate = self.get_mut();
        if !gate.write_is_shut {
            ready!(Pin::new(&mut gate.socket).poll_shutdown(cx))?;
            gate.write_is_shut = true;
            gate.since = None;
        }
        // Closing a socket with unread bytes resets it, and the reset can overtake the answer.
        gate.poll_linger(cx).map(Ok)
    }
}

/// The slices in one, if they are short.
fn join<'a>(slices: &[io::IoSlice<'_>], space: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut end = 0;
    for slice in slices {
        let start = end;
        end += slice.len();
        space.get_mut(start..end)?.copy_from_slice(slice);
    }
    Some(&space[..end])
}

impl<S> Gate<S> {
    fn watch_write(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.write_since = None;
            return written;
        }
        let since = *self.write_since.get_or_insert_with(Instant::now);
        ready!(self.write_alarm.poll(cx, since + self.limits.write));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not take the answer")))
    }
}

/// A timer that is made when it is first needed and moved only when it would ring too late: most requests come and
/// go without touching it.
#[derive(Default)]
struct Alarm {
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Alarm {
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
        assert_eq!(join(&slices, &mut [0; 3]), Some(&b"abc"[..]));
        assert_eq!(join(&slices, &mut [0; 2]), None);
        assert_eq!(join(&[], &mut [0; 2]), Some(&b""[..]));
    }
}
