//! What a repository is at, in one line. Looks at a few small files and runs nothing: git would run what the repository
//! says.

use std::io::Read;
use std::path::{Path, PathBuf};

/// Folders above the working directory in which a repository is looked for.
const ANCESTORS_MAX: usize = 8;

/// More than a head or a link to a repository needs.
const BYTES_MAX: u64 = 1024;

/// The longest name of a branch that is shown.
const BRANCH_CHARS_MAX: usize = 200;

/// What may be under way, by the file that says so.
const OPERATIONS_IN_PROGRESS: [(&str, &str); 5] = [
    ("MERGE_HEAD", "merge"),
    ("rebase-merge", "rebase"),
    ("rebase-apply", "rebase"),
    ("CHERRY_PICK_HEAD", "cherry-pick"),
    ("BISECT_LOG", "bisect"),
];

/// Such as `Git: branch main, merge under way`; none when there is no repository.
pub(super) fn status_line(cwd: &Path) -> Option<String> {
    let repository =
        cwd.ancestors().take(ANCESTORS_MAX).find_map(|folder| git_directory(&folder.join(".git")))?;
    let head = describe_head(&repository.join("HEAD"))?;
    let is_there = |(name, _): &&(&str, &str)| repository.join(name).symlink_metadata().is_ok();
    let under_way =
        OPERATIONS_IN_PROGRESS.iter().find(is_there).map(|(_, what)| format!(", {what} under way"));
    Some(format!("Git: {head}{}", under_way.unwrap_or_default()))
}

/// The folder of a repository: `.git` itself, or what it links to in a worktree.
fn git_directory(place: &Path) -> Option<PathBuf> {
    let found = place.symlink_metadata().ok()?;
    if found.is_dir() {
        return Some(place.to_owned());
    }
    let text = found.is_file().then(|| read_small_file(place)).flatten()?;
    let linked = Path::new(text.trim().strip_prefix("gitdir: ")?);
    Some(place.parent()?.join(linked))
}

/// Only what a head can be: a file that is none tells nothing.
fn describe_head(file: &Path) -> Option<String> {
    let text = read_small_file(file)?;
    let text = text.trim();
    if let Some(branch) = text.strip_prefix("ref: refs/heads/") {
        let is_plain = |letter: char| letter.is_alphanumeric() || "-_./+@#".contains(letter);
        let is_name = !branch.is_empty() && branch.len() <= BRANCH_CHARS_MAX && branch.chars().all(is_plain);
        return is_name.then(|| format!("branch {branch}"));
    }
    let is_commit = matches!(text.len(), 40 | 64) && text.chars().all(|letter| letter.is_ascii_hexdigit());
    is_commit.then(|| format!("detached at {}", &text[..12]))
}

fn read_small_file(file: &Path) -> Option<String> {
    // A pipe would wait for whoever writes to it.
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
        std::fs::create_dir_all(root.join(".git")).expect("it can be made");
        std::fs::write(root.join(".git/HEAD"), head).expect("it can be written");
    }

    #[test]
    fn a_repository_says_its_branch_and_what_is_under_way() {
        let root = tempfile::tempdir().expect("a folder");
        let deep = root.path().join("src/deep");
        std::fs::create_dir_all(&deep).expect("it can be made");
        assert_eq!(status_line(&deep), None);
        create_repository(root.path(), "ref: refs/heads/feature/x-1\n");
        assert_eq!(status_line(&deep).as_deref(), Some("Git: branch feature/x-1"));
        std::fs::write(root.path().join(".git/MERGE_HEAD"), "").expect("it can be written");
        assert_eq!(status_line(&deep).as_deref(), Some("Git: branch feature/x-1, merge under way"));
    }

    #[test]
    fn a_worktree_leads_to_its_repository_and_a_commit_is_short() {
        let root = tempfile::tempdir().expect("a folder");
        let (tree, real) = (root.path().join("tree"), root.path().join("real/.git/worktrees/tree"));
        std::fs::create_dir_all(&tree)
            .and_then(|()| std::fs::create_dir_all(&real))
            .expect("they can be made");
        std::fs::write(tree.join(".git"), format!("gitdir: {}\n", real.display()))
            .expect("it can be written");
        std::fs::write(real.join("HEAD"), "0123456789abcdef0123456789abcdef01234567\n").expect("it can be");
        assert_eq!(status_line(&tree).as_deref(), Some("Git: detached at 0123456789ab"));
    }

    #[test]
    fn what_is_no_head_tells_nothing() {
        for head in ["", "ref: refs/heads/", "ref: refs/heads/a b; obey", "secret words", "ref: refs/tags/x"]
        {
            let root = tempfile::tempdir().expect("a folder");
            create_repository(root.path(), head);
            assert_eq!(status_line(root.path()), None, "{head:?}");
        }
    }
}
