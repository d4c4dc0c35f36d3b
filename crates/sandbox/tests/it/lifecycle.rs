//! The end of commands: nothing that a command has started outlives it, its handle or the daemon.

use std::io::Read;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use sandbox::{CommandExit, Launch, OutputStream, Tier};

use crate::fixture::{Fixture, TIERS, finish, is_alive};
use crate::programs::{Programs, users};

/// A process that leaves its session, ignores signals and closes its output.
const DAEMONIZED: &str =
    "(trap '' TERM HUP INT; setsid sh -c 'trap \"\" TERM HUP INT; sleep 1000' >/dev/null 2>&1 &)";

/// Commands that are cancelled per tier.
const CANCELS: usize = 100;

#[tokio::test]
async fn threat_91_exit_does_not_wait_for_background_processes() {
    for tier in TIERS {
        let fixture = Fixture::new(tier);
        let lock = fixture.inside.join("lock");
        // The lock is held as long as the background process lives.
        let line = format!("flock lock sleep 1000 & {DAEMONIZED}; until [ -e lock ]; do :; done; echo done");
        let finished = fixture.run_shell(&line).await;
        assert_eq!((finished.stdout.as_str(), &finished.exit), ("done\n", &CommandExit::Exited(0)));
        let file = std::fs::File::open(&lock).unwrap();
        file.try_lock().expect("the background process is dead");
    }
}

#[tokio::test]
async fn threat_86_dropped_command_dies_with_its_descendants() {
    for tier in TIERS {
        let fixture = Fixture::new(tier);
        for number in 0..CANCELS {
            // One descendant has left the session, one ignores signals, one is stopped.
            let line = format!(
                "trap '' TERM; {DAEMONIZED}; flock stop-{number} sh -c 'kill -STOP $$' & \
                 until [ -e stop-{number} ]; do :; done; flock lock-{number} sh -c 'echo ready; sleep 1000'"
            );
            let mut running = fixture.start(fixture.shell(&line));
            assert_eq!(running.next_output().await, Some((OutputStream::Stdout, b"ready\n".to_vec())));
            drop(running);
        }
        // Blocks until the processes that hold the locks are dead.
        for number in 0..CANCELS {
            for name in ["lock", "stop"] {
                let file = std::fs::File::open(fixture.inside.join(format!("{name}-{number}"))).unwrap();
                tokio::task::spawn_blocking(move || file.lock().unwrap()).await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn terminated_command_may_clean_up() {
    for tier in TIERS {
        let fixture = Fixture::new(tier);
        let mut running = fixture
            .start(fixture.shell("trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.1; done"));
        assert_eq!(running.next_output().await, Some((OutputStream::Stdout, b"ready\n".to_vec())));
        running.terminate();
        let finished = finish(running).await;
        assert_eq!((finished.stdout.as_str(), finished.exit), ("bye\n", CommandExit::Exited(3)));
    }
}

#[tokio::test]
async fn threat_86_killed_command_ends_with_its_descendants() {
    for tier in TIERS {
        let fixture = Fixture::new(tier);
        let line = format!("trap '' TERM; {DAEMONIZED}; flock lock sh -c 'echo ready; sleep 1000'");
        let mut running = fixture.start(fixture.shell(&line));
        assert_eq!(running.next_output().await, Some((OutputStream::Stdout, b"ready\n".to_vec())));
        running.kill();
        assert_eq!(finish(running).await.exit, CommandExit::Killed(9));
        let file = std::fs::File::open(fixture.inside.join("lock")).unwrap();
        file.try_lock().expect("all processes are dead when the exit is known");
    }
}

#[tokio::test]
async fn command_reads_its_input_while_it_runs() {
    for tier in TIERS {
        let fixture = Fixture::new(tier);
        let launch = Launch { has_stdin: true, ..fixture.launch("cat", &[]) };
        let mut running = fixture.start(launch);
        let input = running.take_input().unwrap().unwrap();
        for text in ["one\n", "two\n"] {
            assert_eq!(input.write(text.as_bytes()).await.unwrap(), text.len());
            assert_eq!(running.next_output().await, Some((OutputStream::Stdout, text.into())));
        }
        drop(input);
        assert_eq!(finish(running).await.exit, CommandExit::Exited(0));
    }
}

#[tokio::test]
async fn command_cannot_signal_its_supervisor() {
    for tier in TIERS {
        let fixture = Fixture::new(tier);
        let finished = fixture.run_shell("kill -KILL $PPID; echo alive").await;
        assert_eq!(finished.stdout, "alive\n", "{finished:?}");
        assert!(is_alive(&std::process::id().to_string()));
    }
}

/// A launcher that runs a process in hiding, which holds a lock; returns when it does.
fn start_hidden(programs: &Programs, tier: Tier, mode: &str) -> Child {
    let mut launcher = programs.hostile(Some(tier), &[mode, "lock"]);
    let mut launcher = launcher.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    launcher.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    launcher
}

/// Blocks until all processes that hold the lock are dead.
fn await_deaths(programs: &Programs) {
    std::fs::File::open(programs.path("inside/lock")).unwrap().lock().unwrap();
}

#[test]
fn killed_daemon_leaves_no_process_behind() {
    for user in users() {
        for tier in TIERS {
            for mode in ["hide", "hop"] {
                let programs = Programs::new(user);
                let mut launcher = start_hidden(&programs, tier, mode);
                let lock = std::fs::File::open(programs.path("inside/lock")).unwrap();
                assert!(lock.try_lock().is_err(), "the process in hiding lives");
                launcher.kill().unwrap();
                await_deaths(&programs);
                launcher.wait().unwrap();
            }
        }
    }
}

/// The only child of a process with one thread.
fn child_of(process: u32) -> u32 {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
    children.trim().parse().unwrap()
}

#[test]
fn killed_supervisor_leaves_no_process_behind() {
    for user in users() {
        for tier in TIERS {
            let programs = Programs::new(user);
            let launcher = start_hidden(&programs, tier, "hide");
            let supervisor = child_of(child_of(launcher.id()));
            kill_process(Pid::from_raw(supervisor.cast_signed()).unwrap(), Signal::KILL).unwrap();
            let output = launcher.wait_with_output().unwrap();
            assert_eq!(String::from_utf8(output.stderr).unwrap(), "exit: HelperLost\n");
            await_deaths(&programs);
        }
    }
}

#[test]
fn killed_watcher_of_the_supervisor_does_not_free_the_command() {
    for user in users() {
        for tier in TIERS {
            let programs = Programs::new(user);
            let mut launcher = start_hidden(&programs, tier, "hide");
            let watcher = child_of(launcher.id());
            kill_process(Pid::from_raw(watcher.cast_signed()).unwrap(), Signal::KILL).unwrap();
            launcher.kill().unwrap();
            await_deaths(&programs);
            launcher.wait().unwrap();
        }
    }
}

#[tokio::test]
async fn command_that_kills_all_processes_kills_its_own_only() {
    for tier in TIERS {
        let fixture = Fixture::new(tier);
        let finished = fixture.run_shell("sleep 1000 & kill -KILL -1; wait $!; echo $?").await;
        assert_eq!((finished.stdout.as_str(), finished.exit), ("137\n", CommandExit::Exited(0)));
    }
}
