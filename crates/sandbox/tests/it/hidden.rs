//! Files and directories that are hidden within a granted directory, as root and as an unprivileged user.

use std::fs;

use sandbox::{Launch, LaunchFault, Tier};
use serde_json::{Value, json};

use crate::fixture::{Fixture, TIERS};
use crate::programs::{Programs, users};

/// A granted directory with a hidden directory, two levels below it, and a hidden file.
fn programs(user: u32) -> Programs {
    let programs = Programs::new(user);
    for directory in ["inside/a", "inside/a/home", "inside/a/home/run"] {
        fs::create_dir(programs.path(directory)).unwrap();
        programs.own(directory);
    }
    for file in ["inside/a/home/token", "inside/a/home/run/token", "inside/a/open", "inside/.env"] {
        programs.write(file, "secret\n");
    }
    programs
}

/// Runs a line in a shell with the directory and the file hidden; returns its output and errors.
fn run(programs: &Programs, is_writable: bool, line: &str) -> (String, String) {
    run_with(programs, line, &json!([[programs.text("inside"), is_writable], [programs.text("bin"), false]]))
}

fn run_with(programs: &Programs, line: &str, roots: &Value) -> (String, String) {
    let order = json!({
        "helper": programs.text("bin/helper"),
        "tier": Tier::Namespaces,
        "roots": roots,
        "hidden": [programs.text("inside/a/home/run"), programs.text("inside/a/home"), programs.text("inside/.env")],
        "cwd": programs.text("inside"),
        "program": "/bin/sh",
        "arguments": ["-c", line],
        "environment": { "PATH": "/usr/bin:/bin", "BIN": programs.text("bin") },
    });
    let output = programs.launcher(&order).output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

fn secret_files(programs: &Programs) -> Vec<String> {
    let names = ["inside/a/home/token", "inside/a/home/run/token", "inside/.env"];
    names.iter().map(|name| fs::read_to_string(programs.path(name)).unwrap()).collect()
}

#[test]
fn hidden_files_are_empty_and_cannot_be_written() {
    for user in users() {
        for is_writable in [true, false] {
            let programs = programs(user);
            let line = "ls -A a/home; cat .env a/home/token a/home/run/token; \
                chmod 777 .env a/home; for f in .env a/home/token a/home/new; do (echo x > $f) && echo written; done; mkdir a/home/d; \
                rm -rf a/home .env; rmdir a/home; \
                for f in a a/home .env; do perl -e 'exit !rename $ARGV[0], \"moved\"' $f && echo renamed; done; ls -A a";
            let (stdout, stderr) = run(&programs, is_writable, line);
            assert_eq!(stdout, "home\nopen\n", "{user} {stderr}");
            assert_eq!(secret_files(&programs), ["secret\n"; 3]);
            assert!(!programs.path("inside/a/home/new").exists());
        }
    }
}

#[test]
fn rest_of_the_directory_works() {
    for user in users() {
        let programs = programs(user);
        let line = "cat a/open; echo x > made; mkdir -p a/d/e; mv made a/d/e; cat a/d/e/made; rm -r a/d; echo y >> a/open";
        let (stdout, stderr) = run(&programs, true, line);
        assert_eq!(stdout, "secret\nx\n", "{stderr}");
        assert_eq!(fs::read_to_string(programs.path("inside/a/open")).unwrap(), "secret\ny\n");
        assert!(!programs.path("inside/a/d").exists());
    }
}

#[test]
fn no_other_path_leads_to_a_hidden_directory() {
    for user in users() {
        let programs = programs(user);
        let line = r#"h=$PWD/a/home
            umount a/home; umount -l a/home; umount .env; mount --bind a b; unshare -m true; unshare -Ur true
            for p in /proc/self/root /proc/1/root /proc/$$/root /proc/self/cwd/../.. /proc/1/cwd; do
              cat $p$h/token $p/a/home/token; ls -A $p$h
            done
            for f in /proc/1/fd/* /proc/self/fd/*; do cat $f/a/home/token $f/token; done
            cat a/home/../home/token ./a/./home/run/token a/home/run/../token a/../.env
            ln -s $h/token link; cat link; ln $h/token hard; cat hard; ln .env hard; cat hard
            cp -r a copied; cat copied/home/token; find . -name token; tar cf - a | grep -c secret; cat /proc/self/mountinfo | grep -c ' - tmpfs tmpfs'"#;
        let (stdout, stderr) = run(&programs, true, line);
        // The archive has the file beside the hidden directory; the mounts are those of the sandbox.
        let lines: Vec<&str> = stdout.lines().collect();
        assert_eq!(lines.first(), Some(&"1"), "{user} {stdout} {stderr}");
        assert_eq!(lines.len(), 2, "{user} {stdout}");
        assert_eq!(secret_files(&programs), ["secret\n"; 3]);
    }
}

/// As the temporary directory of a command can be in the home of the daemon.
#[test]
fn directory_can_be_granted_within_a_hidden_one() {
    for user in users() {
        let programs = programs(user);
        let roots = json!([[programs.text("inside"), true], [programs.text("inside/a/home/run"), true]]);
        let line = "ls -A a/home; cat a/home/run/token; echo x > a/home/run/new; echo x > a/home/new";
        let (stdout, stderr) = run_with(&programs, line, &roots);
        assert_eq!(stdout, "run\nsecret\n", "{stderr}");
        // A file to read, such as the program of a tool: what is beside it stays hidden.
        let roots =
            json!([[programs.text("inside"), true], [programs.text("inside/a/home/run/token"), false]]);
        let line = "ls -A a/home a/home/run; cat a/home/run/token; echo x > a/home/run/other";
        let (stdout, stderr) = run_with(&programs, line, &roots);
        assert_eq!(stdout, "a/home:\nrun\n\na/home/run:\ntoken\nsecret\n", "{stderr}");
        assert!(!programs.path("inside/a/home/run/other").exists());
        assert!(
            programs.path("inside/a/home/run/new").exists() && !programs.path("inside/a/home/new").exists()
        );
    }
}

#[tokio::test]
async fn hidden_path_must_exist_and_have_no_links() {
    let fixture = Fixture::new(Tier::Namespaces);
    std::os::unix::fs::symlink(&fixture.outside, fixture.inside.join("link")).unwrap();
    for (name, why) in [("missing", "No such file"), ("link", "leads through a symbolic link")] {
        let hidden = vec![fixture.inside.join(name).to_str().unwrap().to_owned()];
        let finished = fixture.run(Launch { hidden, ..fixture.shell("echo started") }).await;
        assert_eq!(finished.stdout, "");
        assert!(format!("{finished:?}").contains(why), "{finished:?}");
    }
    assert!(!fixture.inside.join("missing").exists());
}

#[test]
fn what_cannot_be_hidden_starts_no_command() {
    for tier in TIERS {
        let fixture = Fixture::new(tier);
        let inside = fixture.inside.to_str().unwrap();
        fs::create_dir(fixture.inside.join("home")).unwrap();
        let mut paths = vec![inside.to_owned(), format!("{inside}/../outside"), "/usr".to_owned()];
        if tier == Tier::Landlock {
            paths = vec![format!("{inside}/home")];
        }
        for path in paths {
            let launch = Launch { hidden: vec![path.clone()], ..fixture.launch("true", &[]) };
            let fault = fixture.launcher.start(launch).unwrap_err();
            assert!(matches!(fault, LaunchFault::Hide { .. }), "{path}: {fault}");
        }
    }
}
