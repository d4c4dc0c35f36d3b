//! Nothing in the tree may be true on one machine only: the clone's own place, a person's folder, a link that leads
//! out of the clone.
// tidy: allow machine-path because its tests are made of what it looks for

use std::path::Path;

use super::finding::{Finding, Rule};
use super::source_tree::TextFile;

/// Folders with one folder per person.
const HOME_PARENTS: &[&str] = &["/home/", "/Users/"];
/// Names that stand for anybody in examples.
const PLACEHOLDER_USERS: &[&str] = &["user", "you", "alice", "bob"];

/// Where this machine keeps things that another keeps elsewhere.
pub(crate) struct MachinePaths {
    folders: Vec<String>,
}

impl MachinePaths {
    /// The clone's place, and the home of whoever runs this.
    pub(crate) fn new(root: &Path, home: Option<&Path>) -> Self {
        let folders = [Some(root), home].into_iter().flatten().filter_map(Path::to_str);
        // A folder right below the top, such as `/src`, is a word in many other paths: only its inside counts.
        Self { folders: folders.filter(|path| path.len() > 1).map(|path| format!("{path}/")).collect() }
    }

    pub(crate) fn check(&self, text: &TextFile) -> Vec<Finding> {
        // Lock files are written by their tools.
        if text.path.ends_with(".lock") || text.path.ends_with("package-lock.json") {
            return Vec::new();
        }
        text.text
            .lines()
            .enumerate()
            .filter_map(|(index, line)| {
                let (wrong, remedy) = self.problem_in_line(&text.path, line)?;
                Some(Finding::new(Rule::MachinePath, &text.path, index + 1, wrong, remedy))
            })
            .collect()
    }

    fn problem_in_line(&self, path: &str, line: &str) -> Option<(String, &'static str)> {
        if self.folders.iter().any(|folder| absolute_path_rests(line, folder).next().is_some()) {
            let wrong = "a path of this machine".to_owned();
            return Some((wrong, "write it relative to the clone or to a setting"));
        }
        if HOME_PARENTS.iter().any(|folder| absolute_path_rests(line, folder).any(is_real_user)) {
            return Some(("a path in somebody's home".to_owned(), "write `~` or /home/user/"));
        }
        let link =
            path.ends_with(".md").then(|| links(line).find(|link| escapes_root(path, link))).flatten()?;
        Some((format!("the link `{link}` leads out of the clone"), "move what is needed into the tree"))
    }
}

/// What follows each place where `folder` begins an absolute path, not the middle of another one.
fn absolute_path_rests<'line>(line: &'line str, folder: &str) -> impl Iterator<Item = &'line str> {
    line.match_indices(folder).filter_map(move |(start, _)| {
        let inside = |before: char| before.is_alphanumeric() || "._-~*}>)".contains(before);
        let before = line[..start].chars().next_back();
        (!before.is_some_and(inside)).then(|| &line[start + folder.len()..])
    })
}

fn is_real_user(rest: &str) -> bool {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let name = rest.split(|letter| !is_name(letter)).next().unwrap_or_default();
    !name.is_empty() && !PLACEHOLDER_USERS.contains(&name)
}

/// The targets of Markdown links in a line.
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
        let places = MachinePaths::new(Path::new("/clones/nexus3"), Some(Path::new("/people/jane")));
        places.check(&TextFile { path: path.to_owned(), text: text.to_owned() }).len()
    }

    #[test]
    fn paths_of_one_machine_and_links_out_of_the_clone_are_found() {
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
    fn what_is_true_everywhere_is_fine() {
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
        assert_eq!(found("a.rs", "\"[x](../../y)\""), 0, "a link is one only in a document");
    }

    #[test]
    fn lock_files_are_their_tools_own() {
        assert_eq!(found("Cargo.lock", "/home/jane/x"), 0);
    }
}
