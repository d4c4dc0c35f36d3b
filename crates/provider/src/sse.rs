//! Cuts a server-sent event stream into its data, fed with bytes as they come. Bounded: an endless event is refused.

/// The most bytes one event may have.
pub(crate) const EVENT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// An event that is too long to be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventTooLong;

/// Collects bytes into events. Only `data` lines count; comments, names and ids are passed over.
#[derive(Debug, Default)]
pub(crate) struct SseDecoder {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    after_cr: bool,
    started: bool,
}

impl SseDecoder {
    /// Feeds bytes and hands each whole event's data to `each`.
    pub(crate) fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) -> Result<(), EventTooLong> {
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let (line, end) = (&rest[..at], rest[at]);
            let second_half = self.after_cr && end == b'\n' && line.is_empty();
            self.after_cr = end == b'\r';
            rest = &rest[at + 1..];
            if second_half {
                continue;
            }
            self.push_line(line)?;
            self.end_line(&mut each);
        }
        if !rest.is_empty() {
            self.after_cr = false;
        }
        self.push_line(rest)
    }

    fn push_line(&mut self, bytes: &[u8]) -> Result<(), EventTooLong> {
        if self.line.len() + self.data.len() + bytes.len() > EVENT_BYTES_MAX {
            return Err(EventTooLong);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self, each: &mut impl FnMut(&[u8])) {
        let first = !std::mem::replace(&mut self.started, true);
        let line =
            if first { self.line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&self.line) } else { &self.line };
        if line.is_empty() {
            if std::mem::take(&mut self.has_data) {
                each(&self.data);
            }
            self.data.clear();
        } else if let Some(value) = line.strip_prefix(b"data:") {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
            self.has_data = true;
        }
        self.line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<String> {
        let mut reader = SseDecoder::default();
        let mut events = Vec::new();
        for piece in pieces {
            reader.feed(piece, |data| events.push(String::from_utf8_lossy(data).into_owned())).unwrap();
        }
        events
    }

    #[test]
    fn data_lines_make_events_and_the_rest_is_passed_over() {
        let stream =
            b"\xef\xbb\xbfdata: one\n\n: comment\nevent: x\nid: 7\ndata:two\n\ndata: a\ndata: b\n\n\n";
        assert_eq!(events(&[stream]), ["one", "two", "a\nb"]);
    }

    #[test]
    fn every_line_ending_and_every_split_gives_the_same_events() {
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
    fn an_event_without_its_blank_line_is_not_an_event_yet() {
        assert_eq!(events(&[b"data: half"]), Vec::<String>::new());
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut reader = SseDecoder::default();
        let piece = vec![b'x'; EVENT_BYTES_MAX / 2 + 1];
        assert_eq!(reader.feed(&piece, |_| {}), Ok(()));
        assert_eq!(reader.feed(&piece, |_| {}), Err(EventTooLong));
    }
}
