//! Opening the listening socket. Only loopback has a name here, so nothing else can be bound.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections the kernel keeps for us between two accepts; a burst of thousands must not overflow it.
const BACKLOG: i32 = 4096;

/// Where a daemon can listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Host {
    /// 127.0.0.1, also by the name localhost.
    #[default]
    Ipv4,
    /// ::1
    Ipv6,
}

impl Host {
    /// Finds a host by its spelling; none for what is not loopback.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "127.0.0.1" | "localhost" => Some(Host::Ipv4),
            "::1" | "[::1]" => Some(Host::Ipv6),
            _ => None,
        }
    }

    fn address(self) -> IpAddr {
        match self {
            Host::Ipv4 => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Host::Ipv6 => IpAddr::V6(Ipv6Addr::LOCALHOST),
        }
    }
}

/// Why no socket could be opened.
#[derive(Debug, thiserror::Error)]
pub enum BindFault {
    /// Somebody listens there.
    #[error("{0} is in use")]
    InUse(SocketAddr),
    /// Anything else.
    #[error("cannot listen on {0}: {1}")]
    Other(SocketAddr, #[source] io::Error),
}

/// An open listening socket.
#[derive(Debug)]
pub struct Listener {
    pub(crate) socket: std::net::TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// The address that was bound, with the real port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Opens a listening socket; port 0 takes any free one.
///
/// # Errors
/// When it cannot be had.
pub fn bind(host: Host, port: u16) -> Result<Listener, BindFault> {
    let wanted = SocketAddr::new(host.address(), port);
    open_socket(wanted).map_err(|fault| match fault.kind() {
        io::ErrorKind::AddrInUse => BindFault::InUse(wanted),
        _ => BindFault::Other(wanted, fault),
    })
}

fn open_socket(wanted: SocketAddr) -> io::Result<Listener> {
    let socket = Socket::new(Domain::for_address(wanted), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&wanted.into())?;
    socket.listen(BACKLOG)?;
    let socket = std::net::TcpListener::from(socket);
    let address = socket.local_addr()?;
    Ok(Listener { socket, address })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_has_a_name() {
        for good in ["127.0.0.1", "localhost", "::1", "[::1]"] {
            assert!(Host::parse(good).is_some(), "{good}");
        }
        for bad in
            ["0.0.0.0", "::", "", "127.0.0.2", "localhost.evil", "127.0.0.1:80", "192.168.0.1", "LOCALHOST "]
        {
            assert!(Host::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_taken_port_is_told_apart_from_other_faults() {
        let first = bind(Host::Ipv4, 0).unwrap();
        let again = bind(Host::Ipv4, first.address().port());
        assert!(matches!(again, Err(BindFault::InUse(address)) if address == first.address()));
    }
}
