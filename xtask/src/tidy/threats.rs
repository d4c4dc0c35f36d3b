//! Rule: the table of threats and the tests named after its rows agree. Every test `threat_NN_…` is in row NN, and every
//! test in the table exists.

use std::collections::BTreeMap;

use syn::ItemFn;
use syn::visit::{self, Visit};

use super::finding::{Finding, Rule};
use super::rust_file::{RustFile, is_test_only};
use super::source_tree::TextFile;

const TABLE: &str = "docs/reference/threats.md";
const PREFIX: &str = "threat_";

pub(crate) fn check(texts: &[TextFile], files: &[RustFile<'_>]) -> Vec<Finding> {
    let table = texts.iter().find(|text| text.path == TABLE).map_or("", |text| text.text.as_str());
    let (named, tests) = (named_tests(table), tests(files));
    let mut findings: Vec<Finding> = named
        .iter()
        .filter_map(|entry| {
            let problem = if row_of(entry.test) != Some(entry.row) {
                format!("row {} names `{}`", entry.row, entry.test)
            } else if !tests.contains_key(entry.test) {
                format!("there is no test `{}`", entry.test)
            } else {
                return None;
            };
            let remedy = "name the tests of this row by their functions";
            Some(Finding::new(Rule::Threats, TABLE, entry.line, problem, remedy))
        })
        .collect();
    for (test, (path, line)) in &tests {
        if !named.iter().any(|entry| entry.test == test) {
            let problem = format!("`{test}` is not in {TABLE}");
            findings.push(Finding::new(
                Rule::Threats,
                path,
                *line,
                problem,
                "add it to the row of its number",
            ));
        }
    }
    findings
}

/// A test that the table names.
struct NamedTest<'text> {
    row: u32,
    test: &'text str,
    line: usize,
}

/// The tests in the table: all names in backticks that begin with the prefix, in lines `| NN | …`.
fn named_tests(table: &str) -> Vec<NamedTest<'_>> {
    let mut named = Vec::new();
    for (index, line) in table.lines().enumerate() {
        let number = line.strip_prefix('|').and_then(|rest| rest.split('|').next());
        let Some(row) = number.and_then(|number| number.trim().parse().ok()) else { continue };
        let quoted = line.split('`').skip(1).step_by(2).filter(|text| text.starts_with(PREFIX));
        named.extend(quoted.map(|test| NamedTest { row, test, line: index + 1 }));
    }
    named
}

/// The number in the name of a test.
fn row_of(test: &str) -> Option<u32> {
    test.strip_prefix(PREFIX)?.split('_').next()?.parse().ok()
}

/// The tests that are named after a row, with path and line.
fn tests<'text>(files: &[RustFile<'text>]) -> BTreeMap<String, (&'text str, usize)> {
    let mut tests = BTreeMap::new();
    for file in files {
        let mut visitor = TestVisitor(Vec::new());
        visitor.visit_file(&file.syntax);
        tests.extend(visitor.0.into_iter().map(|(name, line)| (name, (file.path, line))));
    }
    tests
}

struct TestVisitor(Vec<(String, usize)>);

impl<'ast> Visit<'ast> for TestVisitor {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        let ident = &function.sig.ident;
        if is_test_only(&function.attrs) && row_of(&ident.to_string()).is_some() {
            self.0.push((ident.to_string(), ident.span().start().line));
        }
        visit::visit_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "#[test]\nfn threat_63_paths() {}\nmod tests {\n    #[tokio::test]\n    async fn threat_64_links() {}\n}\n\
        fn threat_65_no_test() {}\n#[test]\nfn threat_model() {}\n";

    fn findings(table: &str) -> Vec<String> {
        let text = |path: &str, text: &str| TextFile { path: path.to_owned(), text: text.to_owned() };
        let (table, code) = (text(TABLE, table), text("crates/tools/tests/it/paths.rs", CODE));
        let file = RustFile::parse(&code).unwrap();
        check(&[table], &[file]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn table_with_all_tests_passes() {
        let table = "| number | attack | test |\n|---|---|---|\n\
            | 63 | `..` | `threat_63_paths` |\n| 64 | links | `threat_64_links` |\nSee `threat_99_elsewhere`.\n";
        assert_eq!(findings(table), Vec::<String>::new());
    }

    #[test]
    fn missing_rows_and_missing_tests_are_reported() {
        let table =
            "| 64 | links | `threat_63_paths`, `threat_64_gone` |\n| 65 | x | `threat_65_no_test` |\n";
        assert_eq!(
            findings(table),
            [
                "docs/reference/threats.md:1: threats: row 64 names `threat_63_paths`; \
                 name the tests of this row by their functions",
                "docs/reference/threats.md:1: threats: there is no test `threat_64_gone`; \
                 name the tests of this row by their functions",
                "docs/reference/threats.md:2: threats: there is no test `threat_65_no_test`; \
                 name the tests of this row by their functions",
                "crates/tools/tests/it/paths.rs:5: threats: `threat_64_links` is not in docs/reference/threats.md; \
                 add it to the row of its number",
            ]
        );
    }

    #[test]
    fn tests_need_the_table() {
        assert_eq!(findings("").len(), 2);
    }
}
