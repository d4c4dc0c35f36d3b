//! `nexus3 models` (list, pull, remove, use), with a fake Python whose pip copies the test's wheels. No network.

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

use tempfile::TempDir;
use testkit::{CommandOutput, FakePip, run};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::support::BIN;
use crate::support::program::Program;

/// A home, and a fake Python that is first in `PATH`.
struct ModelsFixture {
    pip: FakePip,
    folder: TempDir,
}

impl ModelsFixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { pip: FakePip::new(folder.path()), folder }
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// The path of a file in the model directory.
    fn model_path(&self, name: &str) -> PathBuf {
        self.home().join("models").join(name)
    }

    fn path_variable(&self) -> String {
        format!("{}:/usr/local/bin:/usr/bin:/bin", self.pip.directory().display())
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

    /// Starts `nexus3 models …` and does not wait for it.
    fn start(&self, arguments: &[&str]) -> Program {
        let path = self.path_variable();
        Program::start(&[&["models"], arguments].concat(), &[("PATH", &path)], &self.home(), b"")
    }

    /// Runs a command that must succeed and returns its stdout.
    fn run_ok(&self, arguments: &[&str]) -> String {
        let finished = self.models(arguments);
        assert_eq!(finished.code, 0, "{arguments:?}: {finished:?}");
        finished.stdout
    }

    /// Writes a user's file outside the home and returns its path.
    fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Creates a wheel that the fake pip finds.
    fn put_wheel(&self, requirement: &str, member: &str, bytes: &[u8]) {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        zip.start_file(member, SimpleFileOptions::default()).unwrap();
        zip.write_all(bytes).unwrap();
        self.pip.add_wheel(requirement, &zip.finish().unwrap().into_inner());
    }

    /// Sets the shell lines that the fake pip runs before it copies.
    fn set_pip_hook(&self, lines: &str) {
        self.pip.before(lines);
    }

    fn pip_call_count(&self) -> usize {
        self.pip.calls().len()
    }
}

/// Bytes with the header of a weights file.
fn fake_weights(bytes: usize) -> Vec<u8> {
    let noise = (4..bytes).map(|index| u8::try_from(index * 31 % 251).unwrap());
    b"GGUF".iter().copied().chain(noise).collect()
}

fn file_names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
