//! The helper's own input: a request that it cannot read starts nothing, and what it inherits does not disturb it.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use sandbox::{CommandExit, Helper, Launcher, SelfTest, Tier};
use serde_json::json;

use crate::fixture::{Fixture, TIERS, finish, helper, system};
use crate::programs::Programs;

/// Starts the helper with these bytes on its control socket; returns its exit code and what it prints.
fn run_helper(bytes: &[u8]) -> (Option<i32>, String) {
    let (mut near, far) = UnixStream::pair().unwrap();
    let mut command = Command::new(helper().program);
    command.arg("sandbox-helper").stdin(Stdio::from(OwnedFd::from(far))).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    drop(command);
    near.write_all(bytes).unwrap();
    drop(near);
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

fn frame(body: &str) -> Vec<u8> {
    [&u32::try_from(body.len()).unwrap().to_be_bytes(), body.as_bytes()].concat()
}

#[test]
fn malformed_request_ends_the_helper_with_an_error() {
    let request = r#"{"payload":{"program":{"path":"/bin/touch","arguments":["x"],"environment":[]}},"cwd":"/","has_stdin":false,
        "held":[],"hidden":[],"system":[],"tier":"landlock","limits":
        {"file_bytes_max":1,"memory_bytes_max":1,"open_files_max":1,"processes_max":1}}"#;
    for (bytes, why) in [
        (vec![], "started without a request"),
        (vec![0, 0], "unexpected end of file"),
        (vec![0, 0, 0, 9, b'{'], "unexpected end of file"),
        (vec![255, 255, 255, 255], "too long"),
        (frame(""), "EOF while parsing"),
        (frame("{}"), "missing field"),
        (frame(request), "lacks descriptors"),
    ] {
        let (code, printed) = run_helper(&bytes);
        assert!(code == Some(1) && printed.contains(why), "{code:?} {printed}");
    }
}

/// A launcher within a sandbox: its kernel refuses namespaces. The tier is not replaced by a weaker one.
#[test]
fn threat_83_tier_that_the_kernel_refuses_starts_no_command() {
    for (inner, expected) in [
        (
            Tier::Namespaces,
            "exit: NotStarted(\"cannot confine the command: namespaces: Operation not permitted",
        ),
        (Tier::Landlock, "exit: Exited(0)"),
    ] {
        let programs = Programs::new(rustix::process::geteuid().as_raw());
        let order = |tier: Tier, program: &str, arguments: &[String]| {
            json!({
                "helper": programs.text("bin/helper"),
                "tier": tier,
                "roots": [[programs.text("inside"), true], [programs.text("bin"), false]],
                "cwd": programs.text("inside"),
                "program": program,
                "arguments": arguments,
            })
        };
        let nested = order(inner, "/bin/touch", &["made".to_owned()]).to_string();
        let outer = order(Tier::Landlock, &programs.text("bin/launcher"), &[nested]);
        let output = programs.launcher(&outer).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.starts_with(expected), "{stderr}");
        assert_eq!(programs.path("inside/made").exists(), inner == Tier::Landlock);
    }
}

/// A helper that another program executes.
fn helper_through(program: &str, arguments: &[&str]) -> Helper {
    let Helper { program: own, arguments: own_arguments } = helper();
    let arguments = arguments.iter().map(|argument| (*argument).to_owned());
    let arguments = arguments.chain([own.to_str().unwrap().to_owned()]).chain(own_arguments);
    Helper { program: program.into(), arguments: arguments.collect() }
}

/// A launcher whose helper starts in a changed process state.
fn launcher_through(tier: Tier, program: &str, arguments: &[&str]) -> Launcher {
    Launcher::new(helper_through(program, arguments), tier, system())
}

/// Each part of the sandbox fails, as on an old kernel, in a container or under another security module.
#[tokio::test]
async fn threat_83_no_command_runs_when_a_primitive_is_missing() {
    let (enosys, eperm, enospc) = ("38", "1", "28");
    for (tier, call, errno) in [
        (Tier::Landlock, "landlock_create_ruleset", enosys),
        (Tier::Landlock, "landlock_create_ruleset", "95"),
        (Tier::Landlock, "landlock_add_rule", eperm),
        (Tier::Landlock, "landlock_restrict_self", eperm),
        (Tier::Landlock, "seccomp", enosys),
        (Tier::Landlock, "prctl", eperm),
        (Tier::Landlock, "capset", eperm),
        (Tier::Landlock, "close_range", enosys),
        (Tier::Landlock, "setsid", eperm),
        (Tier::Namespaces, "landlock_create_ruleset", enosys),
        (Tier::Namespaces, "landlock_restrict_self", eperm),
        (Tier::Namespaces, "seccomp", enosys),
        (Tier::Namespaces, "unshare", eperm),
        (Tier::Namespaces, "unshare", enospc),
        (Tier::Namespaces, "mount", eperm),
        (Tier::Namespaces, "open_tree", enosys),
        (Tier::Namespaces, "move_mount", eperm),
        (Tier::Namespaces, "mount_setattr", enosys),
        (Tier::Namespaces, "pivot_root", eperm),
        (Tier::Namespaces, "umount2", eperm),
    ] {
        let mut fixture = Fixture::new(tier);
        let hostile = env!("CARGO_BIN_EXE_sandbox-hostile");
        fixture.launcher = launcher_through(tier, hostile, &["without", call, errno]);
        let finished = fixture.run(fixture.launch("touch", &["made"])).await;
        let CommandExit::NotStarted(why) = &finished.exit else { panic!("{call}: {finished:?}") };
        assert!(why.starts_with("cannot confine the command: "), "{call}: {why}");
        assert!(!fixture.inside.join("made").exists(), "{call}");
        let (helper, directory) =
            (helper_through(hostile, &["without", call, errno]), fixture.outside.clone());
        let test = SelfTest::run(&helper, tier, &system(), &directory).await;
        assert!(!test.passed(), "{call}: {test:?}");
    }
}

/// 32 and 33, which the C library does not let programs change.
const SIGNALS_OF_C_LIBRARY: u64 = 0b11 << 31;

#[tokio::test]
async fn signals_that_the_daemon_ignores_or_blocks_are_restored() {
    for tier in TIERS {
        let mut fixture = Fixture::new(tier);
        let signals = ["--ignore-signal=CHLD,HUP,PIPE,USR1,ALRM", "--block-signal=TERM,CHLD,RTMIN"];
        fixture.launcher = launcher_through(tier, "/usr/bin/env", &signals);
        let finished =
            fixture.run_shell("(exit 5); echo $?; grep -E '^Sig(Blk|Ign)' /proc/self/status").await;
        let mut lines = finished.stdout.lines();
        assert_eq!(lines.next(), Some("5"));
        for line in lines {
            let signals = u64::from_str_radix(line.split('\t').nth(1).unwrap(), 16).unwrap();
            assert_eq!(signals & !SIGNALS_OF_C_LIBRARY, 0, "{line}");
        }
        assert_eq!(finished.exit, CommandExit::Exited(0));
    }
}

#[tokio::test]
async fn command_runs_under_a_narrow_umask() {
    for tier in TIERS {
        let mut fixture = Fixture::new(tier);
        fixture.launcher = launcher_through(tier, "/bin/sh", &["-c", "umask 077; exec \"$@\"", "sh"]);
        let finished =
            fixture.run_shell("umask; ls / /usr /dev > /dev/null 2>&1; echo x > made; cat made").await;
        assert_eq!(finished.stdout, "0077\nx\n", "{finished:?}");
    }
}

#[tokio::test]
async fn request_with_too_many_directories_is_refused() {
    let fixture = Fixture::new(TIERS[0]);
    let mut launch = fixture.launch("true", &[]);
    let root = launch.roots[0].clone();
    launch.roots = vec![root; 300];
    let fault = fixture.launcher.start(launch).unwrap_err();
    assert!(fault.to_string().contains("more than 253 descriptors"), "{fault}");
    // The next command is not affected.
    let finished = finish(fixture.start(fixture.launch("true", &[]))).await;
    assert_eq!(finished.exit, CommandExit::Exited(0));
}
