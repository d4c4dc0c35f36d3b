//! HTTP as bytes, for tests that split, pipeline, half-close and reset, and check the exact response.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::time::Duration;

use serde_json::Value;
use socket2::SockRef;

const IO_TIMEOUT: Duration = Duration::from_secs(60);

/// One complete HTTP response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawResponse {
    /// The status code.
    pub status: u16,
    /// The headers in order of arrival, names as sent.
    pub headers: Vec<(String, String)>,
    /// The body, without chunk framing.
    pub body: Vec<u8>,
    /// Every byte of the response.
    pub raw: Vec<u8>,
    /// Whether the peer closed the connection after it; known only if the response has no other end, or has the header
    /// `Connection: close`.
    pub closed: bool,
}

impl RawResponse {
    /// The first header with this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; panics if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|cause| panic!("the body is not JSON: {cause}: {}", self.text()))
    }
}

/// A loopback connection that stays open between responses and buffers bytes of the next one. Reads and writes time out
/// after 60 s.
#[derive(Debug)]
pub struct RawConnection {
    stream: TcpStream,
    /// Bytes received but not consumed.
    pub(crate) unread: Vec<u8>,
}

/// How the end of a body is determined.
#[derive(Clone, Copy)]
enum Framing {
    Empty,
    Length(usize),
    Chunked,
    UntilClose,
}

/// Status and headers of a response.
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    /// Length of the head.
    pub(crate) bytes: usize,
}

impl RawConnection {
    /// Connects to a port of 127.0.0.1.
    pub fn open(port: u16) -> Self {
        Self { stream: connect(port), unread: Vec::new() }
    }

    /// Connects to a port of 127.0.0.1; an error if nothing listens there.
    pub fn try_open(port: u16) -> io::Result<Self> {
        Ok(Self { stream: try_connect(port)?, unread: Vec::new() })
    }

    /// Sends bytes at once; panics on an error.
    pub fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).unwrap_or_else(|cause| panic!("cannot send {} bytes: {cause}", bytes.len()));
    }

    /// Sends bytes at once.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Reads one response; panics if it is incomplete. An interim response (1xx) counts as one.
    pub fn read_response(&mut self) -> RawResponse {
        self.try_read_response().unwrap_or_else(|cause| {
            panic!("no complete response: {cause}; so far: {:?}", String::from_utf8_lossy(&self.unread))
        })
    }

    /// Reads one response; if the connection ends before it is complete, the error is `UnexpectedEof`.
    pub fn try_read_response(&mut self) -> io::Result<RawResponse> {
        let head = self.read_head()?;
        let framing = head.framing();
        self.read_body(head, framing)
    }

    /// Reads the response to a HEAD request, which has no body whatever its headers say.
    pub fn read_head_response(&mut self) -> io::Result<RawResponse> {
        let head = self.read_head()?;
        self.read_body(head, Framing::Empty)
    }

    /// Reads until the peer closes or resets the connection; panics on a timeout.
    pub fn read_to_end(&mut self) -> Vec<u8> {
        self.fill_until_close().unwrap_or_else(|cause| {
            panic!("not closed: {cause}; so far: {:?}", String::from_utf8_lossy(&self.unread))
        });
        std::mem::take(&mut self.unread)
    }

    /// Closes the write half; reading goes on.
    pub fn shutdown_write(&self) {
        self.stream.shutdown(Shutdown::Write).expect("a connected socket can be half closed");
    }

    /// Resets the connection instead of closing it in order.
    pub fn reset(self) {
        SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).expect("a connected socket can linger");
    }

    /// The underlying socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    fn read_body(&mut self, head: Head, framing: Framing) -> io::Result<RawResponse> {
        let (body, end) = match framing {
            Framing::Empty => (Vec::new(), head.bytes),
            Framing::Length(bytes) => self.read_exact(head.bytes, bytes)?,
            Framing::Chunked => self.read_chunks(head.bytes)?,
            Framing::UntilClose => {
                self.fill_until_close()?;
                (self.unread[head.bytes..].to_vec(), self.unread.len())
            }
        };
        let raw = self.unread.drain(..end).collect();
        let mut response =
            RawResponse { status: head.status, headers: head.headers, body, raw, closed: false };
        if response.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close")) {
            self.fill_until_close()?;
            response.closed = true;
        }
        response.closed |= matches!(framing, Framing::UntilClose);
        Ok(response)
    }

    pub(crate) fn read_head(&mut self) -> io::Result<Head> {
        loop {
            if let Some(end) = find(&self.unread, b"\r\n\r\n") {
                return Head::parse(&self.unread[..end + 4]);
            }
            self.fill()?;
        }
    }

    fn read_exact(&mut self, from: usize, bytes: usize) -> io::Result<(Vec<u8>, usize)> {
        while self.unread.len() < from + bytes {
            self.fill()?;
        }
        Ok((self.unread[from..from + bytes].to_vec(), from + bytes))
    }

    fn read_chunks(&mut self, from: usize) -> io::Result<(Vec<u8>, usize)> {
        let (mut body, mut at) = (Vec::new(), from);
        loop {
            let line = self.read_line(at)?;
            let size = line.split(';').next().and_then(|size| usize::from_str_radix(size.trim(), 16).ok());
            let size = size.ok_or_else(|| malformed(&format!("chunk size {line:?}")))?;
            at += line.len() + 2;
            if size == 0 {
                break;
            }
            let (chunk, end) = self.read_exact(at, size)?;
            body.extend(chunk);
            let (line_end, next) = self.read_exact(end, 2)?;
            if line_end != b"\r\n" {
                return Err(malformed("chunk longer than its size"));
            }
            at = next;
        }
        loop {
            let trailer = self.read_line(at)?;
            at += trailer.len() + 2;
            if trailer.is_empty() {
                return Ok((body, at));
            }
        }
    }

    fn read_line(&mut self, from: usize) -> io::Result<String> {
        loop {
            if let Some(end) = find(&self.unread[from..], b"\r\n") {
                return Ok(String::from_utf8_lossy(&self.unread[from..from + end]).into_owned());
            }
            self.fill()?;
        }
    }

    fn fill_until_close(&mut self) -> io::Result<()> {
        loop {
            match self.fill() {
                Ok(()) => {}
                Err(cause) if is_disconnect(&cause) => return Ok(()),
                Err(cause) => return Err(cause),
            }
        }
    }

    /// Waits for more bytes and appends them to `unread`.
    pub(crate) fn fill(&mut self) -> io::Result<()> {
        let mut chunk = [0; 16 * 1024];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    self.unread.extend_from_slice(&chunk[..read]);
                    return Ok(());
                }
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                Err(cause) => return Err(cause),
            }
        }
    }
}

impl Head {
    fn parse(bytes: &[u8]) -> io::Result<Self> {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.trim_end().split("\r\n");
        let first = lines.next().unwrap_or_default();
        let status = first.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
        let status = status.ok_or_else(|| malformed(&format!("status line {first:?}")))?;
        let headers = lines
            .map(|line| {
                let (name, value) =
                    line.split_once(':').ok_or_else(|| malformed(&format!("header {line:?}")))?;
                Ok((name.to_owned(), value.trim().to_owned()))
            })
            .collect::<io::Result<_>>()?;
        Ok(Self { status, headers, bytes: bytes.len() })
    }

    fn framing(&self) -> Framing {
        let header = |name: &str| self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        if self.status < 200 || self.status == 204 || self.status == 304 {
            return Framing::Empty;
        }
        if header("transfer-encoding").is_some_and(|(_, value)| value.eq_ignore_ascii_case("chunked")) {
            return Framing::Chunked;
        }
        let length = header("content-length").and_then(|(_, value)| value.parse().ok());
        length.map_or(Framing::UntilClose, Framing::Length)
    }
}

pub(crate) fn connect(port: u16) -> TcpStream {
    try_connect(port).unwrap_or_else(|cause| panic!("cannot connect to 127.0.0.1:{port}: {cause}"))
}

fn try_connect(port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    stream.set_write_timeout(Some(IO_TIMEOUT))?;
    Ok(stream)
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

pub(crate) fn malformed(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("malformed response: {what}"))
}

pub(crate) fn is_disconnect(cause: &io::Error) -> bool {
    [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset, ErrorKind::ConnectionAborted]
        .contains(&cause.kind())
}
