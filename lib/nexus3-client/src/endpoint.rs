//! Network address of a daemon.

use std::fmt;

use nexus3_protocol::discovery::PORT_DEFAULT;

/// Host and port of a daemon. Displayed as `host:port`, an IPv6 host in brackets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    host: String,
    port: u16,
}

impl Endpoint {
    /// Creates an address; an IPv6 host may have brackets.
    #[must_use]
    pub fn new(host: &str, port: u16) -> Self {
        let bare = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(host);
        Self { host: bare.to_owned(), port }
    }

    /// Creates an address on this machine.
    #[must_use]
    pub fn local(port: u16) -> Self {
        Self::new("127.0.0.1", port)
    }

    /// Host, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether the host is a loopback name that a daemon can bind: `127.0.0.1`, `localhost` or `::1`.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        matches!(self.host.as_str(), "127.0.0.1" | "::1") || self.host.eq_ignore_ascii_case("localhost")
    }
}

impl Default for Endpoint {
    fn default() -> Self {
        Self::local(PORT_DEFAULT)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(out, "[{}]:{}", self.host, self.port)
        } else {
            write!(out, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_is_displayed_as_an_authority() {
        assert_eq!(Endpoint::default().to_string(), "127.0.0.1:8765");
        assert_eq!(Endpoint::new("localhost", 9000).to_string(), "localhost:9000");
        assert_eq!(Endpoint::new("::1", 8765).to_string(), "[::1]:8765");
        assert_eq!(Endpoint::new("[::1]", 8765), Endpoint::new("::1", 8765));
    }

    #[test]
    fn only_three_hosts_are_loopback() {
        for host in ["127.0.0.1", "localhost", "LOCALHOST", "::1", "[::1]"] {
            assert!(Endpoint::new(host, 1).is_loopback(), "{host}");
        }
        for host in
            ["127.0.0.1.example.org", "localhost.example.org", "10.0.0.1", "0.0.0.0", "::", "127.0.0.2", ""]
        {
            assert!(!Endpoint::new(host, 1).is_loopback(), "{host}");
        }
    }
}
