//! Streams cut at every byte, every line end, what the standard says of odd lines, and the bounds.

use super::*;

const MAX: usize = 1024;

fn event(event: &str, data: &str) -> SseEvent {
    SseEvent { event: event.to_owned(), data: data.to_owned() }
}

fn drain(reader: &mut SseDecoder) -> Vec<SseEvent> {
    std::iter::from_fn(|| reader.next_event().unwrap()).collect()
}

fn read(bytes: &[u8]) -> Vec<SseEvent> {
    let mut reader = SseDecoder::new(MAX);
    reader.feed(bytes);
    drain(&mut reader)
}

/// Everything we write, and more that the standard allows.
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
fn an_event_is_written_line_by_line() {
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
fn a_stream_split_at_every_byte_comes_out_whole() {
    let (bytes, events) = stream();
    for cut in 0..=bytes.len() {
        let mut reader = SseDecoder::new(MAX);
        reader.feed(&bytes[..cut]);
        let mut read = drain(&mut reader);
        reader.feed(&bytes[cut..]);
        read.extend(drain(&mut reader));
        assert_eq!(read, events, "cut at byte {cut}");
        assert_eq!((reader.last_event_id(), reader.retry_ms()), (Some("9"), Some(1500)), "cut at byte {cut}");
    }
}

#[test]
fn a_stream_fed_one_byte_at_a_time_comes_out_whole() {
    let (bytes, events) = stream();
    let mut reader = SseDecoder::new(MAX);
    let mut read = Vec::new();
    for byte in bytes {
        reader.feed(&[byte]);
        read.extend(drain(&mut reader));
    }
    assert_eq!(read, events);
}

#[test]
fn an_id_counts_from_the_end_of_its_event_on_and_stays() {
    let mut reader = SseDecoder::new(MAX);
    reader.feed(b"id: 1\ndata: a\n\nid: 2\ndata: b\n");
    assert_eq!(drain(&mut reader).len(), 1);
    assert_eq!(reader.last_event_id(), Some("1"), "the second event has not ended");
    reader.feed(b"\ndata: c\n\n");
    assert_eq!(drain(&mut reader).len(), 2);
    assert_eq!(reader.last_event_id(), Some("2"), "an event without an id moves nothing");
    reader.feed(b"id: a\0b\ndata: d\n\n");
    drain(&mut reader);
    assert_eq!(reader.last_event_id(), Some("2"), "an id with a null is none");
    reader.feed(b"id\ndata: e\n\n");
    drain(&mut reader);
    assert_eq!(reader.last_event_id(), None, "an empty id takes it back");
}

#[test]
fn odd_lines_are_read_as_the_standard_says() {
    assert_eq!(read(b"data:  a \n\n"), [event("message", " a ")]);
    assert_eq!(read(b"data: a\nevent: x\nevent: y\n\n"), [event("y", "a")]);
    assert_eq!(read(b"event: x\n\ndata: a\n\n"), [event("message", "a")], "a kind without data is forgotten");
    assert_eq!(read(b"data: a"), []);
    assert_eq!(read(b"data: a\n"), []);
    assert_eq!(read(b":\n:\n\n\n\r\n\nDATA: a\nfoo: b\n data: c\n\n"), []);
    let mut reader = SseDecoder::new(MAX);
    reader.feed(b"retry: 1\nretry: \nretry: 1s\nretry: -1\nretry: 99999999999999999999\n\n");
    drain(&mut reader);
    assert_eq!(reader.retry_ms(), Some(1));
}

#[test]
fn an_event_past_the_limit_is_refused_however_it_is_cut() {
    let at_limit = format!("data: {}\n\n", "a".repeat(MAX - 6));
    assert_eq!(read(at_limit.as_bytes()).len(), 1);
    let lines = "data: aaaaaaaa\n".repeat(200);
    for bytes in [format!("data: {}", "a".repeat(MAX)), lines, ":".repeat(MAX + 1)] {
        for piece in [1, 7, bytes.len()] {
            let mut reader = SseDecoder::new(MAX);
            let mut outcome = Ok(None);
            for chunk in bytes.as_bytes().chunks(piece) {
                reader.feed(chunk);
                outcome = reader.next_event();
                if outcome.is_err() {
                    break;
                }
            }
            assert_eq!(outcome, Err(SseFault::TooLarge(MAX)), "in pieces of {piece}");
            assert!(reader.buffer.len() <= MAX + piece, "held {} bytes", reader.buffer.len());
        }
    }
}

#[test]
fn a_long_stream_of_small_events_never_fills_the_buffer() {
    let mut reader = SseDecoder::new(64);
    for number in 0..10_000 {
        let mut bytes = Vec::new();
        write_event(&mut bytes, Some(number), "x", "{}");
        reader.feed(&bytes);
        assert_eq!(reader.next_event().unwrap(), Some(event("x", "{}")));
    }
    assert!(reader.buffer.len() < 64);
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    let mut reader = SseDecoder::new(MAX);
    reader.feed(b"data: \xff\n\n");
    assert_eq!(reader.next_event(), Err(SseFault::InvalidUtf8));
}
