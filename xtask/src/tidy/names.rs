//! Rules on names across the workspace: no public type name in two crates, function names of at most 60 characters, and
//! a glossary of at most 20 entries.

use std::collections::BTreeMap;

use proc_macro2::{TokenStream, TokenTree};
use syn::{Item, Visibility};

use super::finding::{Finding, Rule};
use super::rust_file::{RustFile, is_test_only};
use super::source_tree::TextFile;
use super::workspace::Member;

const FUNCTION_NAME_CHARS_MAX: usize = 60;
const GLOSSARY_ENTRIES_MAX: usize = 20;
const GLOSSARY_FILE: &str = "ARCHITECTURE.md";

/// The definition of a public type.
struct PublicType<'text> {
    package: &'text str,
    path: &'text str,
    line: usize,
}

/// Reports public types whose name another crate defines too. A re-export is not a definition.
pub(crate) fn check_types(
    members: &[Member],
    files: &[RustFile<'_>],
    test_modules: &[String],
) -> Vec<Finding> {
    let mut types: BTreeMap<String, Vec<PublicType<'_>>> = BTreeMap::new();
    for file in files.iter().filter(|file| !super::rust_file::is_test(file.path, test_modules)) {
        let Some(member) = member_of_source(members, file.path) else { continue };
        for (name, line) in public_types(&file.syntax.items) {
            types.entry(name).or_default().push(PublicType { package: &member.name, path: file.path, line });
        }
    }
    types.iter().flat_map(|(name, types)| duplicates(name, types)).collect()
}

fn member_of_source<'text>(members: &'text [Member], path: &str) -> Option<&'text Member> {
    members.iter().find(|member| path.starts_with(&format!("{}/src/", member.folder)))
}

fn public_types(items: &[Item]) -> Vec<(String, usize)> {
    let mut types = Vec::new();
    for item in items {
        let (visibility, attributes, ident) = match item {
            Item::Struct(item) => (&item.vis, &item.attrs, &item.ident),
            Item::Enum(item) => (&item.vis, &item.attrs, &item.ident),
            Item::Trait(item) => (&item.vis, &item.attrs, &item.ident),
            Item::Type(item) => (&item.vis, &item.attrs, &item.ident),
            Item::Mod(module) if !is_test_only(&module.attrs) => {
                types.extend(module.content.iter().flat_map(|(_, items)| public_types(items)));
                continue;
            }
            _ => continue,
        };
        if matches!(visibility, Visibility::Public(_)) && !is_test_only(attributes) {
            types.push((ident.to_string(), ident.span().start().line));
        }
    }
    types
}

fn duplicates(name: &str, types: &[PublicType<'_>]) -> Vec<Finding> {
    let Some(first) = types.first() else { return Vec::new() };
    let others = types.iter().filter(|other| other.package != first.package);
    others
        .map(|other| {
            let problem = format!("`{name}` is public in {} too ({})", first.package, first.path);
            let remedy = "give one of them another name, or re-export one";
            Finding::new(Rule::DuplicateType, other.path, other.line, problem, remedy)
        })
        .collect()
}

/// Reports functions, including tests, whose name is too long.
pub(crate) fn check_functions(file: &RustFile<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    scan(file.path, &file.tokens, &mut findings);
    findings
}

/// Scans tokens instead of items, because tests inside `proptest!` are functions too.
fn scan(path: &str, tokens: &TokenStream, findings: &mut Vec<Finding>) {
    let mut is_after_fn = false;
    for token in tokens.clone() {
        match token {
            TokenTree::Group(group) => scan(path, &group.stream(), findings),
            TokenTree::Ident(ident) => {
                let chars = ident.to_string().chars().count();
                if is_after_fn && chars > FUNCTION_NAME_CHARS_MAX {
                    let problem = format!(
                        "`{ident}` has {chars} characters, at most {FUNCTION_NAME_CHARS_MAX} are allowed"
                    );
                    let line = ident.span().start().line;
                    findings.push(Finding::new(Rule::NameLength, path, line, problem, "shorten it"));
                }
                is_after_fn = ident == "fn";
                continue;
            }
            TokenTree::Literal(_) | TokenTree::Punct(_) => {}
        }
        is_after_fn = false;
    }
}

/// Reports a glossary with too many entries. Entries are set in bold.
pub(crate) fn check_glossary(text: &TextFile) -> Option<Finding> {
    if text.path != GLOSSARY_FILE {
        return None;
    }
    let heading = text.text.lines().position(|line| line.starts_with("## Glossary"))?;
    let section = text.text.lines().skip(heading + 1).take_while(|line| !line.starts_with("## "));
    let marks: usize = section.map(|line| line.matches("**").count()).sum();
    let entries = marks / 2;
    let problem = format!("the glossary has {entries} entries, at most {GLOSSARY_ENTRIES_MAX} are allowed");
    let remedy = "use an established term instead of a new entry";
    (entries > GLOSSARY_ENTRIES_MAX)
        .then(|| Finding::new(Rule::GlossarySize, &text.path, heading + 1, problem, remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str) -> Member {
        Member { name: name.to_owned(), folder: format!("crates/{name}"), dependencies: Vec::new() }
    }

    fn text(path: &str, text: &str) -> TextFile {
        TextFile { path: path.to_owned(), text: text.to_owned() }
    }

    fn types_found(sources: &[(&str, &str)]) -> Vec<String> {
        let texts: Vec<_> = sources.iter().map(|(path, source)| text(path, source)).collect();
        let files: Vec<_> = texts.iter().map(|text| RustFile::parse(text).unwrap()).collect();
        let findings = check_types(&[member("a"), member("b")], &files, &["crates/b/src/tests".to_owned()]);
        findings.into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn public_type_name_in_two_crates_is_reported() {
        let one = ("crates/a/src/lib.rs", "pub struct Entry;");
        for other in [
            "pub struct Entry;",
            "pub enum Entry {}",
            "pub trait Entry {}",
            "pub mod m { pub type Entry = u8; }",
        ] {
            assert_eq!(types_found(&[one, ("crates/b/src/x.rs", other)]), ["crates/b/src/x.rs"], "{other}");
        }
    }

    #[test]
    fn private_names_and_names_within_one_crate_are_accepted() {
        let one = ("crates/a/src/lib.rs", "pub struct Entry;");
        for other in [
            "struct Entry;",
            "pub(crate) struct Entry;",
            "pub use a::Entry;",
            "#[cfg(test)] mod t { pub struct Entry; }",
        ] {
            assert!(types_found(&[one, ("crates/b/src/lib.rs", other)]).is_empty(), "{other}");
        }
        assert!(types_found(&[one, ("crates/a/src/x.rs", "pub struct Entry;")]).is_empty());
        assert!(types_found(&[one, ("crates/b/src/tests.rs", "pub struct Entry;")]).is_empty());
    }

    #[test]
    fn function_name_has_at_most_60_characters() {
        let found = |name: &str| {
            let text = text("a.rs", &format!("proptest! {{ #[test] fn {name}() {{}} }}\n"));
            check_functions(&RustFile::parse(&text).unwrap()).len()
        };
        assert_eq!(found(&"a".repeat(60)), 0);
        assert_eq!(found(&"a".repeat(61)), 1);
    }

    #[test]
    fn glossary_has_at_most_20_entries() {
        let entries = |count: usize| {
            format!("**bold** text\n## Glossary\n{}\n## More\n**x**\n", "**a** b\n".repeat(count))
        };
        assert!(check_glossary(&text("ARCHITECTURE.md", &entries(20))).is_none());
        assert!(check_glossary(&text("ARCHITECTURE.md", &entries(21))).is_some());
        assert!(check_glossary(&text("docs/x.md", &entries(21))).is_none());
    }
}
