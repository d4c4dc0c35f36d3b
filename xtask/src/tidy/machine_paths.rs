//! Rule: no path that exists on one machine only: the path of the clone, a user's home directory, or a link that leads
//! out of the clone.
// tidy: allow machine-path because its tests contain such paths

use std::path::Path;

use super::finding::{Finding, Rule};
use super::source_tree::TextFile;

/// Directories that contain users' home directories.
const HOME_PARENTS: &[&str] = &["/home/", "/Users/"];
/// User names that are placeholders in examples.
const PLACEHOLDER_USERS: &[&str] = &["user", "you", "alice", "bob"];

/// The absolute paths that are specific to this machine.
pub(crate) struct MachinePaths {
    folders: Vec<String>,
}

impl MachinePaths {
    /// Takes the path of the clone and the home directory of the current user.
    pub(crate) fn new(root: &Path, home: Option<&Path>) -> Self {
        let folders = [Some(root), home].into_iter().flatten().filter_map(Path::to_str);
        // With a final `/`, because a top-level directory such as `/src` is part of many other paths.
        Self { folders: folders.filter(|path| path.len() > 1).map(|path| format!("{path}/")).collect() }
    }

    pub(crate) fn check(&self, text: &TextFile) -> Vec<Finding> {
        // Package managers write lock files.
        if text.path.ends_with(".lock") || text.path.ends_with("package-lock.json") {
            return Vec::new();
        }
        text.text
            .lines()
            .enumerate()
            .filter_map(|(index, line)| {
                let (problem, remedy) = self.problem_in_line(&text.path, line)?;
                Some(Finding::new(Rule::MachinePath, &text.path, index + 1, problem, remedy))
            })
            .collect()
    }

    fn problem_in_line(&self, path: &str, line: &str) -> Option<(String, &'static str)> {
        if self.folders.iter().any(|folder| suffixes_of_absolute_paths(line, folder).next().is_some()) {
            let problem = "an absolute path of this machine".to_owned();
            return Some((problem, "write it relative to the clone or to a setting"));
        }
        if HOME_PARENTS.iter().any(|folder| suffixes_of_absolute_paths(line, folder).any(is_real_user)) {
            return Some(("a path in a user's home directory".to_owned(), "write `~` or /home/user/"));
        }
        let link =
            path.ends_with(".md").then(|| links(line).find(|link| escapes_root(path, link))).flatten()?;
        Some((
            format!("the link `{link}` leads out of the clone"),
            "move the target into the tree, or remove the link",
        ))
    }
}

/// Returns the text after each occurrence of `folder` at the beginning of an absolute path.
fn suffixes_of_absolute_paths<'line>(line: &'line str, folder: &str) -> impl Iterator<Item = &'line str> {
    line.match_indices(folder).filter_map(move |(start, _)| {
        let is_in_path = |before: char| before.is_alphanumeric() || "._-~*}>)".contains(before);
        let before = line[..start].chars().next_back();
        (!before.is_some_and(is_in_path)).then(|| &line[start + folder.len()..])
    })
}

fn is_real_user(suffix: &str) -> bool {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let name = suffix.split(|letter| !is_name(letter)).next().unwrap_or_default();
    !name.is_empty() && !PLACEHOLDER_USERS.contains(&name)
}

/// Returns the targets of the Markdown links in a line.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

fn escapes_root(path: &str, link: &str) -> bool {
    if link.contains("://") {
        return false;
    }
    let mut depth = path.matches('/').count();
    for step in link.split('/') {
        match step {
            ".." if depth == 0 => return true,
            ".." => depth -= 1,
            "" | "." => {}
            _ => depth += 1,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        let paths = MachinePaths::new(Path::new("/clones/nexus3"), Some(Path::new("/people/jane")));
        paths.check(&TextFile { path: path.to_owned(), text: text.to_owned() }).len()
    }

    #[test]
    fn machine_paths_and_links_out_of_the_clone_are_reported() {
        for line in [
            "cd /clones/nexus3/crates",
            "\"/people/jane/.cargo/bin\"",
            "PATH=/home/jane/bin",
            "/Users/jane/nexus3",
            "see [plan](../../elsewhere/plan.md)",
        ] {
            assert_eq!(found("docs/a.md", line), 1, "{line}");
        }
    }

    #[test]
    fn portable_paths_are_accepted() {
        for line in [
            "crates/clones/nexus3/src",
            "https://example.org/clones/nexus3/list",
            "$HOME/people/jane/x",
            "/home/user/project",
            "/home/<name>/",
            "/home/$USER/",
            "[methods](../reference/methods.md), [here](#there), [web](https://example.org/../x)",
        ] {
            assert_eq!(found("docs/guide/a.md", line), 0, "{line}");
        }
        assert_eq!(found("a.rs", "\"[x](../../y)\""), 0, "links are checked in documents only");
    }

    #[test]
    fn lock_files_are_not_checked() {
        assert_eq!(found("Cargo.lock", "/home/jane/x"), 0);
    }
}
