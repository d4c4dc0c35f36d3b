//! Load for a server: one request under way on each of several kept connections, from one thread.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::http::{Connection, READ_TIMEOUT, ReadState, ResponseBuffer, invalid_data};
use super::statistics::Latencies;

/// What a server did in one round.
pub(crate) struct Round {
    pub(crate) times: Latencies,
    pub(crate) elapsed: Duration,
}

impl Round {
    pub(crate) fn calls_per_second(&self) -> f64 {
        self.calls() / self.elapsed.as_secs_f64()
    }

    pub(crate) fn calls(&self) -> f64 {
        // Exact up to nine quadrillion calls.
        self.times.len() as f64
    }
}

/// Kept connections to one server.
pub(crate) struct ConnectionPool {
    connections: Vec<Connection>,
}

/// One connection of a round: what has arrived, and since when it is waited for.
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

    /// Sends `request` again and again for `time` and waits for the last answers.
    pub(crate) fn run(&mut self, request: &[u8], time: Duration) -> io::Result<Round> {
        match &mut self.connections[..] {
            // Without a poll before each read: the answer is waited for in the read itself.
            [only] => run_one(only, request, time),
            several => run_several(several, &[request], time),
        }
    }

    /// The same with a request of its own for each connection.
    pub(crate) fn run_each(&mut self, requests: &[Vec<u8>], time: Duration) -> io::Result<Round> {
        let requests: Vec<&[u8]> = requests.iter().map(Vec::as_slice).collect();
        run_several(&mut self.connections, &requests, time)
    }
}

fn run_one(connection: &mut Connection, request: &[u8], time: Duration) -> io::Result<Round> {
    let mut times = Latencies::default();
    let start = Instant::now();
    let mut since = start;
    while since - start < time {
        connection.call(request)?;
        let now = Instant::now();
        times.push(now - since);
        since = now;
    }
    Ok(Round { times, elapsed: since - start })
}

/// The requests go round: one of them is sent on all connections.
fn run_several(connections: &mut [Connection], requests: &[&[u8]], time: Duration) -> io::Result<Round> {
    let start = Instant::now();
    let each = |place: usize| requests[place % requests.len()];
    for (place, connection) in connections.iter_mut().enumerate() {
        connection.send(each(place))?;
    }
    let mut polled = Vec::with_capacity(connections.len());
    let mut lanes = Vec::with_capacity(connections.len());
    for (place, Connection { stream, buffer: inbox }) in connections.iter_mut().enumerate() {
        let stream: &TcpStream = stream;
        polled.push(PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN));
        lanes.push(InFlightRequest { stream, request: each(place), buffer: inbox, sent_at: start });
    }
    let mut times = Latencies::default();
    let mut under_way = lanes.len();
    let patience = Timespec::try_from(READ_TIMEOUT).map_err(|_| invalid_data("a wait that is too long"))?;
    while under_way > 0 {
        if poll(&mut polled, Some(&patience))? == 0 {
            return Err(invalid_data("the server does not answer"));
        }
        for (lane, polled) in lanes.iter_mut().zip(&polled) {
            if polled.revents().is_empty() || lane.buffer.read_from(lane.stream)? == ReadState::Partial {
                continue;
            }
            lane.buffer.take_response()?;
            let now = Instant::now();
            times.push(now - lane.sent_at);
            if now - start < time {
                lane.sent_at = now;
                io::Write::write_all(&mut lane.stream, lane.request)?;
            } else {
                under_way -= 1;
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

    /// Answers every read with one answer: requests are short enough to come whole.
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
    fn every_request_of_a_round_is_answered_and_timed() {
        for connections in [1, 3] {
            let mut herd = ConnectionPool::open(server(connections), connections).unwrap();
            for _ in 0..2 {
                let round = herd.run(b"x", Duration::from_millis(20)).unwrap();
                assert!(round.times.len() >= connections);
                assert!(round.elapsed >= Duration::from_millis(20));
                assert!(round.calls_per_second() > 0.0);
            }
        }
    }
}
