//! Just enough of an HTTP client: one request at a time on a kept connection, and no more work per answer than has
//! to be, because it shares the cores with the server.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A server that says nothing for so long has failed.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(30);

const CHUNK_BYTES: usize = 16 * 1024;

/// A kept connection.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    pub(crate) buffer: ResponseBuffer,
}

/// What has arrived of an answer.
#[derive(Default)]
pub(crate) struct ResponseBuffer {
    bytes: Vec<u8>,
    filled: usize,
}

/// A whole answer.
pub(crate) struct Response<'a> {
    pub(crate) status: u16,
    /// Chunked bodies keep their chunk lines.
    pub(crate) body: &'a [u8],
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        Ok(Self { stream, buffer: ResponseBuffer::default() })
    }

    /// Sends a request and does not wait.
    pub(crate) fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.stream.write_all(request)
    }

    /// Sends a request and waits for its whole answer, which has to be a good one.
    pub(crate) fn call(&mut self, request: &[u8]) -> io::Result<Response<'_>> {
        self.send(request)?;
        while self.buffer.read_from(&self.stream)? == ReadState::Partial {}
        self.buffer.take_response()
    }
}

/// How much of an answer is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadState {
    Partial,
    Complete,
}

impl ResponseBuffer {
    /// Reads once.
    pub(crate) fn read_from(&mut self, mut stream: &TcpStream) -> io::Result<ReadState> {
        if self.bytes.len() - self.filled < CHUNK_BYTES {
            self.bytes.resize((self.bytes.len() * 2).max(2 * CHUNK_BYTES), 0);
        }
        match stream.read(&mut self.bytes[self.filled..])? {
            0 => return Err(invalid_data("the server closed the connection")),
            count => self.filled += count,
        }
        let whole = ResponseHead::parse(&self.bytes[..self.filled])?.is_some();
        Ok(if whole { ReadState::Complete } else { ReadState::Partial })
    }

    /// Gives the answer that has arrived and makes room for the next.
    pub(crate) fn take_response(&mut self) -> io::Result<Response<'_>> {
        let bytes = &self.bytes[..self.filled];
        self.filled = 0;
        let framing = ResponseHead::parse(bytes)?.ok_or_else(|| invalid_data("an answer is not whole"))?;
        let answer = Response { status: framing.status, body: &bytes[framing.body_start..] };
        if answer.status == 200 {
            return Ok(answer);
        }
        let body = String::from_utf8_lossy(answer.body).into_owned();
        Err(invalid_data(&format!("the server answered {}: {body}", answer.status)))
    }
}

struct ResponseHead {
    status: u16,
    body_start: usize,
}

impl ResponseHead {
    /// None when bytes are missing.
    fn parse(bytes: &[u8]) -> io::Result<Option<Self>> {
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
        let head = std::str::from_utf8(&bytes[..end])
            .map_err(|_| invalid_data("the head of an answer is not text"))?;
        let status = head.get(9..12).and_then(|digits| digits.parse().ok());
        let status = status.ok_or_else(|| invalid_data("an answer has no status"))?;
        let body_start = end + 4;
        let body = &bytes[body_start..];
        let whole = match header(head, "content-length") {
            Some(length) => {
                let length: usize = length.parse().map_err(|_| invalid_data("an answer has no length"))?;
                body.len() >= length
            }
            // Chunked. One request is under way at a time, so nothing follows the last chunk.
            None => body.ends_with(b"\r\n0\r\n\r\n"),
        };
        Ok(whole.then_some(Self { status, body_start }))
    }
}

/// A header's value, of a head without its last empty line.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.split("\r\n").skip(1).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// The bytes of a JSON request, with a bearer token when there is one.
pub(crate) fn post_request(address: SocketAddr, path: &str, token: Option<&str>, body: &str) -> Vec<u8> {
    let authorization = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nAccept: */*\r\n{authorization}Content-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

pub(crate) fn invalid_data(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: &str) -> bool {
        ResponseHead::parse(bytes.as_bytes()).unwrap().is_some()
    }

    #[test]
    fn an_answer_is_whole_when_its_length_or_its_last_chunk_is_there() {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
        assert!(!whole("HTTP/1.1 200 OK\r\nContent-Le"));
        assert!(!whole(head) && !whole(&format!("{head}o")) && whole(&format!("{head}ok")));
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(!whole(&format!("{head}2\r\nok\r\n")) && whole(&format!("{head}2\r\nok\r\n0\r\n\r\n")));
    }

    #[test]
    fn an_answer_that_is_not_200_is_an_error_with_its_text() {
        let bytes = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno".to_vec();
        let mut inbox = ResponseBuffer { filled: bytes.len(), bytes };
        let fault = inbox.take_response().map(|answer| answer.status).unwrap_err();
        assert_eq!(fault.to_string(), "the server answered 403: no");
        assert_eq!(inbox.filled, 0);
    }
}
