//! An idle daemon uses little memory.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use testkit::TestDaemon;

use crate::support::{BIN, WAIT_MAX};

#[test]
fn daemon_releases_file_memory_each_time_it_becomes_idle() {
    let daemon = TestDaemon::builder(BIN).start();
    for round in 0..2 {
        daemon.call_result("/", "create_agent", json!({ "agent_id": format!("a{round}") }));
        let active = daemon.file_memory_kb();
        let started = Instant::now();
        while daemon.file_memory_kb() > active * 2 / 3 {
            assert!(
                started.elapsed() < WAIT_MAX,
                "round {round}: still {} of {active} kB",
                daemon.file_memory_kb()
            );
            thread::park_timeout(Duration::from_millis(100));
        }
    }
    let listed = daemon.call_result("/", "list_agents", json!({}));
    assert_eq!(listed["agents"].as_array().map(Vec::len), Some(2), "{listed}");
}
