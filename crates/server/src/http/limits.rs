//! What the HTTP door takes: sizes, counts and times, each with an answer when it is passed.

use std::time::Duration;

/// The HTTP door's limits.
#[derive(Debug, Clone)]
pub struct HttpLimits {
    /// A body. Beyond: 413.
    pub body_bytes_max: u64,
    /// The request line with its line end. Beyond: 400.
    pub request_line_bytes_max: usize,
    /// All header lines with their line ends. Beyond: 431.
    pub head_bytes_max: usize,
    /// Header lines. Beyond: 431.
    pub headers_max: usize,
    /// One header's name. Beyond: 431.
    pub header_name_bytes_max: usize,
    /// One header's value. Beyond: 431.
    pub header_value_bytes_max: usize,
    /// From connecting to the first byte. Beyond: 408.
    pub first_byte_timeout: Duration,
    /// From a head's first byte to its last. Beyond: 408.
    pub head_timeout: Duration,
    /// A body, from the moment it is wanted. Beyond: 408.
    pub body_timeout: Duration,
    /// How long a peer may refuse to take an answer's next bytes. Beyond: the connection is dropped.
    pub write_timeout: Duration,
    /// Between an answer and the next request. Beyond: the connection is closed.
    pub keep_alive_timeout: Duration,
    /// Connections at once. Beyond: they wait in the kernel.
    pub connections_max: usize,
    /// Event streams at once, those of a `send` not counted. Beyond: 503.
    pub event_streams_max: usize,
    /// How long an event stream may be silent; then a comment is written.
    pub heartbeat_interval: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            body_bytes_max: 1024 * 1024,
            request_line_bytes_max: 8192,
            head_bytes_max: 32 * 1024,
            headers_max: 128,
            header_name_bytes_max: 1024,
            header_value_bytes_max: 8192,
            first_byte_timeout: Duration::from_secs(30),
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            keep_alive_timeout: Duration::from_secs(75),
            connections_max: 16_384,
            event_streams_max: 1024,
            heartbeat_interval: Duration::from_secs(15),
        }
    }
}
