//! Logs: one directory per agent, no mixing between agents, private file modes, rotation, no secrets.

mod audit;
mod files;
mod streams;

use testkit::TestDaemon;

/// Stops the daemon, which flushes its logs.
fn stop(daemon: &TestDaemon) {
    daemon.signal("SIGTERM");
    assert_eq!(daemon.wait_exit().code(), Some(0), "{}", daemon.stderr());
}
