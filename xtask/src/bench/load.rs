//! Load for a server: one request under way on each of several kept connections, from one thread.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::http::{Arrived, Connection, Inbox, SILENCE_MAX, bad};
use super::numbers::Times;

/// What a server did in one round.
pub(crate) struct Round {
    pub(crate) times: Times,
    pub(crate) took: Duration,
}

impl Round {
    pub(crate) fn calls_per_second(&self) -> f64 {
        self.calls() / self.took.as_secs_f64()
    }

    pub(crate) fn calls(&self) -> f64 {
        // Exact up to nine quadrillion calls.
        self.times.len() as f64
    }
}

/// Kept connections to one server.
pub(crate) struct Herd {
    connections: Vec<Connection>,
}

/// One connection of a round: what has arrived, and since when it is waited for.
struct Lane<'a> {
    stream: &'a TcpStream,
    request: &'a [u8],
    inbox: &'a mut Inbox,
    since: Instant,
}

impl Herd {
    pub(crate) fn open(address: SocketAddr, count: usize) -> io::Result<Self> {
        let connections = (0..count).map(|_| Connection::open(address)).collect::<io::Result<_>>()?;
        Ok(Self { connections })
    }

    /// Sends `request` again and again for `time` and waits for the last answers.
    pub(crate) fn drive(&mut self, request: &[u8], time: Duration) -> io::Result<Round> {
        match &mut self.connections[..] {
            // Without a poll before each read: the answer is waited for in the read itself.
            [only] => drive_one(only, request, time),
            several => drive_several(several, &[request], time),
        }
    }

    /// The same with a request of its own for each connection.
    pub(crate) fn drive_each(&mut self, requests: &[Vec<u8>], time: Duration) -> io::Result<Round> {
        let requests: Vec<&[u8]> = requests.iter().map(Vec::as_slice).collect();
        drive_several(&mut self.connections, &requests, time)
    }
}

fn drive_one(connection: &mut Connection, request: &[u8], time: Duration) -> io::Result<Round> {
    let mut times = Times::default();
    let start = Instant::now();
    let mut since = start;
    while since - start < time {
        connection.call(request)?;
        let now = Instant::now();
        times.push(now - since);
        since = now;
    }
    Ok(Round { times, took: since - start })
}

/// The requests go round: one of them is sent on all connections.
fn drive_several(connections: &mut [Connection], requests: &[&[u8]], time: Duration) -> io::Result<Round> {
    let start = Instant::now();
    let each = |place: usize| requests[place % requests.len()];
    for (place, connection) in connections.iter_mut().enumerate() {
        connection.send(each(place))?;
    }
    let mut polled = Vec::with_capacity(connections.len());
    let mut lanes = Vec::with_capacity(connections.len());
    for (place, Connection { stream, inbox }) in connections.iter_mut().enumerate() {
        let stream: &TcpStream = stream;
        polled.push(PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN));
        lanes.push(Lane { stream, request: each(place), inbox, since: start });
    }
    let mut times = Times::default();
    let mut under_way = lanes.len();
    let patience = Timespec::try_from(SILENCE_MAX).map_err(|_| bad("a wait that is too long"))?;
    while under_way > 0 {
        if poll(&mut polled, Some(&patience))? == 0 {
            return Err(bad("the server does not answer"));
        }
        for (lane, polled) in lanes.iter_mut().zip(&polled) {
            if polled.revents().is_empty() || lane.inbox.read_from(lane.stream)? == Arrived::Part {
                continue;
            }
            lane.inbox.take()?;
            let now = Instant::now();
            times.push(now - lane.since);
            if now - start < time {
                lane.since = now;
                io::Write::write_all(&mut lane.stream, lane.request)?;
            } else {
                under_way -= 1;
            }
        }
    }
    Ok(Round { times, took: start.elapsed() })
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
            let mut herd = Herd::open(server(connections), connections).unwrap();
            for _ in 0..2 {
                let round = herd.drive(b"x", Duration::from_millis(20)).unwrap();
                assert!(round.times.len() >= connections);
                assert!(round.took >= Duration::from_millis(20));
                assert!(round.calls_per_second() > 0.0);
            }
        }
    }
}
