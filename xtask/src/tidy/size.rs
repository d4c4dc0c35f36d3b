//! Rules on size: lines of files, functions and root documents.

use syn::visit::{self, Visit};
use syn::{Block, ImplItemFn, ItemFn, ItemImpl, ItemMod, ItemTrait, Signature, TraitItemFn};

use super::finding::{Finding, Rule};
use super::rust_file::{RustFile, is_test_only};
use super::source_tree::TextFile;

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;
/// Maximum number of lines of documents in the root.
const DOCUMENT_LINES_MAX: &[(&str, usize)] = &[("ARCHITECTURE.md", 200), ("README.md", 60)];

pub(crate) fn check_file(text: &TextFile) -> Vec<Finding> {
    let remedy = "split it by responsibility";
    too_long(Rule::FileLines, text, FILE_LINES_MAX, remedy).into_iter().collect()
}

pub(crate) fn check_document(text: &TextFile) -> Vec<Finding> {
    DOCUMENT_LINES_MAX
        .iter()
        .filter(|(path, _)| *path == text.path)
        .filter_map(|(_, max)| too_long(Rule::DocumentLines, text, *max, "move the details to docs/"))
        .collect()
}

fn too_long(rule: Rule, text: &TextFile, max: usize, remedy: &str) -> Option<Finding> {
    let lines = text.text.lines().count();
    let problem = format!("{lines} lines, at most {max} are allowed");
    (lines > max).then(|| Finding::new(rule, &text.path, max + 1, problem, remedy))
}

/// Reports long functions outside tests. Tests may be long, because a table of cases is easier to read in one piece.
pub(crate) fn check_functions(file: &RustFile<'_>) -> Vec<Finding> {
    let mut functions = FunctionVisitor { path: file.path, findings: Vec::new() };
    functions.visit_file(&file.syntax);
    functions.findings
}

struct FunctionVisitor<'text> {
    path: &'text str,
    findings: Vec<Finding>,
}

impl FunctionVisitor<'_> {
    fn measure(&mut self, signature: &Signature, body: &Block) {
        let first = signature.fn_token.span.start().line;
        let last = body.brace_token.span.close().end().line;
        let lines = last + 1 - first;
        if lines > FUNCTION_LINES_MAX {
            let name = &signature.ident;
            let problem = format!("`{name}` has {lines} lines, at most {FUNCTION_LINES_MAX} are allowed");
            let remedy = "extract a function";
            self.findings.push(Finding::new(Rule::FunctionLines, self.path, first, problem, remedy));
        }
    }
}

impl<'ast> Visit<'ast> for FunctionVisitor<'_> {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if !is_test_only(&item.attrs) {
            self.measure(&item.sig, &item.block);
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if !is_test_only(&item.attrs) {
            self.measure(&item.sig, &item.block);
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        if let Some(body) = &item.default {
            self.measure(&item.sig, body);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_test_only(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if !is_test_only(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        if !is_test_only(&item.attrs) {
            visit::visit_item_trait(self, item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &str, text: String) -> TextFile {
        TextFile { path: path.to_owned(), text }
    }

    fn function_findings(source: &str) -> Vec<(usize, String)> {
        let text = text("a.rs", source.to_owned());
        let file = RustFile::parse(&text).unwrap();
        check_functions(&file).into_iter().map(|finding| (finding.line, finding.problem)).collect()
    }

    /// Returns a function with exactly `lines` lines.
    fn function(lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    step();\n".repeat(lines - 2))
    }

    #[test]
    fn function_has_at_most_70_lines() {
        assert_eq!(function_findings(&function(70)), []);
        let problem = "`long` has 71 lines, at most 70 are allowed".to_owned();
        assert_eq!(function_findings(&function(71)), [(1, problem.clone())]);
        assert_eq!(function_findings(&format!("#[inline]\n\n{}", function(71))), [(3, problem)]);
    }

    #[test]
    fn functions_in_nested_items_are_checked() {
        let long = function(71);
        for source in [
            format!("impl A {{\n{long}}}\n"),
            format!("trait A {{\n{long}}}\n"),
            format!("mod a {{\n{long}}}\n"),
            format!("#[cfg(any(test, unix))]\nmod a {{\n{long}}}\n"),
        ] {
            assert_eq!(function_findings(&source).len(), 1, "{source}");
        }
    }

    #[test]
    fn test_functions_may_be_long() {
        let long = function(90);
        for source in [format!("#[test]\n{long}"), format!("#[cfg(test)]\nmod tests {{\n{long}}}\n")] {
            assert_eq!(function_findings(&source), [], "{source}");
        }
    }

    #[test]
    fn file_has_at_most_500_lines() {
        assert!(check_file(&text("a.rs", "\n".repeat(500))).is_empty());
        assert_eq!(check_file(&text("a.rs", "\n".repeat(501)))[0].line, 501);
    }

    #[test]
    fn root_documents_have_a_maximum_length() {
        assert!(check_document(&text("README.md", "\n".repeat(60))).is_empty());
        assert_eq!(check_document(&text("README.md", "\n".repeat(61))).len(), 1);
        assert_eq!(check_document(&text("ARCHITECTURE.md", "\n".repeat(201))).len(), 1);
        assert!(check_document(&text("docs/README.md", "\n".repeat(61))).is_empty());
    }
}
