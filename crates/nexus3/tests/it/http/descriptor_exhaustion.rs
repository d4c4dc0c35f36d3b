//! A daemon that has run out of file descriptors serves whom it has, and the others when there are some again.

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use testkit::TestDaemon;

use crate::http::kernel_sockets::held_connections;
use crate::http::request_builder::RequestBuilder;
use crate::http::support::{WellBehavedClient, assert_result, daemon};

fn limit_descriptors(daemon: &TestDaemon) {
    let pid = i32::try_from(daemon.pid()).ok().and_then(Pid::from_raw);
    let limit = Rlimit { current: Some(64), maximum: Some(64) };
    prlimit(pid, Resource::Nofile, limit).expect("a child's limits can be lowered");
}

#[test]
fn a_daemon_without_descriptors_serves_on_and_recovers() {
    let daemon = daemon().config("[limits]\nfirst_byte_ms = 600000\n").start();
    let mut honest = WellBehavedClient::new(&daemon);
    honest.call();
    limit_descriptors(&daemon);
    let mut most = None;
    for _ in 0..3 {
        let mut crowd: Vec<_> = (0..100).map(|_| daemon.connection()).collect();
        daemon.wait_stderr("cannot accept connections");
        let most = *most.get_or_insert_with(|| held_connections(daemon.port()));
        assert!(most > 10 && most < 64, "{most} are held");
        honest.call_until("as many as can be are taken", || held_connections(daemon.port()) == most);
        honest.call();
        // Those that wait in the kernel are taken as others leave, and find an answer.
        let last = crowd.split_off(99);
        drop(crowd);
        for mut connection in last {
            connection.send(&RequestBuilder::valid(&daemon).bytes());
            assert_result("one that waited", &connection.read_response());
        }
        honest.call_until("all are given back", || held_connections(daemon.port()) == 1);
    }
    assert_result("as before", &daemon.send_raw(&RequestBuilder::valid(&daemon).bytes()));
}
