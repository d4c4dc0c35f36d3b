//! A folder for agents to work in. Its path has no links, so that answers repeat it as it is.

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
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let real = directory.path().canonicalize().expect("a directory has a real path");
        Self { canonical: real, _directory: directory }
    }

    /// With these files in it.
    pub(crate) fn with_files(files: &[(&str, &str)]) -> Self {
        let folder = Self::new();
        for (name, text) in files {
            folder.write(name, text);
        }
        folder
    }

    pub(crate) fn path(&self) -> &Path {
        &self.canonical
    }

    /// The path of the folder itself.
    pub(crate) fn path_str(&self) -> &str {
        self.canonical.to_str().expect("a temporary path is UTF-8")
    }

    /// The path of something in it.
    pub(crate) fn path_of(&self, name: &str) -> String {
        format!("{}/{name}", self.path_str())
    }

    pub(crate) fn create_directory(&self, name: &str) {
        fs::create_dir_all(self.path_of(name)).expect("a folder can be made");
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let file = PathBuf::from(self.path_of(name));
        fs::create_dir_all(file.parent().expect("a file is in a folder")).expect("a folder can be made");
        fs::write(file, text).expect("a file can be written");
    }

    /// What a file holds; none where there is no file.
    pub(crate) fn read(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path_of(name)).ok()
    }

    /// Puts a link to `target` into the folder.
    pub(crate) fn link(&self, name: &str, target: &str) {
        symlink(target, self.path_of(name)).expect("a link can be made");
    }
}

/// A script that has a model read a file.
pub(crate) fn read_file_script(path: &str) -> String {
    format!("!tool fs_read_file {}", json!({ "path": path }))
}

/// A script that has a model write a file.
pub(crate) fn write_file_script(path: &str, content: &str) -> String {
    format!("!tool fs_write_file {}", json!({ "path": path, "content": content }))
}
