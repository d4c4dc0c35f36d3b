//! Restarting daemons on the same home, with fake daemons.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;

use testkit::{ScriptedModel, TestDaemon, TestDaemonBuilder};

const FAKE_DAEMON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fake-daemon.sh");

fn fake_daemon(model: &ScriptedModel) -> TestDaemonBuilder {
    TestDaemon::builder(FAKE_DAEMON).env("FAKE_DAEMON_PORT", model.port().to_string())
}

#[test]
fn killed_daemon_restarts_on_the_same_home() {
    let model = ScriptedModel::start();
    let daemon = fake_daemon(&model).env("ONCE", "1").arg("--first").start();
    daemon.wait_stderr("env: ");
    assert!(daemon.stderr().contains(" ONCE "), "{}", daemon.stderr());
    let home = daemon.home().to_owned();
    fs::write(home.join("file"), "x").expect("a home");
    let stopped = daemon.kill();
    assert_eq!((stopped.status.signal(), stopped.port), (Some(9), model.port()));
    assert!(stopped.stdout.starts_with("Welcome\n") && stopped.stderr.contains("args: serve"));
    let daemon = stopped.start_with(|builder| builder.without_env("ONCE").arg("--second"));
    daemon.wait_stderr("env: ");
    assert!(daemon.stderr().contains("--first --second\n"), "{}", daemon.stderr());
    assert!(!daemon.stderr().contains(" ONCE "), "{}", daemon.stderr());
    assert_eq!(daemon.home(), home);
    assert!(home.join("file").exists());
    let stopped = daemon.stop();
    assert_eq!(stopped.status.code(), Some(7));
    assert!(home.exists());
    drop(stopped);
    assert!(!home.exists(), "the last handle removes the directory");
}

#[test]
fn daemon_can_be_killed_before_it_is_ready() {
    let model = ScriptedModel::start();
    let stopped = fake_daemon(&model).spawn().kill();
    assert_eq!((stopped.status.signal(), stopped.port), (Some(9), 0));
    let home = stopped.home().to_owned();
    let daemon = stopped.spawn_with(|builder| builder).wait_ready().expect("a daemon");
    assert_eq!((daemon.home(), daemon.port()), (home.as_path(), model.port()));
}

#[test]
fn stopped_daemon_runs_another_command() {
    let stopped = TestDaemon::builder("/bin/echo").spawn().wait_stopped();
    assert!(stopped.status.success());
    let finished = stopped.run(&["check", "--deep"]);
    assert_eq!((finished.code, finished.stdout.as_str()), (0, "check --deep\n"));
    let failed = stopped.try_start_with(|builder| builder.arg("again")).expect_err("echo ends");
    assert!(failed.stdout.ends_with(" again\n"), "{}", failed.stdout);
}
