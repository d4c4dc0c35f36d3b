//! Nothing in the tree may be true on one machine only: paths of a person's disk, hosts of a registry.
// tidy: allow machine-path because this file is the list of what it looks for

use super::finding::{Finding, Rule};
use super::tree::TextFile;

/// Beginnings of paths that exist on one machine only.
const FOLDERS: &[&str] = &["/work/", "/root/"];
/// Folders with one folder per person.
const PEOPLE: &[&str] = &["/home/", "/Users/"];
/// Names that stand for anybody in examples.
const ANYBODY: &[&str] = &["user", "you", "alice", "bob"];
/// Which registry is used is a setting of the machine, not of the project.
const REGISTRIES: &[&str] = &[
    "index.crates.io",
    "static.crates.io",
    "crates.io-index",
    "registry.npmjs.org",
    "files.pythonhosted.org",
];
/// What lies beside a clone is not part of it.
const OUTSIDE: &[&str] = &["../shared"];

pub(crate) fn check(text: &TextFile) -> Vec<Finding> {
    // Lock files name the registry by their format.
    if text.path.ends_with(".lock") || text.path.ends_with("package-lock.json") {
        return Vec::new();
    }
    text.text
        .lines()
        .enumerate()
        .filter_map(|(index, line)| {
            let (wrong, remedy) = objection(line)?;
            Some(Finding::new(Rule::MachinePath, &text.path, index + 1, wrong, remedy))
        })
        .collect()
}

fn objection(line: &str) -> Option<(String, &'static str)> {
    if let Some(folder) = FOLDERS.iter().find(|folder| starts_a_path(line, folder).next().is_some()) {
        return Some((format!("a path under `{folder}`"), "write it relative to the clone or to a setting"));
    }
    if PEOPLE.iter().any(|folder| starts_a_path(line, folder).any(names_a_person)) {
        return Some(("a path in somebody's home".to_owned(), "write `~` or /home/user/"));
    }
    if let Some(host) = REGISTRIES.iter().find(|host| line.contains(**host)) {
        return Some((format!("the host name `{host}`"), "leave the choice of a registry to the machine"));
    }
    let link = OUTSIDE.iter().find(|link| line.contains(**link))?;
    Some((format!("`{link}` is outside the clone"), "move what is needed into the tree"))
}

/// What follows each place where `folder` begins an absolute path, not the middle of another one.
fn starts_a_path<'line>(line: &'line str, folder: &str) -> impl Iterator<Item = &'line str> {
    line.match_indices(folder).filter_map(move |(start, _)| {
        let inside = |before: char| before.is_alphanumeric() || "._-~*}>)".contains(before);
        let before = line[..start].chars().next_back();
        (!before.is_some_and(inside)).then(|| &line[start + folder.len()..])
    })
}

fn names_a_person(rest: &str) -> bool {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let name = rest.split(|letter| !is_name(letter)).next().unwrap_or_default();
    !name.is_empty() && !ANYBODY.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        check(&TextFile { path: path.to_owned(), text: text.to_owned() }).len()
    }

    #[test]
    fn paths_and_hosts_of_one_machine_are_found() {
        for line in [
            "cd /work/main",
            "\"/root/.cargo/bin\"",
            "PATH=/home/jane/bin",
            "/Users/jane/nexus3",
            "see [plan](../shared/design.md)",
            "registry = \"sparse+https://index.crates.io/\"",
        ] {
            assert_eq!(found("docs/a.md", line), 1, "{line}");
        }
    }

    #[test]
    fn paths_that_are_true_everywhere_are_fine() {
        for line in [
            "crates/work/src",
            "https://example.org/work/list",
            "$HOME/work/x",
            "{root}/root/x",
            "/home/user/project",
            "/home/<name>/",
            "/home/$USER/",
            "/workspace",
            "the crates.io registry",
        ] {
            assert_eq!(found("docs/a.md", line), 0, "{line}");
        }
    }

    #[test]
    fn lock_files_name_their_registry() {
        assert_eq!(found("Cargo.lock", "registry+https://github.com/rust-lang/crates.io-index"), 0);
    }
}
