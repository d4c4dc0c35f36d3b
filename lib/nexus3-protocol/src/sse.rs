//! Server-sent events: an encoder and an incremental decoder. The meaning of the events is left to [`crate::events`].

#[cfg(test)]
mod tests;

use std::ops::Range;

/// Media type of an event stream.
pub const MEDIA_TYPE: &str = "text/event-stream";

/// Request header with which a reader resumes a stream.
pub const LAST_EVENT_ID: &str = "last-event-id";

/// Writes one event. Each line of `data` becomes a `data` field; nexus3 sends single-line JSON only.
pub fn write_event(out: &mut Vec<u8>, id: Option<u64>, event: &str, data: &str) {
    if let Some(id) = id {
        write_field(out, "id", &id.to_string());
    }
    write_field(out, "event", event);
    data.split('\n').for_each(|line| write_field(out, "data", line));
    out.push(b'\n');
}

/// Writes a comment, which readers ignore: a keep-alive, or a note for debugging.
pub fn write_comment(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(b": ");
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\n\n");
}

/// Writes the delay after which a reader should reconnect.
pub fn write_retry(out: &mut Vec<u8>, retry_ms: u64) {
    write_field(out, "retry", &retry_ms.to_string());
    out.push(b'\n');
}

/// Writes an id without an event: it sets the reader's cursor.
pub fn write_id(out: &mut Vec<u8>, id: u64) {
    write_field(out, "id", &id.to_string());
    out.push(b'\n');
}

fn write_field(out: &mut Vec<u8>, field: &str, value: &str) {
    for part in [field, ": ", value, "\n"] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// A decoded event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseEvent {
    /// Event type; `message` when the sender gave none.
    pub event: String,
    /// Data, its lines joined with line feeds.
    pub data: String,
}

/// An error after which the stream cannot be decoded any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SseFault {
    /// An event is larger than the decoder's limit.
    #[error("an event is larger than {0} bytes")]
    TooLarge(usize),
    /// The stream is not UTF-8.
    #[error("the event stream is not UTF-8")]
    InvalidUtf8,
}

/// Incremental decoder of an event stream. It buffers at most one event and the bytes of one `feed` call.
#[derive(Debug)]
pub struct SseDecoder {
    bytes_max: usize,
    buffer: Vec<u8>,
    /// Bytes at the front that were already decoded.
    consumed: usize,
    /// Position up to which no line end was found.
    scanned: usize,
    /// The last line ended with a carriage return: a line feed right after it is part of that line end.
    after_carriage_return: bool,
    at_start: bool,
    event: String,
    data: String,
    has_data: bool,
    pending_id: Option<String>,
    last_event_id: Option<String>,
    retry_ms: Option<u64>,
}

impl SseDecoder {
    /// Creates an empty decoder that accepts events up to this size.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            buffer: Vec::new(),
            consumed: 0,
            scanned: 0,
            after_carriage_return: false,
            at_start: true,
            event: String::new(),
            data: String::new(),
            has_data: false,
            pending_id: None,
            last_event_id: None,
            retry_ms: None,
        }
    }

    /// The last event id: the cursor for resuming the stream.
    #[must_use]
    pub fn last_event_id(&self) -> Option<&str> {
        self.last_event_id.as_deref()
    }

    /// The reconnection delay that the sender requested.
    #[must_use]
    pub fn retry_ms(&self) -> Option<u64> {
        self.retry_ms
    }

    /// Appends received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.consumed > 0 {
            self.buffer.drain(..self.consumed);
            self.scanned -= self.consumed;
            self.consumed = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next complete event, or `None` when more bytes are needed.
    ///
    /// # Errors
    /// When an event is too large or the stream is not UTF-8.
    pub fn next_event(&mut self) -> Result<Option<SseEvent>, SseFault> {
        while let Some(line) = self.next_line() {
            let line = std::str::from_utf8(&self.buffer[line]).map_err(|_| SseFault::InvalidUtf8)?.to_owned();
            if let Some(event) = self.process_line(&line) {
                return Ok(Some(event));
            }
            if self.data.len() > self.bytes_max {
                return Err(SseFault::TooLarge(self.bytes_max));
            }
        }
        let unread = self.buffer.len() - self.consumed;
        if unread + self.data.len() > self.bytes_max {
            return Err(SseFault::TooLarge(self.bytes_max));
        }
        Ok(None)
    }

    /// Returns the range of the next complete line, without its end: line feed, carriage return, or both.
    fn next_line(&mut self) -> Option<Range<usize>> {
        if self.after_carriage_return && self.buffer.len() > self.consumed {
            self.after_carriage_return = false;
            if self.buffer[self.consumed] == b'\n' {
                self.consumed += 1;
                self.scanned = self.scanned.max(self.consumed);
            }
        }
        if self.at_start && !self.skip_byte_order_mark() {
            return None;
        }
        let found = self.buffer[self.scanned..].iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        let Some(offset) = found else {
            self.scanned = self.buffer.len();
            return None;
        };
        let (start, end) = (self.consumed, self.scanned + offset);
        self.after_carriage_return = self.buffer[end] == b'\r';
        self.consumed = end + 1;
        self.scanned = self.consumed;
        Some(start..end)
    }

    /// Skips a byte order mark at the start of the stream. Returns false when more bytes are needed to decide.
    fn skip_byte_order_mark(&mut self) -> bool {
        const MARK: &[u8] = b"\xef\xbb\xbf";
        let start = &self.buffer[self.consumed..];
        if start.starts_with(MARK) {
            self.consumed += MARK.len();
            self.scanned = self.consumed;
        } else if start.len() < MARK.len() && MARK.starts_with(start) {
            return false;
        }
        self.at_start = false;
        true
    }

    fn process_line(&mut self, line: &str) -> Option<SseEvent> {
        if line.is_empty() {
            return self.dispatch();
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            "id" if !value.contains('\0') => self.pending_id = Some(value.to_owned()),
            "retry" if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.retry_ms = value.parse().ok().or(self.retry_ms);
            }
            // A comment or an unknown field.
            _ => {}
        }
        None
    }

    fn dispatch(&mut self) -> Option<SseEvent> {
        if let Some(id) = self.pending_id.take() {
            self.last_event_id = Some(id).filter(|id| !id.is_empty());
        }
        let event = std::mem::take(&mut self.event);
        let data = std::mem::take(&mut self.data);
        let event = if event.is_empty() { "message".to_owned() } else { event };
        std::mem::take(&mut self.has_data).then_some(SseEvent { event, data })
    }
}
