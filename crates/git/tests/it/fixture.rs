//! A repository that git makes, and requests to it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

/// A directory with a repository in it.
pub(crate) struct Fixture {
    _directory: TempDir,
    pub(crate) base: PathBuf,
    pub(crate) worktree: PathBuf,
}

impl Fixture {
    /// A repository without commits.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().canonicalize().unwrap();
        let worktree = base.join("tree");
        std::fs::create_dir(&worktree).unwrap();
        let fixture = Self { _directory: directory, base, worktree };
        fixture.git(&["init", "--quiet", "--initial-branch=main"]);
        fixture
    }

    /// A repository whose history has additions, changes, renames, a merge and different kinds of files.
    pub(crate) fn with_history() -> Self {
        let fixture = Self::new();
        fixture.write("a.txt", &numbered(1..=40));
        fixture.write("src/main.rs", "fn main() {\n    one();\n    two();\n    three();\n    four();\n}\n");
        fixture.write("with space.txt", "one\ntwo\n");
        fixture.write("crlf.txt", "one\r\ntwo\r\nthree\r\n");
        fixture.write("auto.txt", "one\ntwo\n");
        fixture.write("binary.bin", "a\0b\n");
        fixture.write("no-newline", "one\ntwo");
        fixture.write("empty", "");
        fixture.write("gone.txt", "it will be deleted\n");
        fixture.write("moved.txt", &numbered(100..=140));
        fixture.write(".gitattributes", "auto.txt text=auto\n*.dat -diff\n");
        fixture.write(".gitignore", "*.log\ntarget/\n");
        fixture.commit("first", 1);
        fixture.write("a.txt", &numbered(1..=40).replace("line 5\n", "line five\n").replace("line 35\n", ""));
        fixture.write("with space.txt", "one\ntwo\nthree\n");
        fixture.write("no-newline", "one\ntwo\n");
        fixture.commit("second\n\nIts body has two lines.\n\nAnd a third.", 2);
        fixture.git(&["mv", "moved.txt", "src/renamed.txt"]);
        fixture.write("src/renamed.txt", &numbered(100..=140).replace("line 120\n", "line 120, changed\n"));
        fixture.git(&["rm", "--quiet", "gone.txt"]);
        fixture.commit("third", 3);
        fixture.git(&["checkout", "--quiet", "-b", "side", "HEAD~1"]);
        fixture.write("side.txt", "side\n");
        fixture.commit("on the side", 3);
        fixture.git(&["checkout", "--quiet", "main"]);
        fixture.write("src/main.rs", "fn main() {\n    one();\n    2();\n    three();\n    four();\n}\n");
        fixture.commit("fourth", 4);
        fixture.git_at(5, &["merge", "--quiet", "--no-ff", "-m", "a merge", "side"]);
        fixture
    }

    /// Adds changes of every kind to index and working tree.
    pub(crate) fn change_everything(&self) {
        self.write("a.txt", &numbered(1..=40).replace("line 20\n", "line twenty\n"));
        self.write("crlf.txt", "one\r\n2\r\nthree\r\n");
        self.write("auto.txt", "one\r\ntwo\r\nthree\r\n");
        self.write("binary.bin", "c\0d\n");
        self.write("no-newline", "one\nzwei");
        std::fs::remove_file(self.path("empty")).unwrap();
        self.write("untracked.txt", "x\n");
        self.write("new directory/one", "1\n");
        self.write("new directory/two", "2\n");
        self.write("ignored.log", "x\n");
        self.write("target/x", "x\n");
        self.write("staged.txt", "staged\n");
        self.write("data.dat", "text, but not compared\n");
        self.write("intended.txt", "later\n");
        self.git(&["add", "staged.txt", "data.dat"]);
        self.git(&["add", "--intent-to-add", "intended.txt"]);
        self.git(&["mv", "side.txt", "moved side.txt"]);
        self.write("staged.txt", "staged\nand changed\n");
        self.write("src/main.rs", "fn main() {\n    changed();\n}\n");
        self.git(&["add", "src/main.rs"]);
        let script = self.path("with space.txt");
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::remove_file(self.path("src/renamed.txt")).unwrap();
        std::os::unix::fs::symlink("../a.txt", self.path("src/renamed.txt")).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.worktree.join(name)
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// Commits everything; the hour is the time of the commit.
    pub(crate) fn commit(&self, message: &str, hour: u32) {
        self.git(&["add", "--all"]);
        self.git_at(hour, &["commit", "--quiet", "--message", message]);
    }

    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        self.git_at(0, arguments)
    }

    fn git_at(&self, hour: u32, arguments: &[&str]) -> String {
        run_git(&self.worktree, hour, arguments)
    }

    /// A request on the whole repository.
    pub(crate) fn ask(&self, operation: &Value) -> Result<String, String> {
        self.ask_path("", operation)
    }

    /// A request on a path.
    pub(crate) fn ask_path(&self, path: &str, operation: &Value) -> Result<String, String> {
        self.ask_in(&self.worktree, &[&self.worktree], path, operation)
    }

    pub(crate) fn ask_in(
        &self,
        worktree: &Path,
        roots: &[&Path],
        path: &str,
        operation: &Value,
    ) -> Result<String, String> {
        let request = json!({
            "worktree": worktree,
            "roots": roots,
            "path": path,
            "blocked": [self.path("blocked")],
            "operation": operation,
        });
        let answer = git::answer(request.to_string().as_bytes(), |path| path.ends_with("/.npmrc"));
        answer.map(|text| String::from_utf8(text).unwrap())
    }
}

/// Runs git without the settings of the user.
pub(crate) fn run_git(directory: &Path, hour: u32, arguments: &[&str]) -> String {
    let date = format!("2024-02-0{} 1{hour}:00:00 +0130", 1 + hour / 3);
    let output = Command::new("git")
        .args(["-c", "core.quotePath=false", "-c", "protocol.file.allow=always"])
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", directory)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_AUTHOR_NAME", "Ada Löve")
        .env("GIT_AUTHOR_EMAIL", "ada@example.org")
        .env("GIT_COMMITTER_NAME", "Ada")
        .env("GIT_COMMITTER_EMAIL", "ada@example.org")
        .env("GIT_AUTHOR_DATE", &date)
        .env("GIT_COMMITTER_DATE", &date)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn numbered(numbers: std::ops::RangeInclusive<u32>) -> String {
    numbers.map(|number| format!("line {number}\n")).collect()
}

pub(crate) fn status() -> Value {
    json!({ "status": { "offset": 0 } })
}

pub(crate) fn diff(from: Option<&str>, to: Option<&str>, staged: bool) -> Value {
    json!({ "diff": { "from": from, "to": to, "staged": staged, "offset": 0 } })
}

pub(crate) fn log(rev: Option<&str>, count: usize, offset: usize) -> Value {
    json!({ "log": { "rev": rev, "count": count, "offset": offset } })
}

pub(crate) fn show(rev: &str) -> Value {
    json!({ "show": { "rev": rev, "offset": 0 } })
}

pub(crate) fn blame(rev: Option<&str>, start_line: Option<u32>, end_line: Option<u32>) -> Value {
    json!({ "blame": { "rev": rev, "start_line": start_line, "end_line": end_line } })
}
