//! Logs: one directory per agent, never mixed, private, bounded, and without any secret.

mod audit;
mod files;
mod streams;

use testkit::TestDaemon;

/// Ends the daemon, so that everything it logged is written.
fn stop(daemon: &TestDaemon) {
    daemon.signal("SIGTERM");
    assert_eq!(daemon.wait_exit().code(), Some(0), "{}", daemon.stderr());
}
