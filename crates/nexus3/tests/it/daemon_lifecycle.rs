//! The daemon's lifecycle: start, competing daemons and programs, files on disk, and stop.

mod homes;
mod hosts;
mod ports;
mod stop_grace;
mod stops;
mod tokens;

use std::path::PathBuf;

use testkit::TestDaemon;

/// The path of the daemon's token file.
fn token_path(daemon: &TestDaemon) -> PathBuf {
    daemon.home().join(format!("rpc-{}.token", daemon.port()))
}

/// Checks a clean stop: exit code 0, no token file, a free port.
fn assert_stopped(daemon: &TestDaemon) {
    assert_eq!(daemon.wait_exit().code(), Some(0), "{}", daemon.stderr());
    assert!(!token_path(daemon).exists());
    assert!(daemon.stderr().contains("stopped"), "{}", daemon.stderr());
    assert!(std::net::TcpListener::bind(("127.0.0.1", daemon.port())).is_ok(), "the port is free");
}
