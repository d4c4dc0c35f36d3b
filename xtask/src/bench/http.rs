//! A minimal HTTP/1.1 client: one request at a time on a persistent connection, with as little work per response as
//! possible, because it shares the cores with the server.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A read that takes longer means that the server has failed.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(30);

const CHUNK_BYTES: usize = 16 * 1024;

/// A persistent connection.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    pub(crate) buffer: ResponseBuffer,
}

/// The received bytes of a response.
#[derive(Default)]
pub(crate) struct ResponseBuffer {
    bytes: Vec<u8>,
    filled: usize,
}

/// A complete response.
pub(crate) struct Response<'a> {
    pub(crate) status: u16,
    /// The body as received: chunked bodies include their chunk headers.
    pub(crate) body: &'a [u8],
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        Ok(Self { stream, buffer: ResponseBuffer::default() })
    }

    /// Sends a request without waiting for the response.
    pub(crate) fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.stream.write_all(request)
    }

    /// Sends a request and waits for its complete response, whose status has to be 200.
    pub(crate) fn call(&mut self, request: &[u8]) -> io::Result<Response<'_>> {
        self.send(request)?;
        while self.buffer.read_from(&self.stream)? == ReadState::Partial {}
        self.buffer.take_response()
    }
}

/// Whether a response has been received completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadState {
    Partial,
    Complete,
}

impl ResponseBuffer {
    /// Reads from the stream once.
    pub(crate) fn read_from(&mut self, mut stream: &TcpStream) -> io::Result<ReadState> {
        if self.bytes.len() - self.filled < CHUNK_BYTES {
            self.bytes.resize((self.bytes.len() * 2).max(2 * CHUNK_BYTES), 0);
        }
        match stream.read(&mut self.bytes[self.filled..])? {
            0 => return Err(invalid_data("the server closed the connection")),
            count => self.filled += count,
        }
        let is_complete = ResponseHead::parse(&self.bytes[..self.filled])?.is_some();
        Ok(if is_complete { ReadState::Complete } else { ReadState::Partial })
    }

    /// Returns the received response and empties the buffer for the next one.
    pub(crate) fn take_response(&mut self) -> io::Result<Response<'_>> {
        let bytes = &self.bytes[..self.filled];
        self.filled = 0;
        let head = ResponseHead::parse(bytes)?.ok_or_else(|| invalid_data("incomplete response"))?;
        let response = Response { status: head.status, body: &bytes[head.body_start..] };
        if response.status == 200 {
            return Ok(response);
        }
        let body = String::from_utf8_lossy(response.body).into_owned();
        Err(invalid_data(&format!("the server responded {}: {body}", response.status)))
    }
}

/// The parsed head of a complete response.
struct ResponseHead {
    status: u16,
    body_start: usize,
}

impl ResponseHead {
    /// Parses the head; none while the head or the body is incomplete.
    fn parse(bytes: &[u8]) -> io::Result<Option<Self>> {
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
        let head = std::str::from_utf8(&bytes[..end])
            .map_err(|_| invalid_data("the head of the response is not UTF-8"))?;
        let status = head.get(9..12).and_then(|digits| digits.parse().ok());
        let status = status.ok_or_else(|| invalid_data("the response has no status"))?;
        let body_start = end + 4;
        let body = &bytes[body_start..];
        let is_complete = match header(head, "content-length") {
            Some(length) => {
                let length: usize = length.parse().map_err(|_| invalid_data("invalid Content-Length"))?;
                body.len() >= length
            }
            // Chunked. Only one request is in flight, so nothing follows the last chunk.
            None => body.ends_with(b"\r\n0\r\n\r\n"),
        };
        Ok(is_complete.then_some(Self { status, body_start }))
    }
}

/// Returns the value of a header. The head comes without its final empty line.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.split("\r\n").skip(1).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// Returns the bytes of a POST request with a JSON body, and a bearer token if one is given.
pub(crate) fn post_request(address: SocketAddr, path: &str, token: Option<&str>, body: &str) -> Vec<u8> {
    let authorization = authorization(token);
    format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nAccept: */*\r\n{authorization}Content-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Returns the bytes of a GET request, with a bearer token if one is given.
pub(crate) fn get_request(address: SocketAddr, path: &str, token: Option<&str>) -> Vec<u8> {
    let authorization = authorization(token);
    format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: */*\r\n{authorization}\r\n").into_bytes()
}

fn authorization(token: Option<&str>) -> String {
    token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default()
}

pub(crate) fn invalid_data(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_complete(bytes: &str) -> bool {
        ResponseHead::parse(bytes.as_bytes()).unwrap().is_some()
    }

    #[test]
    fn response_ends_with_its_length_or_last_chunk() {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
        assert!(!is_complete("HTTP/1.1 200 OK\r\nContent-Le"));
        assert!(!is_complete(head) && !is_complete(&format!("{head}o")) && is_complete(&format!("{head}ok")));
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(!is_complete(&format!("{head}2\r\nok\r\n")));
        assert!(is_complete(&format!("{head}2\r\nok\r\n0\r\n\r\n")));
    }

    #[test]
    fn status_other_than_200_is_an_error_with_the_body() {
        let bytes = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno".to_vec();
        let mut buffer = ResponseBuffer { filled: bytes.len(), bytes };
        let error = buffer.take_response().map(|response| response.status).unwrap_err();
        assert_eq!(error.to_string(), "the server responded 403: no");
        assert_eq!(buffer.filled, 0);
    }
}
