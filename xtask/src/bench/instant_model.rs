//! A model that answers at once: it reads how long a question is, lets the rest of it pass, and gives a fixed answer. The
//! scripted model reads its questions, and a long one keeps the cores from whoever asked.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::http::{header, invalid_data};

const BUFFER_BYTES: usize = 256 * 1024;

const RESPONSE_BODY: &str = concat!(
    r#"data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":"ok"},"finish_reason":null}]}"#,
    "\n\n",
    r#"data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
    "\n\n",
    r#"data: {"id":"c","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":10,"completion_tokens":1,"total_tokens":11}}"#,
    "\n\ndata: [DONE]\n\n"
);

/// The model, on threads of this process that end with it.
pub(crate) struct InstantModel {
    pub(crate) address: SocketAddr,
    last_request_bytes: Arc<AtomicUsize>,
}

impl InstantModel {
    pub(crate) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let question_bytes = Arc::new(AtomicUsize::new(0));
        let last = Arc::clone(&question_bytes);
        thread::Builder::new().name("instant-model".to_owned()).spawn(move || {
            for stream in listener.incoming().flatten() {
                let last = Arc::clone(&last);
                // Whoever goes away has heard enough, and whoever breaks the rules notices it.
                thread::spawn(move || drop(serve(stream, &last)));
            }
        })?;
        Ok(Self { address, last_request_bytes: question_bytes })
    }

    /// How long the body of the last question was.
    pub(crate) fn last_request_bytes(&self) -> usize {
        self.last_request_bytes.load(Ordering::Relaxed)
    }
}

fn serve(mut stream: TcpStream, last: &AtomicUsize) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let length = RESPONSE_BODY.len();
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {length}\r\n\r\n");
    let answer = head + RESPONSE_BODY;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let RequestBody { length, unread: mut left } = read_head(&mut stream, &mut buffer)?;
        last.store(length, Ordering::Relaxed);
        while left > 0 {
            left = left.saturating_sub(read_some(&mut stream, &mut buffer)?);
        }
        stream.write_all(answer.as_bytes())?;
    }
}

/// The bytes of a question's body, and how many of them did not come with its head.
struct RequestBody {
    length: usize,
    unread: usize,
}

/// Reads the head of a question.
fn read_head(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<RequestBody> {
    let mut filled = 0;
    loop {
        filled += read_some(stream, &mut buffer[filled..])?;
        let Some(end) = buffer[..filled].windows(4).position(|window| window == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&buffer[..end]);
        let length = header(&head, "content-length").and_then(|length| length.parse::<usize>().ok());
        let length = length.ok_or_else(|| invalid_data("a question has no length"))?;
        return Ok(RequestBody { length, unread: length.saturating_sub(filled - end - 4) });
    }
}

fn read_some(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    match stream.read(buffer)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        count => Ok(count),
    }
}
