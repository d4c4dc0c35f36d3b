//! `nexus3 rpc` and `nexus3 ask`: results on stdout, everything else on stderr, exit codes that scripts can rely on.

mod ask;
mod commands;
mod refusals;
mod sends;

use serde_json::Value;
use testkit::{CommandOutput, TestDaemon, run};

use crate::support::BIN;

/// Runs `nexus3 rpc …` against a daemon.
fn rpc(daemon: &TestDaemon, arguments: &[&str]) -> CommandOutput {
    let port = daemon.port().to_string();
    run(BIN, &[&["rpc", "-p", &port], arguments].concat(), &[], daemon.home())
}

/// Runs a command that must succeed and returns its JSON output.
fn rpc_json(daemon: &TestDaemon, arguments: &[&str]) -> Value {
    let finished = rpc(daemon, arguments);
    assert_eq!((finished.code, finished.stderr.as_str()), (0, ""), "{arguments:?}");
    json_of(&finished)
}

fn json_of(finished: &CommandOutput) -> Value {
    assert!(finished.stdout.ends_with('\n'), "{finished:?}");
    serde_json::from_str(&finished.stdout).unwrap_or_else(|fault| panic!("{fault}: {finished:?}"))
}
