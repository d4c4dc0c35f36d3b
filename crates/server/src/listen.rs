//! The TCP listener. `Host` can only represent loopback addresses, so no other address can be bound.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use accept::Listen;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};

/// Connections that the kernel queues between two accepts; a burst of thousands must not overflow the queue.
const BACKLOG: i32 = 4096;

/// Loopback address to listen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Host {
    /// 127.0.0.1, also by the name localhost.
    #[default]
    Ipv4,
    /// ::1
    Ipv6,
}

impl Host {
    /// Parses a host; `None` for anything but loopback.
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

/// Why the listening socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum BindFault {
    /// Another process listens on the address.
    #[error("cannot listen on {0}: it is in use")]
    InUse(SocketAddr),
    /// Any other error.
    #[error("cannot listen on {0}: {1}")]
    Other(SocketAddr, #[source] io::Error),
}

impl BindFault {
    fn new(address: SocketAddr, fault: io::Error) -> Self {
        match fault.kind() {
            io::ErrorKind::AddrInUse => BindFault::InUse(address),
            _ => BindFault::Other(address, fault),
        }
    }
}

/// A socket that is bound and does not listen yet: it holds its address, and clients are refused. What they need to
/// call the daemon, such as the token file, is written before [`BoundSocket::listen`].
#[derive(Debug)]
pub struct BoundSocket {
    socket: Socket,
    address: SocketAddr,
}

impl BoundSocket {
    /// The bound address, with the actual port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts to listen.
    ///
    /// # Errors
    /// When another process has begun to listen on the address meanwhile.
    pub fn listen(self) -> Result<Listener, BindFault> {
        let Self { socket, address } = self;
        socket.listen(BACKLOG).map_err(|fault| BindFault::new(address, fault))?;
        Ok(Listener { socket: socket.into(), address })
    }
}

/// An open listening socket.
#[derive(Debug)]
pub struct Listener {
    socket: std::net::TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// The bound address, with the actual port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Registers the socket with the async runtime.
    pub(crate) fn into_async(self) -> io::Result<LoopbackSocket> {
        TcpListener::from_std(self.socket).map(LoopbackSocket)
    }
}

/// A listening socket of the async runtime.
pub(crate) struct LoopbackSocket(TcpListener);

impl Listen for LoopbackSocket {
    type Connection = TcpStream;

    async fn accept(&self) -> io::Result<TcpStream> {
        let (socket, _) = self.0.accept().await?;
        socket.set_nodelay(true)?;
        Ok(socket)
    }
}

/// Binds a socket; port 0 selects any free port.
///
/// # Errors
/// When the address is in use or the socket cannot be opened.
pub fn bind(host: Host, port: u16) -> Result<BoundSocket, BindFault> {
    let address = SocketAddr::new(host.address(), port);
    open_socket(address).map_err(|fault| BindFault::new(address, fault))
}

fn open_socket(requested: SocketAddr) -> io::Result<BoundSocket> {
    let socket = Socket::new(Domain::for_address(requested), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&requested.into())?;
    let address = socket.local_addr()?.as_socket().unwrap_or(requested);
    Ok(BoundSocket { socket, address })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_hosts_are_accepted() {
        for valid in ["127.0.0.1", "localhost", "::1", "[::1]"] {
            assert!(Host::parse(valid).is_some(), "{valid}");
        }
        for invalid in
            ["0.0.0.0", "::", "", "127.0.0.2", "localhost.evil", "127.0.0.1:80", "192.168.0.1", "LOCALHOST "]
        {
            assert!(Host::parse(invalid).is_none(), "{invalid}");
        }
    }

    #[test]
    fn a_port_in_use_is_a_distinct_error() {
        let first = bind(Host::Ipv4, 0).unwrap().listen().unwrap();
        let second = bind(Host::Ipv4, first.address().port());
        assert!(matches!(second, Err(BindFault::InUse(address)) if address == first.address()));
    }

    #[test]
    fn a_bound_socket_refuses_clients_until_it_listens() {
        let bound = bind(Host::Ipv4, 0).unwrap();
        let address = bound.address();
        let refused = std::net::TcpStream::connect(address).map_err(|fault| fault.kind());
        assert!(matches!(refused, Err(io::ErrorKind::ConnectionRefused)), "{refused:?}");
        let _listener = bound.listen().unwrap();
        std::net::TcpStream::connect(address).unwrap();
    }

    #[test]
    fn only_one_of_two_bound_sockets_may_listen() {
        let first = bind(Host::Ipv4, 0).unwrap();
        let second = bind(Host::Ipv4, first.address().port()).unwrap();
        let _listener = first.listen().unwrap();
        assert!(matches!(second.listen(), Err(BindFault::InUse(_))));
    }
}
