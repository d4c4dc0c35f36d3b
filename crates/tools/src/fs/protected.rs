//! Names that no agent writes: what is in them runs later, outside of any agent, as the user.

/// Folders whose files are commands in disguise, and files that shells run when they start.
const PROTECTED_NAMES: &[&str] = &[
    ".git",
    ".vscode",
    ".idea",
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".profile",
    ".zshrc",
    ".zprofile",
    ".zshenv",
];

/// Whether any part of a path has such a name.
pub(super) fn is_protected(path: &str) -> bool {
    path.split('/').any(|part| PROTECTED_NAMES.contains(&&*fold_case(part)))
}

/// A name as disks see it that ignore case. Up first, then down: some letters have two small forms.
fn fold_case(name: &str) -> String {
    name.to_uppercase().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protected_names_are_found_in_any_spelling_and_depth() {
        for path in [
            "/w/.git",
            "/w/.git/hooks/pre-commit",
            "/w/.GIT/config",
            "/w/a/b/.Git/x",
            "/w/.vscode/tasks.json",
            "/w/.idea/x",
            "/h/.bashrc",
            "/h/.BASHRC",
            "/h/.ba\u{17f}hrc",
            "/h/.profile",
            "/h/.zshenv/x",
        ] {
            assert!(is_protected(path), "{path}");
        }
        for path in
            ["/w/.gitignore", "/w/git", "/w/.github/x", "/w/a.git", "/w/bashrc", "/w/.git2", "/w/. git"]
        {
            assert!(!is_protected(path), "{path}");
        }
    }
}
