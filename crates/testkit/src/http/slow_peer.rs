//! A client that sends byte by byte and polls for a response after each byte.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;

use crate::client::DaemonClient;

/// A client that sends byte by byte and polls for a response after each byte.
#[derive(Debug)]
pub struct SlowPeer {
    stream: TcpStream,
    /// The bytes of the response so far.
    pub response: Vec<u8>,
    /// Number of bytes sent one by one.
    pub sent: usize,
    /// Whether the server has closed the connection.
    pub is_closed: bool,
}

impl SlowPeer {
    /// Connects and sends the start of a request at once.
    pub fn new(daemon: &DaemonClient, start: &[u8]) -> Self {
        let mut stream = daemon.connect();
        stream.write_all(start).expect("a new connection accepts bytes");
        stream.set_nonblocking(true).expect("a connected socket can be non-blocking");
        Self { stream, response: Vec::new(), sent: 0, is_closed: false }
    }

    /// Sends the next byte and reads what has arrived.
    pub fn send_next_byte(&mut self) {
        // The write fails if the server has closed the connection; the read below detects that.
        self.sent += self.stream.write(b"a").unwrap_or_default();
        let mut buffer = [0; 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.is_closed = true,
            Ok(read) => self.response.extend_from_slice(&buffer[..read]),
            Err(cause) if cause.kind() == ErrorKind::WouldBlock => {}
            Err(_) => self.is_closed = true,
        }
    }
}
