//! Commands that are not confined: the access of the user, and the same supervision as for the others.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use sandbox::{CommandExit, OutputStream, Tier};

use crate::fixture::Fixture;

#[tokio::test]
async fn unconfined_command_has_the_access_of_the_user() {
    let fixture = Fixture::new(Tier::Unconfined);
    let outside = fixture.outside.display();
    let finished = fixture.run_shell(&format!("cat {outside}/secret; echo written > {outside}/made")).await;
    assert_eq!((finished.stdout.as_str(), &finished.exit), ("secret", &CommandExit::Exited(0)));
    assert_eq!(fs::read_to_string(fixture.outside.join("made")).unwrap(), "written\n");
}

#[tokio::test]
async fn unconfined_command_dies_with_its_descendants() {
    let fixture = Fixture::new(Tier::Unconfined);
    let line = "(trap '' TERM HUP; setsid flock away sleep 1000 >/dev/null 2>&1 &); until [ -e away ]; do :; done; \
                trap '' TERM; flock lock sh -c 'echo ready; sleep 1000'";
    let mut running = fixture.start(fixture.shell(line));
    assert_eq!(running.next_output().await, Some((OutputStream::Stdout, b"ready\n".to_vec())));
    drop(running);
    // Blocks until the processes that hold the locks are dead.
    for name in ["lock", "away"] {
        let file = fs::File::open(fixture.inside.join(name)).unwrap();
        tokio::task::spawn_blocking(move || file.lock().unwrap()).await.unwrap();
    }
}

#[tokio::test]
async fn unconfined_command_cannot_signal_its_supervisor() {
    let fixture = Fixture::new(Tier::Unconfined);
    let finished = fixture.run_shell("kill -9 $PPID; kill -9 -1; echo alive").await;
    assert_eq!((finished.stdout.as_str(), &finished.exit), ("alive\n", &CommandExit::Exited(0)));
}

#[tokio::test]
async fn threat_92_name_of_an_unconfined_command_is_not_planted() {
    let fixture = Fixture::new(Tier::Unconfined);
    let planted = fixture.inside.join("planted");
    fs::write(&planted, "#!/bin/sh\necho planted\n").unwrap();
    fs::set_permissions(&planted, fs::Permissions::from_mode(0o755)).unwrap();
    let mut launch = fixture.shell("true");
    launch.program = "planted".to_owned();
    let path = format!("{}:/usr/bin:/bin", fixture.inside.display());
    launch.environment.retain(|(name, _)| name != "PATH");
    launch.environment.push(("PATH".to_owned(), path));
    let fault = fixture.launcher.start(launch).map(drop).expect_err("not found");
    assert!(fault.to_string().contains("planted"), "{fault}");
}
