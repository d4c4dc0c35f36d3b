//! Built-ins: functions of the helper that read their directories and can do nothing else.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use sandbox::{BuiltInLaunch, CommandExit, GrantedDirectory, ResourceLimits};

use crate::fixture::{Finished, Fixture, TIERS, finish};

fn launch(fixture: &Fixture, name: &str) -> BuiltInLaunch {
    let handle = Arc::new(File::open(&fixture.inside).unwrap().into());
    let path = fixture.inside.to_str().unwrap().to_owned();
    BuiltInLaunch {
        name: name.to_owned(),
        roots: vec![GrantedDirectory { path, handle, is_writable: false }],
        hidden: Vec::new(),
        limits: ResourceLimits { memory_bytes_max: 1 << 30, ..ResourceLimits::default() },
    }
}

async fn run(fixture: &Fixture, launch: BuiltInLaunch, input: &str) -> Finished {
    let mut running = fixture.launcher.start_built_in(launch).unwrap();
    let mut stdin = running.take_stdin().unwrap();
    let input = input.as_bytes().to_vec();
    let written = std::thread::spawn(move || stdin.write_all(&input));
    let finished = finish(running).await;
    // An input that is too long is not read to its end.
    let _ = written.join().unwrap();
    finished
}

#[tokio::test]
async fn built_in_reads_its_directory_and_nothing_else_works() {
    for tier in TIERS {
        let fixture = Fixture::new(tier);
        std::fs::write(fixture.inside.join("file"), "x").unwrap();
        let program = fixture.inside.join("program");
        std::fs::copy("/bin/true", &program).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let input = format!("{}\n{}", fixture.inside.display(), fixture.outside.display());
        let finished = run(&fixture, launch(&fixture, "tries"), &input).await;
        let expected = Finished {
            exit: CommandExit::Exited(0),
            stdout: "read inside\nlist inside\nthread\n".to_owned(),
            stderr: String::new(),
        };
        assert_eq!(finished, expected, "{tier:?}");
    }
}

#[tokio::test]
async fn result_error_and_panic_of_a_built_in_differ() {
    let long = "x".repeat((1 << 20) + 1);
    for tier in TIERS {
        let fixture = Fixture::new(tier);
        for (name, input, code, stdout, stderr) in [
            ("echo", "hello", 0, "hello", ""),
            ("echo", &*long, 1, "", "the request is longer than 1048576 bytes"),
            ("fails", "", 1, "", "it did not work"),
            ("panics", "", 101, "", "index out of bounds"),
        ] {
            let finished = run(&fixture, launch(&fixture, name), input).await;
            assert_eq!((&finished.exit, &*finished.stdout), (&CommandExit::Exited(code), stdout), "{name}");
            assert!(finished.stderr.contains(stderr), "{name}: {}", finished.stderr);
        }
        let finished = run(&fixture, launch(&fixture, "unknown"), "").await;
        assert_eq!(finished.exit, CommandExit::NotStarted("there is no built-in unknown".to_owned()));
    }
}

#[tokio::test]
async fn memory_limit_ends_a_built_in() {
    for tier in TIERS {
        let fixture = Fixture::new(tier);
        let finished = run(&fixture, launch(&fixture, "allocates"), "").await;
        assert_eq!(finished.exit, CommandExit::Killed(6), "{tier:?}: {finished:?}");
    }
}

#[tokio::test]
async fn built_in_that_waits_for_a_pipe_is_killed() {
    for tier in TIERS {
        let fixture = Fixture::new(tier);
        let pipe = fixture.inside.join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        let mut running = fixture.launcher.start_built_in(launch(&fixture, "waits")).unwrap();
        running.take_stdin().unwrap().write_all(pipe.to_str().unwrap().as_bytes()).unwrap();
        running.kill();
        assert_eq!(finish(running).await.exit, CommandExit::Killed(9));
    }
}

#[tokio::test]
async fn built_in_is_not_started_with_a_writable_directory_or_none() {
    let fixture = Fixture::new(TIERS[0]);
    let mut writable = launch(&fixture, "echo");
    writable.roots[0].is_writable = true;
    let mut none = launch(&fixture, "echo");
    none.roots.clear();
    for (launch, why) in [(writable, "a built-in writes nothing"), (none, "a built-in needs a directory")] {
        let fault = fixture.launcher.start_built_in(launch).unwrap_err();
        assert!(fault.to_string().contains(why), "{fault}");
    }
}
