//! Streams split at every byte, all line ends, unusual lines as in the standard, and the size limit.

use super::*;

const MAX: usize = 1024;

fn event(event: &str, data: &str) -> SseEvent {
    SseEvent { event: event.to_owned(), data: data.to_owned() }
}

fn drain(decoder: &mut SseDecoder) -> Vec<SseEvent> {
    std::iter::from_fn(|| decoder.next_event().unwrap()).collect()
}

fn read(bytes: &[u8]) -> Vec<SseEvent> {
    let mut decoder = SseDecoder::new(MAX);
    decoder.feed(bytes);
    drain(&mut decoder)
}

/// Everything the encoder writes, and more that the standard allows.
fn stream() -> (Vec<u8>, Vec<SseEvent>) {
    let mut bytes = "\u{feff}".as_bytes().to_vec();
    write_retry(&mut bytes, 1500);
    write_comment(&mut bytes, "hello: world");
    write_event(&mut bytes, Some(7), "message", r#"{"text":"héllo"}"#);
    write_event(&mut bytes, None, "text_delta", "{}");
    bytes.extend_from_slice(b"data: one\r\ndata: two\r\n\r\nid: 8\rdata:three\r\rdata\n\n");
    write_id(&mut bytes, 9);
    let events = vec![
        event("message", r#"{"text":"héllo"}"#),
        event("text_delta", "{}"),
        event("message", "one\ntwo"),
        event("message", "three"),
        event("message", ""),
    ];
    (bytes, events)
}

#[test]
fn event_is_encoded_line_by_line() {
    let mut bytes = Vec::new();
    write_event(&mut bytes, Some(u64::MAX), "a", r#"{"b":1}"#);
    write_event(&mut bytes, None, "c", "d\ne");
    write_comment(&mut bytes, "f");
    write_retry(&mut bytes, 1000);
    write_id(&mut bytes, 3);
    let expected = "id: 18446744073709551615\nevent: a\ndata: {\"b\":1}\n\nevent: c\ndata: d\ndata: e\n\n: f\n\nretry: 1000\n\n\
                    id: 3\n\n";
    assert_eq!(String::from_utf8(bytes).unwrap(), expected);
}

#[test]
fn stream_split_at_every_byte_is_decoded() {
    let (bytes, events) = stream();
    for cut in 0..=bytes.len() {
        let mut decoder = SseDecoder::new(MAX);
        decoder.feed(&bytes[..cut]);
        let mut read = drain(&mut decoder);
        decoder.feed(&bytes[cut..]);
        read.extend(drain(&mut decoder));
        assert_eq!(read, events, "cut at byte {cut}");
        assert_eq!(
            (decoder.last_event_id(), decoder.retry_ms()),
            (Some("9"), Some(1500)),
            "cut at byte {cut}"
        );
    }
}

#[test]
fn stream_fed_byte_by_byte_is_decoded() {
    let (bytes, events) = stream();
    let mut decoder = SseDecoder::new(MAX);
    let mut read = Vec::new();
    for byte in bytes {
        decoder.feed(&[byte]);
        read.extend(drain(&mut decoder));
    }
    assert_eq!(read, events);
}

#[test]
fn last_event_id_changes_at_the_end_of_an_event() {
    let mut decoder = SseDecoder::new(MAX);
    decoder.feed(b"id: 1\ndata: a\n\nid: 2\ndata: b\n");
    assert_eq!(drain(&mut decoder).len(), 1);
    assert_eq!(decoder.last_event_id(), Some("1"), "the second event has not ended");
    decoder.feed(b"\ndata: c\n\n");
    assert_eq!(drain(&mut decoder).len(), 2);
    assert_eq!(decoder.last_event_id(), Some("2"), "an event without an id does not change it");
    decoder.feed(b"id: a\0b\ndata: d\n\n");
    drain(&mut decoder);
    assert_eq!(decoder.last_event_id(), Some("2"), "an id with a NUL is ignored");
    decoder.feed(b"id\ndata: e\n\n");
    drain(&mut decoder);
    assert_eq!(decoder.last_event_id(), None, "an empty id resets it");
}

#[test]
fn unusual_lines_are_decoded_as_the_standard_requires() {
    assert_eq!(read(b"data:  a \n\n"), [event("message", " a ")]);
    assert_eq!(read(b"data: a\nevent: x\nevent: y\n\n"), [event("y", "a")]);
    assert_eq!(
        read(b"event: x\n\ndata: a\n\n"),
        [event("message", "a")],
        "an event type without data is dropped"
    );
    assert_eq!(read(b"data: a"), []);
    assert_eq!(read(b"data: a\n"), []);
    assert_eq!(read(b":\n:\n\n\n\r\n\nDATA: a\nfoo: b\n data: c\n\n"), []);
    let mut decoder = SseDecoder::new(MAX);
    decoder.feed(b"retry: 1\nretry: \nretry: 1s\nretry: -1\nretry: 99999999999999999999\n\n");
    drain(&mut decoder);
    assert_eq!(decoder.retry_ms(), Some(1));
}

#[test]
fn oversized_event_is_rejected_in_any_chunking() {
    let at_limit = format!("data: {}\n\n", "a".repeat(MAX - 6));
    assert_eq!(read(at_limit.as_bytes()).len(), 1);
    let lines = "data: aaaaaaaa\n".repeat(200);
    for bytes in [format!("data: {}", "a".repeat(MAX)), lines, ":".repeat(MAX + 1)] {
        for piece in [1, 7, bytes.len()] {
            let mut decoder = SseDecoder::new(MAX);
            let mut outcome = Ok(None);
            for chunk in bytes.as_bytes().chunks(piece) {
                decoder.feed(chunk);
                outcome = decoder.next_event();
                if outcome.is_err() {
                    break;
                }
            }
            assert_eq!(outcome, Err(SseFault::TooLarge(MAX)), "in chunks of {piece}");
            assert!(decoder.buffer.len() <= MAX + piece, "buffered {} bytes", decoder.buffer.len());
        }
    }
}

#[test]
fn buffer_stays_small_over_a_long_stream() {
    let mut decoder = SseDecoder::new(64);
    for number in 0..10_000 {
        let mut bytes = Vec::new();
        write_event(&mut bytes, Some(number), "x", "{}");
        decoder.feed(&bytes);
        assert_eq!(decoder.next_event().unwrap(), Some(event("x", "{}")));
    }
    assert!(decoder.buffer.len() < 64);
}

#[test]
fn invalid_utf8_is_rejected() {
    let mut decoder = SseDecoder::new(MAX);
    decoder.feed(b"data: \xff\n\n");
    assert_eq!(decoder.next_event(), Err(SseFault::InvalidUtf8));
}
