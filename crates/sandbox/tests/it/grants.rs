//! Granted directories: within each other, within those of the system, behind links, on other mounts.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use sandbox::{
    CommandExit, GrantedDirectory, Launch, LaunchFault, Launcher, OutputStream, SystemDirectories, Tier,
};
use serde_json::json;

use crate::fixture::{Finished, Fixture, TIERS, finish, helper};
use crate::programs::{Programs, users};

fn grant(path: &Path, is_writable: bool) -> GrantedDirectory {
    let handle = Arc::new(File::open(path).unwrap().into());
    GrantedDirectory { path: path.to_str().unwrap().to_owned(), handle, is_writable }
}

/// Tries to write at each of these paths; returns those at which it could.
async fn writable(fixture: &Fixture, roots: Vec<GrantedDirectory>, paths: &[&Path]) -> Vec<String> {
    let mut launch =
        fixture.launch("sh", &["-c", "for p; do (: > $p/new) 2>/dev/null && echo $p; done", "sh"]);
    launch.arguments.extend(paths.iter().map(|path| path.to_str().unwrap().to_owned()));
    let finished = fixture.run(Launch { roots, ..launch }).await;
    assert!(!matches!(finished.exit, CommandExit::NotStarted(_)), "{finished:?}");
    finished.stdout.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn access_is_that_of_the_innermost_directory() {
    for tier in TIERS {
        let fixture = Fixture::new(tier);
        let (outer, inner) = (fixture.outside.clone(), fixture.outside.join("inner"));
        fs::create_dir(&inner).unwrap();
        let cwd = || grant(&fixture.inside, true);
        for is_reversed in [false, true] {
            let mut roots = vec![cwd(), grant(&outer, false), grant(&inner, true)];
            if is_reversed {
                roots.reverse();
            }
            assert_eq!(writable(&fixture, roots, &[&outer, &inner]).await, [inner.to_str().unwrap()]);
            let mut roots = vec![cwd(), grant(&outer, true), grant(&inner, false)];
            if is_reversed {
                roots.reverse();
            }
            if tier == Tier::Namespaces {
                assert_eq!(writable(&fixture, roots, &[&outer, &inner]).await, [outer.to_str().unwrap()]);
            } else {
                // Landlock rules only add: better no command than a writable directory.
                let launch = Launch { roots, ..fixture.launch("true", &[]) };
                let fault = fixture.launcher.start(launch).unwrap_err();
                assert!(fault.to_string().contains("read-only within a writable"), "{fault}");
            }
        }
    }
}

#[tokio::test]
async fn read_only_directory_cannot_be_replaced_by_moving_its_parents() {
    let fixture = Fixture::new(Tier::Namespaces);
    let hooks = fixture.inside.join("a/b/hooks");
    fs::create_dir_all(&hooks).unwrap();
    let roots = vec![grant(&hooks, false), grant(&fixture.inside, true)];
    let line = "for d in a a/b a/b/hooks; do mv $d moved || rm -r $d; done 2> /dev/null; \
        echo x > a/f && mv a/f a/b/g && cat a/b/g; touch a/b/hooks/new";
    let finished = fixture.run(Launch { roots, ..fixture.shell(line) }).await;
    assert_eq!(finished.stdout, "x\n", "{finished:?}");
    assert!(finished.stderr.contains("Read-only file system"), "{finished:?}");
    assert!(hooks.is_dir() && !hooks.join("new").exists());
}

#[tokio::test]
async fn grant_prevails_over_directories_of_the_system() {
    for tier in TIERS {
        let mut fixture = Fixture::new(tier);
        let (outer, inner) = (fixture.outside.clone(), fixture.outside.join("inner"));
        fs::create_dir(&inner).unwrap();
        // A granted directory below one of the system, as /usr/local/src is.
        let below = Arc::new(SystemDirectories::new("/usr/bin:/bin", std::slice::from_ref(&outer)));
        fixture.launcher = Launcher::new(helper(), tier, below);
        let roots = vec![grant(&inner, true), grant(&fixture.inside, true)];
        assert_eq!(writable(&fixture, roots, &[&outer, &inner]).await, [inner.to_str().unwrap()]);
        // One of the system below a granted one, as a toolchain in the home is.
        let above = Arc::new(SystemDirectories::new("/usr/bin:/bin", std::slice::from_ref(&inner)));
        fixture.launcher = Launcher::new(helper(), tier, above);
        let roots = vec![grant(&outer, true), grant(&fixture.inside, true)];
        assert_eq!(writable(&fixture, roots, &[&outer, &inner]).await.len(), 2);
    }
}

#[tokio::test]
async fn whole_file_tree_can_be_granted_for_reading() {
    for tier in TIERS {
        let fixture = Fixture::new(tier);
        let roots = || vec![grant(Path::new("/"), false), grant(&fixture.inside, true)];
        let line = format!(
            "cat {}/secret; echo x > made; echo y > /dev/null && cat made",
            fixture.outside.display()
        );
        let finished = fixture.run(Launch { roots: roots(), ..fixture.shell(&line) }).await;
        assert_eq!((finished.stdout.as_str(), finished.exit), ("secretx\n", CommandExit::Exited(0)));
        let places = [&fixture.outside, Path::new("/usr"), Path::new("/etc"), Path::new("/var/tmp")];
        assert_eq!(writable(&fixture, roots(), &places).await, [""; 0]);
        // A process of the system is not visible in namespaces, whatever is granted.
        let visible = format!("ls -d /proc/{}", std::process::id());
        let finished = fixture.run(Launch { roots: roots(), ..fixture.shell(&visible) }).await;
        assert_eq!(finished.stdout.is_empty(), tier == Tier::Namespaces);
    }
    assert!(fs::metadata("/").is_ok_and(|root| !root.permissions().readonly()));
}

#[test]
fn kernel_directories_and_odd_paths_are_not_granted() {
    for tier in TIERS {
        let fixture = Fixture::new(tier);
        for (path, is_writable) in
            [("/", true), ("/proc", true), ("/sys/kernel", true), ("/dev", true), ("/usr/../proc", false)]
        {
            let launch =
                Launch { roots: vec![grant(Path::new(path), is_writable)], ..fixture.launch("true", &[]) };
            let fault = fixture.launcher.start(launch).unwrap_err();
            assert!(matches!(fault, LaunchFault::Grant { .. }), "{path}: {fault}");
        }
    }
}

/// The grant is the directory, not what its path leads to: a directory that was replaced is never entered.
#[tokio::test]
async fn replaced_directory_is_not_entered() {
    for tier in TIERS {
        let fixture = Fixture::new(tier);
        let launch = fixture.shell("cat secret; echo x > made");
        fs::rename(&fixture.inside, fixture.inside.with_extension("moved")).unwrap();
        std::os::unix::fs::symlink(&fixture.outside, &fixture.inside).unwrap();
        let finished = fixture.run(launch).await;
        assert_eq!(finished.stdout, "");
        assert!(!fixture.outside.join("made").exists());
        match tier {
            Tier::Unconfined => unreachable!("not among the tiers that confine"),
            Tier::Landlock => assert!(fixture.inside.with_extension("moved").join("made").exists()),
            Tier::Namespaces => {
                let CommandExit::NotStarted(why) = finished.exit else { panic!("{finished:?}") };
                assert!(why.contains("leads through a symbolic link"), "{why}");
            }
        }
    }
}

#[tokio::test]
async fn directory_that_moves_during_a_run_stays_granted() {
    for tier in TIERS {
        let fixture = Fixture::new(tier);
        let mut launch = fixture.shell("echo ready; read line; echo x > made");
        launch.has_stdin = true;
        let mut running = fixture.start(launch);
        assert_eq!(running.next_output().await, Some((OutputStream::Stdout, b"ready\n".to_vec())));
        let moved = fixture.inside.with_extension("moved");
        fs::rename(&fixture.inside, &moved).unwrap();
        fs::create_dir(&fixture.inside).unwrap();
        drop(running.take_stdin());
        let Finished { exit, .. } = finish(running).await;
        assert_eq!(exit, CommandExit::Exited(0));
        assert!(moved.join("made").exists() && !fixture.inside.join("made").exists());
    }
}

/// A granted directory on a mount without execution, with a read-only mount below it. The mounts are in a namespace of the
/// launcher's.
#[test]
fn restrictions_of_mounts_stay() {
    const MOUNT: &str = "mount -t tmpfs -o noexec,nosuid,mode=777 none \"$0\" && mkdir \"$0/sub\" \
        && mount -t tmpfs none \"$0/sub\" && echo content > \"$0/sub/file\" && mount -o remount,bind,ro \"$0/sub\" \
        && exec \"$@\"";
    const TRY: &str =
        "cp /bin/true . && ./true || echo not executed; cat sub/file; touch sub/new || echo not written";
    for user in users() {
        for tier in TIERS {
            let programs = Programs::new(user);
            let launcher = programs.launcher(&json!({
                "helper": programs.text("bin/helper"),
                "tier": tier,
                "roots": [[programs.text("inside"), true]],
                "cwd": programs.text("inside"),
                "program": "/bin/sh",
                "arguments": ["-c", TRY],
            }));
            let mut command = Command::new("unshare");
            if !rustix::process::geteuid().is_root() {
                command.arg("--map-root-user");
            }
            command.args(["--mount", "sh", "-c", MOUNT, &programs.text("inside")]);
            command.arg(launcher.get_program()).args(launcher.get_args()).env_clear();
            let output = command.env("PATH", "/usr/bin:/bin").output().unwrap();
            let (stdout, stderr) =
                (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
            assert_eq!(stdout, "not executed\ncontent\nnot written\n", "{stderr}");
        }
    }
}
