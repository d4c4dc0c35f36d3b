//! Rule: every external dependency has a written reason under `docs/decisions/`.

use std::collections::BTreeMap;

use super::finding::{Finding, Rule};
use super::source_tree::TextFile;
use super::workspace::Member;

const MANIFEST: &str = "Cargo.toml";
const DECISIONS: &str = "docs/decisions/";
const DEPENDENCIES_TABLE: &str = "workspace.dependencies";

pub(crate) fn check(members: &[Member], texts: &[TextFile]) -> Vec<Finding> {
    let decisions: Vec<&str> = texts
        .iter()
        .filter(|text| text.path.starts_with(DECISIONS) && text.path.ends_with(".md"))
        .map(|text| text.text.as_str())
        .collect();
    let root = texts.iter().find(|text| text.path == MANIFEST).map_or("", |text| text.text.as_str());
    dependencies(members, root)
        .into_iter()
        .filter(|(name, _)| !decisions.iter().any(|decision| decision.contains(&format!("`{name}`"))))
        .map(|(name, (path, line))| {
            let problem = format!("no decision names `{name}`");
            let remedy = format!("write the reason, with `{name}` in backticks, in a file under {DECISIONS}");
            Finding::new(Rule::DependencyReason, &path, line, problem, remedy)
        })
        .collect()
}

/// Returns the external dependencies with the path and line that declare them: the root manifest if it does, else a
/// member's manifest.
fn dependencies(members: &[Member], root: &str) -> BTreeMap<String, (String, usize)> {
    let mut declarations = BTreeMap::new();
    for (name, line) in workspace_dependencies(root) {
        declarations.insert(name, (MANIFEST.to_owned(), line));
    }
    for member in members {
        for dependency in &member.dependencies {
            let declaration = || (member.manifest(), dependency.line);
            declarations.entry(dependency.name.clone()).or_insert_with(declaration);
        }
    }
    declarations.retain(|name, _| members.iter().all(|member| member.name != *name));
    declarations
}

/// Returns the keys of `[workspace.dependencies]` that are not path dependencies, with their lines. Cargo's metadata
/// does not include this table, so it is parsed here.
fn workspace_dependencies(manifest: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    let mut is_in_table = false;
    let mut depth = 0_usize;
    for (index, line) in manifest.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if depth == 0 && line.starts_with('[') {
            let heading = line.trim_matches(['[', ']']).trim();
            is_in_table = heading == DEPENDENCIES_TABLE;
            let subtable = heading.strip_prefix(DEPENDENCIES_TABLE).and_then(|rest| rest.strip_prefix('.'));
            found.extend(subtable.map(|name| (name.to_owned(), index + 1)));
            continue;
        }
        let key = line.split(['=', '.']).next().unwrap_or_default().trim().trim_matches('"');
        if is_in_table && depth == 0 && !key.is_empty() && !line.contains("path =") {
            found.push((key.to_owned(), index + 1));
        }
        // A list of features may span several lines; its items are not keys.
        depth = (depth + line.matches(['[', '{']).count()).saturating_sub(line.matches([']', '}']).count());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::workspace::{Dependency, Purpose};

    const ROOT: &str = "[workspace]\nmembers = [\"crates/*\"]\n\n[workspace.dependencies]\n\
        agent = { path = \"crates/agent\" }\n\n# Numbers.\nbytes = \"1\"\ntokio = { version = \"1\", features = [\n    \
        \"net\",\n] }\nserde.version = \"1\"\n\n[workspace.dependencies.syn]\nversion = \"2\"\n\n[profile.dev]\ndebug = 0\n";

    fn texts(decision: &str) -> [TextFile; 2] {
        [("Cargo.toml", ROOT), ("docs/decisions/0001-crates.md", decision)]
            .map(|(path, text)| TextFile { path: path.to_owned(), text: text.to_owned() })
    }

    fn member(dependency: &str) -> Member {
        let dependency = Dependency { name: dependency.to_owned(), line: 9, purpose: Purpose::Build };
        Member { name: "agent".to_owned(), folder: "crates/agent".to_owned(), dependencies: vec![dependency] }
    }

    #[test]
    fn keys_of_the_root_table_are_parsed() {
        let names: Vec<_> = workspace_dependencies(ROOT);
        let expected = [("bytes", 8), ("tokio", 9), ("serde", 12), ("syn", 14)];
        assert_eq!(names, expected.map(|(name, line)| (name.to_owned(), line)));
    }

    #[test]
    fn dependency_without_a_reason_is_reported() {
        let texts = texts("`bytes`, `serde` and `syn` have reasons; tokio has none.");
        let findings = check(&[member("bytes")], &texts);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!((findings[0].path.as_str(), findings[0].line), ("Cargo.toml", 9));
        assert_eq!(findings[0].problem, "no decision names `tokio`");
    }

    #[test]
    fn dependency_of_a_single_member_needs_a_reason_too() {
        let texts = texts("`bytes` `serde` `syn` `tokio`");
        let findings = check(&[member("proptest")], &texts);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!((findings[0].path.as_str(), findings[0].line), ("crates/agent/Cargo.toml", 9));
        assert!(check(&[member("agent")], &texts).is_empty(), "workspace members need no reason");
    }
}
