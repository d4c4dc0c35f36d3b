//! A model server that responds at once: it parses only the length of a request, discards the body, and sends a fixed
//! response. The scripted model parses its requests, which for long ones takes CPU time from the daemon under test.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::http::{header, invalid_data};

const BUFFER_BYTES: usize = 256 * 1024;

/// Text of one delta of a long response.
const DELTA_BYTES: usize = 16 * 1024;

const RESPONSE_BODY: &str = concat!(
    r#"data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"ok"},"finish_reason":null}]}"#,
    "\n\n",
    r#"data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
    "\n\n",
    r#"data: {"id":"c","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":1,"total_tokens":11}}"#,
    "\n\ndata: [DONE]\n\n"
);

/// The running model server. Its threads end with this process.
pub(crate) struct InstantModel {
    pub(crate) address: SocketAddr,
    last_request_bytes: Arc<AtomicUsize>,
}

impl InstantModel {
    pub(crate) fn start() -> io::Result<Self> {
        Self::start_with(RESPONSE_BODY)
    }

    /// Starts a model that responds with `bytes` bytes of text, in deltas of 16 KiB.
    pub(crate) fn printing(bytes: usize) -> io::Result<Self> {
        let text = "x".repeat(DELTA_BYTES);
        let delta = format!(
            "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[{{\"index\":0,\"delta\":\
             {{\"content\":\"{text}\"}},\"finish_reason\":null}}]}}\n\n"
        );
        Self::start_with(&(delta.repeat(bytes / DELTA_BYTES) + RESPONSE_BODY))
    }

    fn start_with(body: &str) -> io::Result<Self> {
        let length = body.len();
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {length}\r\n\r\n");
        let response: Arc<str> = (head + body).into();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let last_request_bytes = Arc::new(AtomicUsize::new(0));
        let recorded = Arc::clone(&last_request_bytes);
        thread::Builder::new().name("instant-model".to_owned()).spawn(move || {
            for stream in listener.incoming().flatten() {
                let (recorded, response) = (Arc::clone(&recorded), Arc::clone(&response));
                // An error ends the connection, which the client notices.
                thread::spawn(move || drop(serve(stream, &response, &recorded)));
            }
        })?;
        Ok(Self { address, last_request_bytes })
    }

    /// The length of the last request's body.
    pub(crate) fn last_request_bytes(&self) -> usize {
        self.last_request_bytes.load(Ordering::Relaxed)
    }
}

fn serve(mut stream: TcpStream, response: &str, last_request_bytes: &AtomicUsize) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let RequestBody { length, mut unread } = read_head(&mut stream, &mut buffer)?;
        last_request_bytes.store(length, Ordering::Relaxed);
        while unread > 0 {
            unread = unread.saturating_sub(read_some(&mut stream, &mut buffer)?);
        }
        stream.write_all(response.as_bytes())?;
    }
}

/// The length of a request body, and the part of it that was not read with the head.
struct RequestBody {
    length: usize,
    unread: usize,
}

/// Reads the head of a request.
fn read_head(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<RequestBody> {
    let mut filled = 0;
    loop {
        filled += read_some(stream, &mut buffer[filled..])?;
        let Some(end) = buffer[..filled].windows(4).position(|window| window == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&buffer[..end]);
        let length = header(&head, "content-length").and_then(|length| length.parse::<usize>().ok());
        let length = length.ok_or_else(|| invalid_data("the request has no Content-Length"))?;
        return Ok(RequestBody { length, unread: length.saturating_sub(filled - end - 4) });
    }
}

fn read_some(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    match stream.read(buffer)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        count => Ok(count),
    }
}
