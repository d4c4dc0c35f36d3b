//! The daemon's life: how it starts, who it lets beside it, what it leaves on the disk, and how it ends.

mod homes;
mod hosts;
mod idle_memory;
mod ports;
mod stop_grace;
mod stops;
mod tokens;

use std::path::PathBuf;

use testkit::TestDaemon;

/// Where a daemon on this port leaves its token.
fn token_path(daemon: &TestDaemon) -> PathBuf {
    daemon.home().join(format!("rpc-{}.token", daemon.port()))
}

/// It stopped in order: code 0, the token gone, the port free.
fn assert_stopped(daemon: &TestDaemon) {
    assert_eq!(daemon.wait_exit().code(), Some(0), "{}", daemon.stderr());
    assert!(!token_path(daemon).exists());
    assert!(daemon.stderr().contains("stopped"), "{}", daemon.stderr());
    assert!(std::net::TcpListener::bind(("127.0.0.1", daemon.port())).is_ok(), "the port is free");
}
