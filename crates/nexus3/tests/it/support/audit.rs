//! Denials in the audit log, which is complete when the daemon has exited.

use std::fs;

use serde_json::Value;
use testkit::TestDaemon;

use super::log_file;

/// Stops the daemon and returns the denials of its audit log, oldest first.
pub(crate) fn denials(daemon: &TestDaemon) -> Vec<Value> {
    daemon.signal("SIGTERM");
    assert_eq!(daemon.wait_exit().code(), Some(0), "{}", daemon.stderr());
    let trail = fs::read_to_string(log_file(daemon, "_daemon", "audit.jsonl")).unwrap_or_default();
    let line = |line: &str| serde_json::from_str(line).unwrap_or_else(|fault| panic!("{fault}: {line}"));
    let lines = trail.lines().map(line).collect::<Vec<Value>>();
    lines.into_iter().filter(|line| line["event"] == "denied").collect()
}

/// Checks that the audit log has exactly these denials in this order: principal, action, rule, text.
pub(crate) fn assert_denials(daemon: &TestDaemon, expected: &[[&str; 4]]) {
    let found: Vec<[String; 4]> = denials(daemon)
        .iter()
        .map(|line| {
            ["principal", "action", "rule", "text"].map(|name| line[name].as_str().unwrap_or("-").to_owned())
        })
        .collect();
    let expected: Vec<[String; 4]> = expected.iter().map(|line| line.map(str::to_owned)).collect();
    assert_eq!(found, expected);
}
