//! Incremental decoder of server-sent events. Rejects an event above the size limit.

/// Most bytes of one event.
pub(crate) const EVENT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Buffer capacity that is retained between events; the memory of a large event is freed.
const BUFFER_BYTES_RETAINED: usize = 64 * 1024;

/// Error for an event above the size limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventTooLong;

/// Decoder of a server-sent event stream. Only `data` lines count; comments, event names and ids are ignored.
#[derive(Debug, Default)]
pub(crate) struct SseDecoder {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    after_cr: bool,
    /// Whether the first line, which may begin with a byte order mark, has ended.
    is_past_first_line: bool,
}

impl SseDecoder {
    /// Decodes bytes and calls `each` with the data of every complete event.
    pub(crate) fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) -> Result<(), EventTooLong> {
        let mut remaining = bytes;
        while let Some(end_offset) = remaining.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let (line, terminator) = (&remaining[..end_offset], remaining[end_offset]);
            let is_lf_of_crlf = self.after_cr && terminator == b'\n' && line.is_empty();
            self.after_cr = terminator == b'\r';
            remaining = &remaining[end_offset + 1..];
            if is_lf_of_crlf {
                continue;
            }
            self.push_line(line)?;
            self.end_line(&mut each);
        }
        if !remaining.is_empty() {
            self.after_cr = false;
        }
        self.push_line(remaining)
    }

    /// Bytes of the incomplete event.
    pub(crate) fn buffered_bytes(&self) -> usize {
        self.line.len() + self.data.len()
    }

    fn push_line(&mut self, bytes: &[u8]) -> Result<(), EventTooLong> {
        if self.line.len() + self.data.len() + bytes.len() > EVENT_BYTES_MAX {
            return Err(EventTooLong);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self, each: &mut impl FnMut(&[u8])) {
        let first = !std::mem::replace(&mut self.is_past_first_line, true);
        let line =
            if first { self.line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&self.line) } else { &self.line };
        if line.is_empty() {
            if std::mem::take(&mut self.has_data) {
                each(&self.data);
            }
            self.data.clear();
            self.data.shrink_to(BUFFER_BYTES_RETAINED);
        } else if let Some(value) = line.strip_prefix(b"data:") {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
            self.has_data = true;
        }
        self.line.clear();
        self.line.shrink_to(BUFFER_BYTES_RETAINED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<String> {
        let mut decoder = SseDecoder::default();
        let mut events = Vec::new();
        for piece in pieces {
            decoder.feed(piece, |data| events.push(String::from_utf8_lossy(data).into_owned())).unwrap();
        }
        events
    }

    #[test]
    fn only_data_lines_form_events() {
        let stream =
            b"\xef\xbb\xbfdata: one\n\n: comment\nevent: x\nid: 7\ndata:two\n\ndata: a\ndata: b\n\n\n";
        assert_eq!(events(&[stream]), ["one", "two", "a\nb"]);
    }

    #[test]
    fn events_do_not_depend_on_line_endings_or_chunking() {
        for ending in ["\n", "\r", "\r\n"] {
            let text = ["data: h\u{e9}llo", "", "data: [DONE]", "", ""].join(ending);
            let bytes = text.as_bytes();
            for cut in 0..=bytes.len() {
                let got = events(&[&bytes[..cut], &bytes[cut..]]);
                assert_eq!(got, ["h\u{e9}llo", "[DONE]"], "{ending:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn event_without_blank_line_is_incomplete() {
        assert_eq!(events(&[b"data: half"]), Vec::<String>::new());
    }

    #[test]
    fn oversized_event_is_rejected() {
        let mut decoder = SseDecoder::default();
        let piece = vec![b'x'; EVENT_BYTES_MAX / 2 + 1];
        assert_eq!(decoder.feed(&piece, |_| {}), Ok(()));
        assert_eq!(decoder.feed(&piece, |_| {}), Err(EventTooLong));
    }
}
