//! The rules of `.gitignore` and `.ignore` files. A rule file applies to its directory and everything below; a rule of a
//! deeper file precedes those above it, and in one file the last match decides.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// Names of rule files; the rules of a later one precede those of the others.
pub(super) const RULE_FILES: [&str; 2] = [".gitignore", ".ignore"];

/// Maximum size of a rule file; a longer one has no effect.
pub(super) const RULE_FILE_BYTES_MAX: u64 = 256 << 10;

/// Maximum number of rules of a file; further ones have no effect.
const RULES_MAX: usize = 2_000;

/// The rules of one directory.
#[derive(Default)]
pub(super) struct IgnoreRules {
    globs: GlobSet,
    rules: Vec<Rule>,
}

struct Rule {
    /// Whether a match includes the file again.
    is_negated: bool,
    directories_only: bool,
}

impl IgnoreRules {
    /// Parses the texts of a directory's rule files. A line that is not a valid pattern has no effect.
    pub(super) fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut globs = GlobSetBuilder::new();
        let mut rules = Vec::new();
        for line in texts.into_iter().flat_map(str::lines) {
            let Some((pattern, rule)) = parse_line(line) else { continue };
            let mut glob = GlobBuilder::new(&pattern);
            if let Ok(glob) = glob.literal_separator(true).backslash_escape(true).build()
                && rules.len() < RULES_MAX
            {
                globs.add(glob);
                rules.push(rule);
            }
        }
        // A set that is too large to compile has no rules.
        globs.build().map_or_else(|_| Self::default(), |globs| Self { globs, rules })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether the path, relative to the directory of the rules, is ignored; none if no rule matches.
    pub(super) fn is_ignored(&self, path: &str, is_directory: bool) -> Option<bool> {
        let matches = self.globs.matches(path);
        let mut rules = matches.into_iter().rev().filter_map(|index| self.rules.get(index));
        rules.find(|rule| is_directory || !rule.directories_only).map(|rule| !rule.is_negated)
    }
}

/// The glob of a line, relative to the directory of its file, and the rule.
fn parse_line(line: &str) -> Option<(String, Rule)> {
    let line = line.trim_end_matches('\r');
    if line.starts_with('#') {
        return None;
    }
    let line = trim_trailing_spaces(line);
    let (line, is_negated) = line.strip_prefix('!').map_or((line, false), |rest| (rest, true));
    let (line, directories_only) = line.strip_suffix('/').map_or((line, false), |rest| (rest, true));
    if line.is_empty() {
        return None;
    }
    let pattern = match line.strip_prefix('/') {
        Some(anchored) => anchored.to_owned(),
        None if line.contains('/') => line.to_owned(),
        None => format!("**/{line}"),
    };
    Some((pattern, Rule { is_negated, directories_only }))
}

/// Removes trailing spaces, except one that a backslash escapes.
fn trim_trailing_spaces(line: &str) -> &str {
    let trimmed = line.trim_end_matches(' ');
    let is_escaped = trimmed.ends_with('\\') && trimmed.len() < line.len();
    if is_escaped { &line[..=trimmed.len()] } else { trimmed }
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
            ("[", "[", false, None),
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
