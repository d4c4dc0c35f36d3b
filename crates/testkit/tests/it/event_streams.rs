//! Event streams: parsed from any chunking, with waits that time out, and with a visible end.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use testkit::{NextEvent, StreamEvent, TestEventStream};

const SHORT_WAIT: Duration = Duration::from_millis(20);
const LONG_WAIT: Duration = Duration::from_secs(10);

const RESPONSE_HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";

/// Serves one connection: reads the request head, then writes the bytes it receives from the channel until it closes.
fn serve_once() -> (u16, Sender<Vec<u8>>, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let (sender, receiver) = channel::<Vec<u8>>();
    let thread = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.set_nodelay(true).expect("a socket takes options");
        let request = read_head(&mut stream);
        receiver.iter().for_each(|bytes| stream.write_all(&bytes).expect("a peer that reads"));
        request
    });
    (port, sender, thread)
}

fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a request");
        head.push(byte[0]);
    }
    String::from_utf8(head).expect("text")
}

fn event(id: Option<&str>, kind: &str, data: &str) -> StreamEvent {
    StreamEvent { id: id.map(str::to_owned), kind: kind.to_owned(), data: data.to_owned() }
}

#[test]
fn events_parse_from_any_chunking() {
    let events = "id: 7\nevent: message\ndata: {\"a\":1}\n\n: beat\n\ndata: one\ndata:two\nretry: 5\n\n\
                  event: none\n\nid: 8\r\ndata\r\n\r\n";
    for chunk_bytes in [1, 2, 3, 7, 1000] {
        let (port, sender, server) = serve_once();
        let head = format!("{RESPONSE_HEAD}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
        let chunks = events
            .as_bytes()
            .chunks(chunk_bytes)
            .map(|chunk| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
        let response = [head, chunks.collect::<Vec<_>>().concat(), b"0\r\n\r\n".to_vec()].concat();
        response.chunks(chunk_bytes).for_each(|bytes| sender.send(bytes.to_vec()).expect("a server"));
        let mut stream = TestEventStream::open(port, "/events", Some("tok"), Some(6)).expect("a stream");
        assert_eq!(stream.next_event(LONG_WAIT), event(Some("7"), "message", "{\"a\":1}"));
        assert_eq!(stream.next_event(LONG_WAIT), event(None, "", "one\ntwo"));
        let last = stream.next_event(LONG_WAIT);
        assert_eq!((last.sequence(), last.data.as_str()), (Some(8), ""));
        assert_eq!(stream.wait_event(LONG_WAIT).expect("a stream"), NextEvent::Ended);
        assert_eq!((stream.comments(), stream.body()), (1, events.as_bytes()));
        drop(sender);
        let request = server.join().expect("a server");
        assert!(request.starts_with("GET /events HTTP/1.1\r\n"), "{request}");
        for line in ["Authorization: Bearer tok\r\n", "Last-Event-ID: 6\r\n", "Accept: text/event-stream\r\n"]
        {
            assert!(request.contains(line), "{request}");
        }
    }
}

#[test]
fn timeout_and_end_of_stream_differ() {
    let (port, sender, server) = serve_once();
    sender.send(format!("{RESPONSE_HEAD}\r\ndata: 1\n\ndata: ha").into_bytes()).expect("a server");
    let mut stream = TestEventStream::open(port, "/events", None, None).expect("a stream");
    assert_eq!(stream.next_event(LONG_WAIT).json(), 1);
    assert_eq!(stream.wait_event(SHORT_WAIT).expect("a stream"), NextEvent::TimedOut);
    sender.send(b"lf\n\n".to_vec()).expect("a server");
    assert_eq!(stream.next_event(LONG_WAIT).data, "half");
    drop(sender);
    assert_eq!(stream.wait_event(LONG_WAIT).expect("a stream"), NextEvent::Ended);
    assert!(!server.join().expect("a server").contains("Authorization"));
}

#[test]
fn other_response_is_an_error_with_its_text() {
    let (port, sender, _server) = serve_once();
    sender.send(b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone".to_vec()).expect("a server");
    let error = TestEventStream::open(port, "/events", None, None).expect_err("no stream");
    assert_eq!(error.to_string(), "status 404: gone");
}
