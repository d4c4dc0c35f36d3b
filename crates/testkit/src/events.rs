//! A client for server-sent events: one event at a time, each wait with a deadline, and every received byte recorded.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use serde_json::Value;
use socket2::SockRef;

use crate::raw::{RawConnection, is_disconnect, malformed};

/// One server-sent event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StreamEvent {
    /// The `id` field, if present.
    pub id: Option<String>,
    /// The `event` field; empty if absent.
    pub kind: String,
    /// The `data` fields, joined by newlines.
    pub data: String,
}

impl StreamEvent {
    /// The events of a complete stream; panics if it ends within an event.
    pub fn parse_all(stream: impl AsRef<[u8]>) -> Vec<Self> {
        let (mut parser, mut ready) = (EventParser::default(), VecDeque::new());
        parser.push_bytes(stream.as_ref(), &mut ready);
        assert!(parser.line.is_empty() && !parser.has_data, "the stream ends within an event: {parser:?}");
        ready.into()
    }

    /// The id as a number; none if it is absent or not a number.
    pub fn sequence(&self) -> Option<u64> {
        self.id.as_ref()?.parse().ok()
    }

    /// The data as JSON; panics if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data)
            .unwrap_or_else(|cause| panic!("an event's data is not JSON: {cause}: {self:?}"))
    }
}

/// Result of waiting for an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextEvent {
    /// An event arrived.
    Event(StreamEvent),
    /// No event arrived in time.
    TimedOut,
    /// The stream ended or the peer disconnected.
    Ended,
}

/// Size of a small receive buffer. A buffer below one loopback segment would let bytes trickle through for ever instead
/// of closing the TCP window.
const SMALL_RECEIVE_BUFFER_BYTES: usize = 128 * 1024;

/// An open event stream.
#[derive(Debug)]
pub struct TestEventStream {
    connection: RawConnection,
    /// The response headers.
    pub headers: Vec<(String, String)>,
    chunk_state: ChunkState,
    parser: EventParser,
    ready: VecDeque<StreamEvent>,
    /// The body so far, without chunk framing.
    body: Vec<u8>,
}

impl TestEventStream {
    /// Requests the events at a path of 127.0.0.1; a response that is no event stream is an error with its text.
    /// `after` is sent as `Last-Event-ID`.
    pub fn open(port: u16, path: &str, token: Option<&str>, after: Option<u64>) -> io::Result<Self> {
        let mut head =
            format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: text/event-stream\r\n");
        if let Some(token) = token {
            head += &format!("Authorization: Bearer {token}\r\n");
        }
        if let Some(after) = after {
            head += &format!("Last-Event-ID: {after}\r\n");
        }
        Self::request(port, format!("{head}\r\n").as_bytes())
    }

    /// Sends any request whose response is an event stream.
    pub fn request(port: u16, request: &[u8]) -> io::Result<Self> {
        let mut connection = RawConnection::try_open(port)?;
        connection.try_send(request)?;
        let head = connection.read_head()?;
        let has = |name: &str, start: &str| {
            let mut values = head.headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
            values.any(|(_, value)| value.to_ascii_lowercase().starts_with(start))
        };
        if head.status != 200 || !has("content-type", "text/event-stream") {
            let response = connection.try_read_response()?;
            return Err(io::Error::other(format!("status {}: {}", response.status, response.text())));
        }
        let chunk_state =
            if has("transfer-encoding", "chunked") { ChunkState::Size } else { ChunkState::Unframed };
        connection.unread.drain(..head.bytes);
        let (parser, ready) = (EventParser::default(), VecDeque::new());
        let mut stream =
            Self { connection, headers: head.headers, chunk_state, parser, ready, body: Vec::new() };
        // Events may have arrived with the head.
        stream.decode_received()?;
        Ok(stream)
    }

    /// The next event; panics if none arrives in time.
    pub fn next_event(&mut self, within: Duration) -> StreamEvent {
        match self.wait_event(within) {
            Ok(NextEvent::Event(event)) => event,
            other => panic!("no event within {within:?}: {other:?}; last: {:?}", self.last_bytes()),
        }
    }

    /// Waits for the next event; malformed framing is an error.
    pub fn wait_event(&mut self, within: Duration) -> io::Result<NextEvent> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(NextEvent::Event(event));
            }
            if self.chunk_state == ChunkState::Finished {
                return Ok(NextEvent::Ended);
            }
            match self.read_until(deadline) {
                Ok(()) => self.decode_received()?,
                Err(cause) if is_disconnect(&cause) => return Ok(NextEvent::Ended),
                Err(cause) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&cause.kind()) => {
                    return Ok(NextEvent::TimedOut);
                }
                Err(cause) => return Err(cause),
            }
        }
    }

    /// Shrinks the receive buffer, so that the peer soon sees backpressure when the test does not read.
    pub fn shrink_receive_buffer(&self) {
        let socket = SockRef::from(self.connection.stream());
        socket.set_recv_buffer_size(SMALL_RECEIVE_BUFFER_BYTES).expect("a connected socket takes options");
    }

    /// The number of comment lines so far, which serve as heartbeats.
    pub fn comments(&self) -> usize {
        self.parser.comments
    }

    /// Every byte of the body so far, without chunk framing.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    fn last_bytes(&self) -> String {
        let start = self.body.len().saturating_sub(500);
        String::from_utf8_lossy(&self.body[start..]).into_owned()
    }

    fn read_until(&mut self, deadline: Instant) -> io::Result<()> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        self.connection.stream().set_read_timeout(Some(left))?;
        self.connection.fill()
    }

    /// Removes the chunk framing from the received bytes and parses the events in them.
    fn decode_received(&mut self) -> io::Result<()> {
        let before = self.body.len();
        while self.chunk_state.step(&mut self.connection.unread, &mut self.body)? {}
        self.parser.push_bytes(&self.body[before..], &mut self.ready);
        Ok(())
    }
}

/// State of the chunked decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    Unframed,
    Size,
    /// Bytes left in the current chunk.
    Data(usize),
    DataEnd,
    Finished,
}

impl ChunkState {
    /// Decodes one element; false if it needs more bytes.
    fn step(&mut self, unread: &mut Vec<u8>, body: &mut Vec<u8>) -> io::Result<bool> {
        match *self {
            Self::Finished => Ok(false),
            Self::Unframed => {
                body.append(unread);
                Ok(false)
            }
            Self::Size => {
                let Some(end) = line_end(unread) else { return Ok(false) };
                let line: Vec<u8> = unread.drain(..end + 2).collect();
                let line = String::from_utf8_lossy(&line);
                let size = usize::from_str_radix(line.trim(), 16);
                let size = size.map_err(|_| malformed(&format!("chunk size {line:?}")))?;
                *self = if size == 0 { Self::Finished } else { Self::Data(size) };
                Ok(true)
            }
            Self::Data(left) => {
                let taken = left.min(unread.len());
                body.extend(unread.drain(..taken));
                *self = if taken == left { Self::DataEnd } else { Self::Data(left - taken) };
                Ok(taken == left)
            }
            Self::DataEnd => {
                if unread.len() < 2 {
                    return Ok(false);
                }
                if unread.drain(..2).ne(*b"\r\n") {
                    return Err(malformed("chunk longer than its size"));
                }
                *self = Self::Size;
                Ok(true)
            }
        }
    }
}

fn line_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(2).position(|window| window == b"\r\n")
}

/// Incremental parser for server-sent events.
#[derive(Debug, Default)]
struct EventParser {
    line: Vec<u8>,
    event: StreamEvent,
    has_data: bool,
    comments: usize,
}

impl EventParser {
    fn push_bytes(&mut self, bytes: &[u8], ready: &mut VecDeque<StreamEvent>) {
        for byte in bytes {
            if *byte != b'\n' {
                self.line.push(*byte);
                continue;
            }
            let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
            self.parse_line(line.trim_end_matches('\r'), ready);
        }
    }

    fn parse_line(&mut self, line: &str, ready: &mut VecDeque<StreamEvent>) {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            if std::mem::take(&mut self.has_data) {
                ready.push_back(event);
            }
            return;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "" => self.comments += 1,
            "id" => self.event.id = Some(value.to_owned()),
            "event" => value.clone_into(&mut self.event.kind),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            _ => {}
        }
    }
}
