//! A fake Python whose pip copies wheels that the test has made.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A directory with the fake `python3` and its wheels.
#[derive(Debug)]
pub struct FakePip {
    directory: PathBuf,
}

/// Logs its working directory and arguments, runs the test's hook, then copies the requested wheel.
const SCRIPT: &str = r#"#!/bin/sh
here=$(dirname "$0")
echo "$PWD|$*" >> "$here/calls"
for last; do :; done
while [ $# -gt 0 ]; do if [ "$1" = -d ]; then out=$2; fi; shift; done
if [ -f "$here/before" ]; then . "$here/before"; fi
if [ ! -f "$here/$last.whl" ]; then echo "ERROR: No matching distribution found for $last" >&2; exit 1; fi
cp "$here/$last.whl" "$out/"
"#;

impl FakePip {
    /// Creates the directory `pip` in a directory.
    pub fn new(parent: &Path) -> Self {
        let directory = parent.join("pip");
        fs::create_dir(&directory).expect("the directory can be created");
        // Written by another process: a file that is open for writing cannot be executed, and a child forked by a
        // parallel test could inherit this process's descriptor.
        let write = "cat > \"$0\" && chmod 700 \"$0\"";
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", write]).arg(directory.join("python3")).stdin(Stdio::piped()).spawn();
        let mut shell = shell.expect("a shell can be started");
        let mut stdin = shell.stdin.take().expect("stdin is piped");
        stdin.write_all(SCRIPT.as_bytes()).expect("the shell reads the script");
        drop(stdin);
        assert!(shell.wait().expect("the shell ends").success());
        Self { directory }
    }

    /// The directory of the fake `python3`.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The path of the fake `python3`.
    pub fn python(&self) -> PathBuf {
        self.directory.join("python3")
    }

    /// Sets shell lines that run before the wheel is copied; `$last` is the requirement, `$out` the output directory.
    pub fn before(&self, lines: &str) {
        fs::write(self.directory.join("before"), lines).expect("the directory can be written to");
    }

    /// Adds a wheel for a requirement.
    pub fn add_wheel(&self, requirement: &str, wheel: &[u8]) {
        let path = self.directory.join(format!("{requirement}.whl"));
        fs::write(path, wheel).expect("the directory can be written to");
    }

    /// The calls so far: working directory and arguments.
    pub fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.directory.join("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The requested requirements.
    pub fn requirements(&self) -> Vec<String> {
        let last = |call: &String| call.rsplit(' ').next().unwrap_or_default().to_owned();
        self.calls().iter().map(last).collect()
    }
}
