//! What hostile clients cost the daemon's process: memory, CPU time, file descriptors, and secrets in its logs. The tests
//! of the HTTP door itself are in `crates/server/tests`.

use testkit::{TestDaemon, TestDaemonBuilder};

use crate::support::BIN;

mod descriptor_exhaustion;
mod framing;
mod many_connections;
mod secrets;
mod slow_peers;

fn daemon() -> TestDaemonBuilder {
    TestDaemon::builder(BIN)
}
