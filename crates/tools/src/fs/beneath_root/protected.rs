//! File and directory names that agents may not write, because their content is executed later, outside any agent, as
//! the user.

/// Directories whose files configure commands, and startup files of shells.
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

/// Whether any component of a path has a protected name.
pub(super) fn is_protected(path: &str) -> bool {
    path.split('/').any(|part| PROTECTED_NAMES.contains(&&*fold_case(part)))
}

/// The name as case-insensitive file systems compare it. Upper case first: some characters have two lower case forms.
fn fold_case(name: &str) -> String {
    name.to_uppercase().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protected_names_match_in_any_case_and_depth() {
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
