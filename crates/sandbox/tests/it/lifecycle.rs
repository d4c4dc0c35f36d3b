//! The end of commands: nothing that a command has started outlives it, its handle or the daemon.

use sandbox::{CommandExit, OutputStream};

use crate::fixture::{Fixture, TIERS, finish, is_alive};

/// A process that leaves its session, ignores signals and closes its output.
const DAEMONIZED: &str =
    "(trap '' TERM HUP INT; setsid sh -c 'trap \"\" TERM HUP INT; sleep 1000' >/dev/null 2>&1 &)";

#[tokio::test]
async fn exit_does_not_wait_for_background_processes_and_kills_them() {
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
async fn dropped_command_dies_with_its_descendants() {
    for tier in TIERS {
        let fixture = Fixture::new(tier);
        let line = format!("{DAEMONIZED}; flock lock sh -c 'echo ready; sleep 1000'");
        let mut running = fixture.start(fixture.shell(&line));
        assert_eq!(running.next_output().await, Some((OutputStream::Stdout, b"ready\n".to_vec())));
        drop(running);
        // Blocks until the process that holds the lock is dead.
        let file = std::fs::File::open(fixture.inside.join("lock")).unwrap();
        tokio::task::spawn_blocking(move || file.lock().unwrap()).await.unwrap();
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
async fn command_cannot_signal_its_supervisor() {
    for tier in TIERS {
        let fixture = Fixture::new(tier);
        let finished = fixture.run_shell("kill -KILL $PPID; echo alive").await;
        assert_eq!(finished.stdout, "alive\n", "{finished:?}");
        assert!(is_alive(&std::process::id().to_string()));
    }
}
