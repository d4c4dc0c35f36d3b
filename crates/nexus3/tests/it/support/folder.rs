//! A working directory for agents. Its path has no symbolic links, so that responses contain it unchanged.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;

pub(crate) struct TestDirectory {
    canonical: PathBuf,
    _directory: TempDir,
}

impl TestDirectory {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory can be created");
        let canonical = directory.path().canonicalize().expect("a directory has a canonical path");
        Self { canonical, _directory: directory }
    }

    /// Creates a directory with these files.
    pub(crate) fn with_files(files: &[(&str, &str)]) -> Self {
        let directory = Self::new();
        for (name, text) in files {
            directory.write(name, text);
        }
        directory
    }

    pub(crate) fn path(&self) -> &Path {
        &self.canonical
    }

    /// The path of the directory itself.
    pub(crate) fn path_str(&self) -> &str {
        self.canonical.to_str().expect("a temporary path is UTF-8")
    }

    /// The path of a file in the directory.
    pub(crate) fn path_of(&self, name: &str) -> String {
        format!("{}/{name}", self.path_str())
    }

    pub(crate) fn create_directory(&self, name: &str) {
        fs::create_dir_all(self.path_of(name)).expect("a directory can be created");
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let file = PathBuf::from(self.path_of(name));
        fs::create_dir_all(file.parent().expect("a file is in a directory"))
            .expect("a directory can be created");
        fs::write(file, text).expect("a file can be written");
    }

    /// The content of a file; `None` if it does not exist.
    pub(crate) fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path_of(name)).ok()
    }

    /// Creates a symbolic link to `target`.
    pub(crate) fn link(&self, name: &str, target: &str) {
        symlink(target, self.path_of(name)).expect("a link can be created");
    }
}

/// A script that makes the model read a file.
pub(crate) fn read_file_script(path: &str) -> String {
    format!("!tool fs_read_file {}", json!({ "path": path }))
}

/// A script that makes the model write a file.
pub(crate) fn write_file_script(path: &str, content: &str) -> String {
    format!("!tool fs_write_file {}", json!({ "path": path, "content": content }))
}
