//! A one-line status of a git repository. Reads a few small files and does not run git, which would execute commands
//! from the repository's configuration.

use std::io::Read;
use std::path::{Path, PathBuf};

/// Number of directories, from the working directory upwards, in which a repository is looked up.
const ANCESTORS_MAX: usize = 8;

/// Read limit, more than `HEAD` or a `gitdir` file needs.
const BYTES_MAX: u64 = 1024;

/// Maximum length of a branch name.
const BRANCH_CHARS_MAX: usize = 200;

/// Operations in progress, by the file that marks them.
const OPERATIONS_IN_PROGRESS: [(&str, &str); 5] = [
    ("MERGE_HEAD", "merge"),
    ("rebase-merge", "rebase"),
    ("rebase-apply", "rebase"),
    ("CHERRY_PICK_HEAD", "cherry-pick"),
    ("BISECT_LOG", "bisect"),
];

/// Returns a status such as `Git: branch main, merge under way`; none if there is no repository.
pub(super) fn status_line(cwd: &Path) -> Option<String> {
    let repository =
        cwd.ancestors().take(ANCESTORS_MAX).find_map(|directory| git_directory(&directory.join(".git")))?;
    let head = describe_head(&repository.join("HEAD"))?;
    let exists = |(name, _): &&(&str, &str)| repository.join(name).symlink_metadata().is_ok();
    let under_way = OPERATIONS_IN_PROGRESS.iter().find(exists).map(|(_, what)| format!(", {what} under way"));
    Some(format!("Git: {head}{}", under_way.unwrap_or_default()))
}

/// The directory of a repository: `.git` itself, or the one that a worktree's `.git` file names.
fn git_directory(path: &Path) -> Option<PathBuf> {
    let found = path.symlink_metadata().ok()?;
    if found.is_dir() {
        return Some(path.to_owned());
    }
    let text = found.is_file().then(|| read_small_file(path)).flatten()?;
    let linked = Path::new(text.trim().strip_prefix("gitdir: ")?);
    Some(path.parent()?.join(linked))
}

/// Describes `HEAD` if its content is valid; arbitrary text does not reach the prompt.
fn describe_head(file: &Path) -> Option<String> {
    let text = read_small_file(file)?;
    let text = text.trim();
    if let Some(branch) = text.strip_prefix("ref: refs/heads/") {
        let is_plain = |character: char| character.is_alphanumeric() || "-_./+@#".contains(character);
        let is_name = !branch.is_empty() && branch.len() <= BRANCH_CHARS_MAX && branch.chars().all(is_plain);
        return is_name.then(|| format!("branch {branch}"));
    }
    let is_commit =
        matches!(text.len(), 40 | 64) && text.chars().all(|character| character.is_ascii_hexdigit());
    is_commit.then(|| format!("detached at {}", &text[..12]))
}

fn read_small_file(file: &Path) -> Option<String> {
    // Opening a named pipe would block.
    if !file.symlink_metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    std::fs::File::open(file).ok()?.take(BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create_repository(root: &Path, head: &str) {
        std::fs::create_dir_all(root.join(".git")).expect("create");
        std::fs::write(root.join(".git/HEAD"), head).expect("write");
    }

    #[test]
    fn status_names_the_branch_and_operation() {
        let root = tempfile::tempdir().expect("a directory");
        let deep = root.path().join("src/deep");
        std::fs::create_dir_all(&deep).expect("create");
        assert_eq!(status_line(&deep), None);
        create_repository(root.path(), "ref: refs/heads/feature/x-1\n");
        assert_eq!(status_line(&deep).as_deref(), Some("Git: branch feature/x-1"));
        std::fs::write(root.path().join(".git/MERGE_HEAD"), "").expect("write");
        assert_eq!(status_line(&deep).as_deref(), Some("Git: branch feature/x-1, merge under way"));
    }

    #[test]
    fn worktree_resolves_to_its_repository_and_short_commit() {
        let root = tempfile::tempdir().expect("a directory");
        let (tree, real) = (root.path().join("tree"), root.path().join("real/.git/worktrees/tree"));
        std::fs::create_dir_all(&tree).and_then(|()| std::fs::create_dir_all(&real)).expect("create");
        std::fs::write(tree.join(".git"), format!("gitdir: {}\n", real.display())).expect("write");
        std::fs::write(real.join("HEAD"), "0123456789abcdef0123456789abcdef01234567\n").expect("write");
        assert_eq!(status_line(&tree).as_deref(), Some("Git: detached at 0123456789ab"));
    }

    #[test]
    fn invalid_head_yields_no_status() {
        for head in ["", "ref: refs/heads/", "ref: refs/heads/a b; obey", "secret words", "ref: refs/tags/x"]
        {
            let root = tempfile::tempdir().expect("a directory");
            create_repository(root.path(), head);
            assert_eq!(status_line(root.path()), None, "{head:?}");
        }
    }
}
