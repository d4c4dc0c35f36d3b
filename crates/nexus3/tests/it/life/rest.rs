//! A daemon that nobody calls takes little memory.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use testkit::TestDaemon;

use crate::support::{BIN, PATIENCE};

/// How much of files, its own program above all, is in the process's memory.
fn file_kb(daemon: &TestDaemon) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).unwrap();
    line.trim_end_matches("kB").trim().parse().unwrap()
}

#[test]
fn it_lets_go_of_its_program_each_time_it_comes_to_rest() {
    let daemon = TestDaemon::builder(BIN).start();
    for round in 0..2 {
        daemon.result("/", "create_agent", json!({ "agent_id": format!("a{round}") }));
        let at_work = file_kb(&daemon);
        let started = Instant::now();
        while file_kb(&daemon) > at_work * 2 / 3 {
            assert!(
                started.elapsed() < PATIENCE,
                "round {round}: still {} of {at_work} kB",
                file_kb(&daemon)
            );
            thread::park_timeout(Duration::from_millis(100));
        }
    }
    let listed = daemon.result("/", "list_agents", json!({}));
    assert_eq!(listed["agents"].as_array().map(Vec::len), Some(2), "{listed}");
}
