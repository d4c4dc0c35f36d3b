//! A repository that git makes, for the tests of the git tools.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// A directory with a repository `tree` and a directory `outside` beside it.
pub(crate) struct Repository {
    _directory: TempDir,
    pub(crate) base: PathBuf,
    pub(crate) tree: PathBuf,
    pub(crate) outside: PathBuf,
}

impl Repository {
    /// A repository with one commit of `a.txt` and `src/b.txt`, and a change of the first.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        let (tree, outside) = (base.join("tree"), base.join("outside"));
        std::fs::create_dir_all(tree.join("src")).unwrap();
        std::fs::create_dir(&outside).unwrap();
        let repository = Self { _directory: directory, base, tree, outside };
        repository.git(&["init", "--quiet", "--initial-branch=main"]);
        repository.write("a.txt", "one\ntwo\n");
        repository.write("src/b.txt", "b\n");
        repository.commit("first");
        repository.write("a.txt", "one\n2\n");
        repository
    }

    pub(crate) fn path(&self) -> &str {
        self.tree.to_str().unwrap()
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        let path = self.tree.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(crate) fn commit(&self, message: &str) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", message]);
    }

    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        let output = run_git(&self.tree, arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

/// Runs git without the settings of the user.
pub(crate) fn run_git(directory: &Path, arguments: &[&str]) -> Output {
    Command::new("git")
        .args(["-c", "protocol.file.allow=always"])
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", directory)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .envs([("GIT_AUTHOR_NAME", "Ada"), ("GIT_AUTHOR_EMAIL", "ada@example.org")])
        .envs([("GIT_COMMITTER_NAME", "Ada"), ("GIT_COMMITTER_EMAIL", "ada@example.org")])
        .output()
        .unwrap()
}
