//! Limits of the HTTP transport on sizes, counts and times, and the response when each is exceeded.

use std::time::Duration;

/// Limits of the HTTP transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpLimits {
    /// Size of a body. Beyond: 413.
    pub body_bytes_max: u64,
    /// Size of the request line with its line end. Beyond: 400.
    pub request_line_bytes_max: usize,
    /// Total size of all header lines with their line ends. Beyond: 431.
    pub head_bytes_max: usize,
    /// Number of headers. Beyond: 431.
    pub headers_max: usize,
    /// Length of a header name. Beyond: 431.
    pub header_name_bytes_max: usize,
    /// Length of a header value. Beyond: 431.
    pub header_value_bytes_max: usize,
    /// Time from connecting to the first byte. Beyond: 408.
    pub first_byte_timeout: Duration,
    /// Time from the first to the last byte of a head. Beyond: 408.
    pub head_timeout: Duration,
    /// Time for a body, from the first read that has to wait. Beyond: 408.
    pub body_timeout: Duration,
    /// Time that a write of a response may block. Beyond: the connection is dropped.
    pub write_timeout: Duration,
    /// Idle time between a response and the next request. Beyond: the connection is closed.
    pub keep_alive_timeout: Duration,
    /// Number of open connections. Beyond: they wait in the kernel's backlog.
    pub connections_max: usize,
    /// Number of open event streams, without those of a `send`. A quarter is reserved for admins, and one agent may
    /// open a sixteenth. Beyond: 503.
    pub event_streams_max: usize,
    /// Silence on an event stream after which a heartbeat comment is written.
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
