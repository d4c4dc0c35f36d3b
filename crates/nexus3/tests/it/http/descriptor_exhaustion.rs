//! A daemon without free file descriptors keeps serving its open connections, and accepts new ones once descriptors
//! are free again.

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use testkit::TestDaemon;
use testkit::http::{RequestBuilder, WellBehavedClient, assert_result, held_connections};

use crate::http::daemon;

fn limit_descriptors(daemon: &TestDaemon) {
    let pid = i32::try_from(daemon.pid()).ok().and_then(Pid::from_raw);
    let limit = Rlimit { current: Some(64), maximum: Some(64) };
    prlimit(pid, Resource::Nofile, limit).expect("the limits of a child process can be lowered");
}

#[test]
fn daemon_without_descriptors_keeps_serving_and_recovers() {
    let daemon = daemon().config("[limits]\nfirst_byte_ms = 600000\n").start();
    let mut client = WellBehavedClient::new(&daemon);
    client.call();
    limit_descriptors(&daemon);
    let mut held_max = None;
    for _ in 0..3 {
        let mut connections: Vec<_> = (0..100).map(|_| daemon.connection()).collect();
        daemon.wait_stderr("cannot accept connections");
        let held_max = *held_max.get_or_insert_with(|| held_connections(daemon.port()));
        assert!(held_max > 10 && held_max < 64, "{held_max} connections are held");
        client.call_until("the limit is reached", || held_connections(daemon.port()) == held_max);
        client.call();
        // Connections in the kernel's backlog are accepted as others close, and get a response.
        let last = connections.split_off(99);
        drop(connections);
        for mut connection in last {
            connection.send(&RequestBuilder::valid(&daemon).bytes());
            assert_result("connection from the backlog", &connection.read_response());
        }
        client.call_until("all connections are released", || held_connections(daemon.port()) == 1);
    }
    assert_result("after recovery", &daemon.send_raw(&RequestBuilder::valid(&daemon).bytes()));
}
