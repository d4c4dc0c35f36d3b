//! A daemon that nobody calls takes little memory.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use testkit::TestDaemon;

use crate::support::{BIN, WAIT_MAX};

#[test]
fn it_lets_go_of_its_program_each_time_it_comes_to_rest() {
    let daemon = TestDaemon::builder(BIN).start();
    for round in 0..2 {
        daemon.call_result("/", "create_agent", json!({ "agent_id": format!("a{round}") }));
        let at_work = daemon.file_memory_kb();
        let started = Instant::now();
        while daemon.file_memory_kb() > at_work * 2 / 3 {
            assert!(
                started.elapsed() < WAIT_MAX,
                "round {round}: still {} of {at_work} kB",
                daemon.file_memory_kb()
            );
            thread::park_timeout(Duration::from_millis(100));
        }
    }
    let listed = daemon.call_result("/", "list_agents", json!({}));
    assert_eq!(listed["agents"].as_array().map(Vec::len), Some(2), "{listed}");
}
