//! Load generator: one request in flight on each of several persistent connections, from one thread.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::http::{Connection, READ_TIMEOUT, ReadState, ResponseBuffer, invalid_data};
use super::statistics::Latencies;

/// The latencies of one round, and its duration.
pub(crate) struct Round {
    pub(crate) times: Latencies,
    pub(crate) elapsed: Duration,
}

impl Round {
    pub(crate) fn calls_per_second(&self) -> f64 {
        self.calls() / self.elapsed.as_secs_f64()
    }

    pub(crate) fn calls(&self) -> f64 {
        // Exact up to 2^53 calls.
        self.times.len() as f64
    }
}

/// Persistent connections to one server.
pub(crate) struct ConnectionPool {
    connections: Vec<Connection>,
}

/// A connection with a request in flight.
struct InFlightRequest<'a> {
    stream: &'a TcpStream,
    request: &'a [u8],
    buffer: &'a mut ResponseBuffer,
    sent_at: Instant,
}

impl ConnectionPool {
    pub(crate) fn open(address: SocketAddr, count: usize) -> io::Result<Self> {
        let connections = (0..count).map(|_| Connection::open(address)).collect::<io::Result<_>>()?;
        Ok(Self { connections })
    }

    /// Sends `request` repeatedly for `time`, then waits for the outstanding responses.
    pub(crate) fn run(&mut self, request: &[u8], time: Duration) -> io::Result<Round> {
        match &mut self.connections[..] {
            // A single connection needs no `poll`: the read blocks.
            [only] => run_one(only, request, time),
            several => run_several(several, &[request], time),
        }
    }

    /// Like `run`, with a separate request for each connection.
    pub(crate) fn run_each(&mut self, requests: &[Vec<u8>], time: Duration) -> io::Result<Round> {
        let requests: Vec<&[u8]> = requests.iter().map(Vec::as_slice).collect();
        run_several(&mut self.connections, &requests, time)
    }
}

fn run_one(connection: &mut Connection, request: &[u8], time: Duration) -> io::Result<Round> {
    let mut times = Latencies::default();
    let start = Instant::now();
    let mut sent_at = start;
    while sent_at - start < time {
        connection.call(request)?;
        let now = Instant::now();
        times.push(now - sent_at);
        sent_at = now;
    }
    Ok(Round { times, elapsed: sent_at - start })
}

/// Assigns the requests to the connections in turn; a single request goes to all of them.
fn run_several(connections: &mut [Connection], requests: &[&[u8]], time: Duration) -> io::Result<Round> {
    let start = Instant::now();
    let request_for = |index: usize| requests[index % requests.len()];
    for (index, connection) in connections.iter_mut().enumerate() {
        connection.send(request_for(index))?;
    }
    let mut polled = Vec::with_capacity(connections.len());
    let mut in_flight = Vec::with_capacity(connections.len());
    for (index, Connection { stream, buffer }) in connections.iter_mut().enumerate() {
        let stream: &TcpStream = stream;
        polled.push(PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN));
        in_flight.push(InFlightRequest { stream, request: request_for(index), buffer, sent_at: start });
    }
    let mut times = Latencies::default();
    let mut outstanding = in_flight.len();
    let timeout = Timespec::try_from(READ_TIMEOUT).map_err(|_| invalid_data("the timeout is too long"))?;
    while outstanding > 0 {
        if poll(&mut polled, Some(&timeout))? == 0 {
            return Err(invalid_data("the server does not respond"));
        }
        for (call, polled) in in_flight.iter_mut().zip(&polled) {
            if polled.revents().is_empty() || call.buffer.read_from(call.stream)? == ReadState::Partial {
                continue;
            }
            call.buffer.take_response()?;
            let now = Instant::now();
            times.push(now - call.sent_at);
            if now - start < time {
                call.sent_at = now;
                io::Write::write_all(&mut call.stream, call.request)?;
            } else {
                outstanding -= 1;
            }
        }
    }
    Ok(Round { times, elapsed: start.elapsed() })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Sends one response per read: the requests are short enough to arrive in one read.
    fn server(connections: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        for _ in 0..connections {
            let listener = listener.try_clone().unwrap();
            thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut bytes = [0; 1024];
                while stream.read(&mut bytes).is_ok_and(|count| count > 0) {
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
                }
            });
        }
        address
    }

    #[test]
    fn every_request_of_a_round_gets_a_timed_response() {
        for connections in [1, 3] {
            let mut pool = ConnectionPool::open(server(connections), connections).unwrap();
            for _ in 0..2 {
                let round = pool.run(b"x", Duration::from_millis(20)).unwrap();
                assert!(round.times.len() >= connections);
                assert!(round.elapsed >= Duration::from_millis(20));
                assert!(round.calls_per_second() > 0.0);
            }
        }
    }
}
