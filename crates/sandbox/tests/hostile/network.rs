//! Attempts to reach the network, sockets and shared objects of other processes.

use rustix::net::SocketAddrAny;

use crate::Attempt;
use crate::sys::{Outcome, address, call, path, value};

const STREAM: i32 = libc::SOCK_STREAM;
const DATAGRAM: i32 = libc::SOCK_DGRAM;

pub(crate) const ATTEMPTS: &[Attempt] = &[
    ("36a", "connect over TCP", |t| connect(socket(libc::AF_INET, STREAM, 0)?, &v4(t.tcp_port))),
    ("36b", "connect over TCP and IPv6", |t| {
        connect(socket(libc::AF_INET6, STREAM, 0)?, &mapped(t.tcp_port))
    }),
    ("37", "listen on a TCP port", |_| bind(socket(libc::AF_INET, STREAM, 0)?, &v4(0))),
    ("38", "connect by TCP Fast Open", |t| {
        let flags = libc::MSG_FASTOPEN;
        send(socket(libc::AF_INET, STREAM, 0)?, flags, &v4(t.tcp_port))
    }),
    ("39a", "connect over MPTCP", |t| connect(socket(libc::AF_INET, STREAM, 262)?, &v4(t.tcp_port))),
    ("39b", "open an SCTP socket", |_| socket(libc::AF_INET, STREAM, 132).map(drop)),
    ("40", "send over UDP", |t| send(socket(libc::AF_INET, DATAGRAM, 0)?, 0, &v4(t.udp_port))),
    ("41a", "open a raw socket", |_| socket(libc::AF_INET, libc::SOCK_RAW, 1).map(drop)),
    ("41b", "open a packet socket", |_| socket(libc::AF_PACKET, libc::SOCK_RAW, 0).map(drop)),
    ("42a", "open a netlink socket", |_| socket(libc::AF_NETLINK, libc::SOCK_RAW, 0).map(drop)),
    ("42b", "open a VM socket", |_| socket(libc::AF_VSOCK, STREAM, 0).map(drop)),
    ("42c", "open a crypto socket", |_| socket(libc::AF_ALG, libc::SOCK_SEQPACKET, 0).map(drop)),
    ("42d", "open a Bluetooth socket", |_| socket(libc::AF_BLUETOOTH, libc::SOCK_RAW, 1).map(drop)),
    ("42e", "open a CAN socket", |_| socket(libc::AF_CAN, libc::SOCK_RAW, 1).map(drop)),
    ("43a", "connect to a Unix socket", |t| {
        connect(socket(libc::AF_UNIX, STREAM, 0)?, &unix(&t.outside("stream")))
    }),
    ("43b", "send to a Unix socket", |t| {
        send(socket(libc::AF_UNIX, DATAGRAM, 0)?, 0, &unix(&t.outside("datagram")))
    }),
    ("43c", "send to a Unix socket from a pair", |t| {
        send(pair(libc::AF_UNIX, DATAGRAM)?, 0, &unix(&t.outside("datagram")))
    }),
    ("43d", "connect a datagram pair to a Unix socket", |t| {
        connect(pair(libc::AF_UNIX, DATAGRAM)?, &unix(&t.outside("datagram")))
    }),
    ("43e", "send to a Unix socket from a raw pair", |t| {
        send(pair(libc::AF_UNIX, libc::SOCK_RAW)?, 0, &unix(&t.outside("datagram")))
    }),
    ("43f", "connect a stream pair to a Unix socket", |t| {
        connect(pair(libc::AF_UNIX, STREAM)?, &unix(&t.outside("stream")))
    }),
    ("44a", "connect to an abstract socket", |t| {
        connect(socket(libc::AF_UNIX, STREAM, 0)?, &unnamed(&t.abstract_name))
    }),
    ("44b", "send to an abstract socket from a pair", |t| {
        send(pair(libc::AF_UNIX, DATAGRAM)?, 0, &unnamed(&format!("{}-datagram", t.abstract_name)))
    }),
    ("45a", "open a pair of stream sockets", |_| pair(libc::AF_UNIX, STREAM | libc::SOCK_CLOEXEC).map(drop)),
    ("45b", "open a pair of packet sockets", |_| pair(libc::AF_UNIX, libc::SOCK_SEQPACKET).map(drop)),
    ("45c", "open a pair of TIPC sockets", |_| pair(libc::AF_TIPC, libc::SOCK_RDM).map(drop)),
    ("46", "receive from an inherited socket", |_| {
        let mut byte = 0_u8;
        let flags = libc::MSG_DONTWAIT as usize;
        call(libc::SYS_recvfrom, [102, (&raw mut byte) as usize, 1, flags, 0, 0])
    }),
    ("47a", "get shared memory", |_| {
        let id = value(libc::SYS_shmget, [libc::IPC_PRIVATE as usize, 4096, 0o600, 0, 0, 0])?;
        call(libc::SYS_shmctl, [id, libc::IPC_RMID as usize, 0, 0, 0, 0])
    }),
    ("47b", "attach shared memory by its id", |_| call(libc::SYS_shmat, [usize::MAX, 0, 0, 0, 0, 0])),
    ("47c", "read a message queue by its id", |_| call(libc::SYS_msgrcv, [usize::MAX, 1, 1, 0, 0, 0])),
    ("47d", "send to a message queue by its id", |_| {
        let message = [1_u8; 16];
        call(libc::SYS_msgsnd, [usize::MAX, message.as_ptr() as usize, 1, 0, 0, 0])
    }),
    ("47e", "change a semaphore by its id", |_| {
        let operation = [0_u16; 3];
        call(libc::SYS_semop, [usize::MAX, operation.as_ptr() as usize, 1, 0, 0, 0])
    }),
    ("47f", "change a semaphore by its id, with a time limit", |_| {
        let operation = [0_u16; 3];
        call(libc::SYS_semtimedop, [usize::MAX, operation.as_ptr() as usize, 1, 0, 0, 0])
    }),
    ("47g", "open a POSIX message queue", |t| {
        let name = path(&t.abstract_name);
        let flags = (libc::O_CREAT | libc::O_RDWR) as usize;
        let opened = call(libc::SYS_mq_open, [address(&name), flags, 0o600, 0, 0, 0]);
        let _ = call(libc::SYS_mq_unlink, [address(&name), 0, 0, 0, 0, 0]);
        opened
    }),
    ("47h", "remove a POSIX message queue", |_| {
        let name = path("absent");
        call(libc::SYS_mq_unlink, [address(&name), 0, 0, 0, 0, 0])
    }),
];

fn socket(family: i32, kind: i32, protocol: usize) -> Result<usize, i32> {
    value(libc::SYS_socket, [family as usize, kind as usize, protocol, 0, 0, 0])
}

fn pair(family: i32, kind: i32) -> Result<usize, i32> {
    let mut sockets = [0_i32; 2];
    let address = sockets.as_mut_ptr() as usize;
    call(libc::SYS_socketpair, [family as usize, kind as usize, 0, address, 0, 0])?;
    Ok(sockets[0] as usize)
}

/// The bytes of a socket address.
type Address = Vec<u8>;

fn bytes(address: impl Into<SocketAddrAny>) -> Address {
    let address: SocketAddrAny = address.into();
    // SAFETY: the address is valid for its length.
    unsafe { std::slice::from_raw_parts(address.as_ptr().cast::<u8>(), address.addr_len() as usize).to_vec() }
}

fn v4(port: u16) -> Address {
    bytes(std::net::SocketAddr::from(([127, 0, 0, 1], port)))
}

/// The IPv4 address as an IPv6 address.
fn mapped(port: u16) -> Address {
    bytes(std::net::SocketAddr::from((std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped(), port)))
}

fn unix(path: &str) -> Address {
    bytes(rustix::net::SocketAddrUnix::new(path).unwrap())
}

fn unnamed(name: &str) -> Address {
    bytes(rustix::net::SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap())
}

fn connect(socket: usize, to: &Address) -> Outcome {
    call(libc::SYS_connect, [socket, to.as_ptr() as usize, to.len(), 0, 0, 0])
}

fn bind(socket: usize, to: &Address) -> Outcome {
    call(libc::SYS_bind, [socket, to.as_ptr() as usize, to.len(), 0, 0, 0])
}

fn send(socket: usize, flags: i32, to: &Address) -> Outcome {
    let byte = 1_u8;
    let byte = (&raw const byte) as usize;
    call(libc::SYS_sendto, [socket, byte, 1, flags as usize, to.as_ptr() as usize, to.len()])
}
