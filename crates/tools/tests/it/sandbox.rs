//! A directory that an agent may access, and files around it that it may not.

use std::fs;

use agent::ToolOutcome;
use serde_json::json;
use tempfile::TempDir;

use crate::fixture::Fixture;

/// The content of files outside, which no tool may return.
pub(crate) const SECRET: &str = "the secret outside";

/// `inside/` is the agent's; `outside/` and `inside-sibling/` are not, and each has a `secret.txt`.
pub(crate) struct Sandbox {
    _directory: TempDir,
    pub(crate) base: String,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        let directory = TempDir::new().expect("a directory");
        let base = directory.path().canonicalize().expect("a real path");
        let sandbox = Self { _directory: directory, base: base.to_str().expect("a path of text").to_owned() };
        for directory in ["inside/sub", "outside/sub", "inside-sibling"] {
            fs::create_dir_all(sandbox.path(directory)).expect("a directory");
        }
        for (file, content) in [
            ("inside/ok.txt", "inside"),
            ("inside/sub/deep.txt", "deep"),
            ("outside/secret.txt", SECRET),
            ("outside/sub/deep.txt", SECRET),
            ("inside-sibling/secret.txt", SECRET),
        ] {
            fs::write(sandbox.path(file), content).expect("a file");
        }
        sandbox
    }

    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.base)
    }

    pub(crate) fn fixture(&self) -> Fixture {
        Fixture::confined_to(&self.path("inside"))
    }

    /// The outcome of a call in a granted directory that was replaced.
    pub(crate) fn replaced(&self, directory: &str) -> ToolOutcome {
        let directory = self.path(directory);
        ToolOutcome::Denied(format!(
            "Permission denied: {directory} was replaced since it was granted; put the granted directory back, or \
             grant the new one with set_permissions"
        ))
    }

    pub(crate) fn content(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("a text file")
    }

    /// The sorted names in a directory.
    pub(crate) fn file_names(&self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(directory)).expect("a directory");
        let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        let mut names: Vec<_> = entries.map(|entry| name(entry).to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

pub(crate) async fn read(fixture: &Fixture, path: &str) -> ToolOutcome {
    fixture.call("fs.read_file", &json!({ "path": path })).await
}

pub(crate) async fn write(fixture: &Fixture, path: &str, content: &str) -> ToolOutcome {
    fixture.call("fs.write_file", &json!({ "path": path, "content": content })).await
}

pub(crate) async fn append(fixture: &Fixture, path: &str, content: &str) -> ToolOutcome {
    fixture.call("fs.write_file", &json!({ "path": path, "content": content, "append": true })).await
}

/// Appends with `fs.append_file`.
pub(crate) async fn append_file(fixture: &Fixture, path: &str, content: &str) -> ToolOutcome {
    fixture.call("fs.append_file", &json!({ "path": path, "content": content })).await
}

pub(crate) fn path_denied(path: &str) -> ToolOutcome {
    ToolOutcome::Denied(format!("Permission denied: Path not in allowed directories: {path}"))
}

pub(crate) fn written_outcome(path: &str, bytes: usize) -> ToolOutcome {
    ToolOutcome::Done(json!({"bytes_written": bytes, "path": path, "success": true}).to_string())
}
