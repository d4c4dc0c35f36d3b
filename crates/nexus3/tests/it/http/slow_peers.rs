//! CPU time that slow clients take from the daemon.

use testkit::TestDaemon;
use testkit::http::{LIST_AGENTS, RequestBuilder, SlowPeer, WellBehavedClient};

use crate::http::daemon;

#[test]
fn byte_of_a_long_head_costs_no_more_than_byte_of_a_body() {
    let daemon = daemon().config("[limits]\nhead_ms = 600000\nbody_ms = 600000\n").start();
    let filler = format!("A: {}", "v".repeat(8000));
    let long_head = (0..3)
        .fold(RequestBuilder::valid(&daemon), |request, _| request.header(&filler))
        .header("A: ")
        .head();
    let long_body = RequestBuilder::valid(&daemon).body(format!("{LIST_AGENTS:<32000}")).bytes();
    let mut client = WellBehavedClient::new(&daemon);
    let mut cost_of = |start: &[u8]| {
        let mut peers: Vec<_> = (0..40).map(|_| SlowPeer::new(&daemon, start)).collect();
        let before = daemon_ticks(&daemon);
        for _ in 0..400 {
            peers.iter_mut().for_each(SlowPeer::send_next_byte);
            client.call();
        }
        assert!(peers.iter().all(|peer| peer.sent == 400 && !peer.is_closed));
        daemon_ticks(&daemon) - before
    };
    let (body, head) = (cost_of(&long_body[..24_000]), cost_of(&long_head[..long_head.len() - 4]));
    assert!(head <= 3 * body + 20, "{head} hundredths of a second for heads, {body} for bodies");
}

/// CPU time of the daemon in clock ticks, each 1/100 s.
fn daemon_ticks(daemon: &TestDaemon) -> u64 {
    let path = format!("/proc/{}/stat", daemon.pid());
    let stat = std::fs::read_to_string(path).expect("a running process has a stat file");
    let (_, fields) = stat.rsplit_once(") ").expect("the process name is in parentheses");
    let fields: Vec<u64> = fields.split(' ').map(|field| field.parse().unwrap_or_default()).collect();
    fields[11] + fields[12]
}
