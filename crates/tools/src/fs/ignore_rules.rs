//! The rules of `.gitignore` and `.ignore` files. A rule file applies to its directory and everything below; a rule of a
//! deeper file precedes those above it, and in one file the last match decides.

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// Names of rule files; the rules of a later one precede those of the others.
pub(super) const RULE_FILES: [&str; 2] = [".gitignore", ".ignore"];

/// Maximum size of a rule file; a longer one has no effect.
pub(super) const RULE_FILE_BYTES_MAX: u64 = 256 << 10;

/// Maximum number of lines of a directory's rule files; further ones have no effect.
const RULES_MAX: usize = 2_000;

/// The rules of one directory.
pub(super) struct IgnoreRules(Gitignore);

impl IgnoreRules {
    /// Parses the texts of a directory's rule files. A line that is not a valid pattern has no effect.
    pub(super) fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut rules = GitignoreBuilder::new("");
        for line in texts.into_iter().flat_map(str::lines).take(RULES_MAX) {
            let _ = rules.add_line(None, line);
        }
        // A set that is too large to compile has no rules.
        Self(rules.build().unwrap_or_else(|_| Gitignore::empty()))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the path, relative to the directory of the rules, is ignored; none if no rule matches.
    pub(super) fn is_ignored(&self, path: &str, is_directory: bool) -> Option<bool> {
        match self.0.matched(path, is_directory) {
            Match::None => None,
            Match::Ignore(_) => Some(true),
            Match::Whitelist(_) => Some(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_match_as_git_documents_them() {
        for (rules, path, is_directory, expected) in [
            ("*.log", "a.log", false, Some(true)),
            ("*.log", "deep/er/a.log", false, Some(true)),
            ("/*.log", "deep/a.log", false, None),
            ("/target", "target", true, Some(true)),
            ("target/", "target", false, None),
            ("target/", "a/target", true, Some(true)),
            ("docs/*.txt", "docs/a.txt", false, Some(true)),
            ("docs/*.txt", "x/docs/a.txt", false, None),
            ("docs/*.txt", "docs/b/a.txt", false, None),
            ("a/**/b", "a/b", false, Some(true)),
            ("a/**/b", "a/x/y/b", false, Some(true)),
            ("# comment", "# comment", false, None),
            ("\\#x", "#x", false, Some(true)),
            ("x\\ ", "x ", false, Some(true)),
            ("x  ", "x", false, Some(true)),
            ("*.log\n!keep.log", "keep.log", false, Some(false)),
            ("!keep.log\n*.log", "keep.log", false, Some(true)),
            ("*.log\r\n", "a.log", false, Some(true)),
            ("", "x", false, None),
        ] {
            let parsed = IgnoreRules::parse([rules]);
            assert_eq!(parsed.is_ignored(path, is_directory), expected, "{rules:?} on {path}");
        }
    }

    #[test]
    fn rules_of_the_later_file_come_first() {
        let rules = IgnoreRules::parse(["*.log", "!a.log"]);
        assert_eq!(rules.is_ignored("a.log", false), Some(false));
        assert_eq!(rules.is_ignored("b.log", false), Some(true));
    }
}
