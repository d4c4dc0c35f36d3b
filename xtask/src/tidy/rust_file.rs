//! A parsed Rust file, and the distinction between product code and test code.

use proc_macro2::TokenStream;
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{Attribute, Meta, Token};

use super::finding::{Finding, Rule};
use super::source_tree::TextFile;

/// A Rust source file, as tokens and as a syntax tree.
pub(crate) struct RustFile<'text> {
    pub(crate) path: &'text str,
    /// All tokens, including those inside macro calls, which the syntax tree leaves unparsed.
    pub(crate) tokens: TokenStream,
    pub(crate) syntax: syn::File,
}

impl<'text> RustFile<'text> {
    pub(crate) fn parse(text: &'text TextFile) -> Result<Self, Finding> {
        let parse_error = |line: usize, cause: &str| {
            Finding::new(Rule::Parse, &text.path, line, format!("does not parse: {cause}"), "make it compile")
        };
        let tokens: TokenStream = text.text.parse().map_err(|cause: proc_macro2::LexError| {
            parse_error(cause.span().start().line, &cause.to_string())
        })?;
        let syntax = syn::parse2(tokens.clone())
            .map_err(|cause| parse_error(cause.span().start().line, &cause.to_string()))?;
        Ok(Self { path: &text.path, tokens, syntax })
    }

    /// Returns the paths, without extension, of the modules that this file declares as `#[cfg(test)] mod name;`.
    pub(crate) fn test_modules(&self) -> Vec<String> {
        let folder = module_folder(self.path);
        self.syntax
            .items
            .iter()
            .filter_map(|item| match item {
                syn::Item::Mod(module) if module.content.is_none() && is_test_only(&module.attrs) => {
                    Some(format!("{folder}{}", module.ident))
                }
                _ => None,
            })
            .collect()
    }
}

/// Returns the directory of the file's submodules: `src/` for `src/lib.rs`, `src/pool/` for `src/pool.rs`.
fn module_folder(path: &str) -> String {
    let (folder, name) = path.rsplit_once('/').map_or(("", path), |(folder, name)| (folder, name));
    let stem = name.trim_end_matches(".rs");
    let folder = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    if matches!(stem, "lib" | "main" | "mod") { folder } else { format!("{folder}{stem}/") }
}

/// Whether the whole file is test code: in a `tests` directory, or in a test module.
pub(crate) fn is_test(path: &str, test_modules: &[String]) -> bool {
    path.split('/').any(|part| part == "tests")
        || test_modules
            .iter()
            .any(|module| path == format!("{module}.rs") || path.starts_with(&format!("{module}/")))
}

/// Whether the item exists in test builds only: `#[test]`, `#[cfg(test)]`, `#[cfg(all(test, …))]`.
pub(crate) fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.segments.last().is_some_and(|last| last.ident == "test"),
        Meta::List(list) if list.path.is_ident("cfg") => {
            list.parse_args::<Meta>().is_ok_and(|condition| requires_test(&condition))
        }
        Meta::List(list) => list.path.segments.last().is_some_and(|last| last.ident == "test"),
        Meta::NameValue(_) => false,
    })
}

fn requires_test(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("all") => {
            let parts = Punctuated::<Meta, Token![,]>::parse_terminated;
            parts.parse2(list.tokens.clone()).is_ok_and(|parts| parts.iter().any(requires_test))
        }
        Meta::List(_) | Meta::NameValue(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &str, text: &str) -> TextFile {
        TextFile { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn test_modules_are_found_by_their_declaration() {
        let source = "#[cfg(test)]\nmod tests;\nmod step;\n#[cfg(all(test, unix))]\nmod sim;\n";
        for (path, expected) in [
            ("crates/agent/src/lib.rs", ["crates/agent/src/tests", "crates/agent/src/sim"]),
            ("crates/agent/src/turn.rs", ["crates/agent/src/turn/tests", "crates/agent/src/turn/sim"]),
        ] {
            let text = text(path, source);
            assert_eq!(RustFile::parse(&text).unwrap().test_modules(), expected);
        }
    }

    #[test]
    fn file_in_a_test_module_is_test_code() {
        let modules = ["src/turn/sim".to_owned()];
        for (path, expected) in [
            ("src/turn/sim.rs", true),
            ("src/turn/sim/world.rs", true),
            ("src/turn/simple.rs", false),
            ("crates/nexus3/tests/it/main.rs", true),
        ] {
            assert_eq!(is_test(path, &modules), expected, "{path}");
        }
    }

    #[test]
    fn only_conditions_that_require_test_are_test_only() {
        for (attribute, expected) in [
            ("#[cfg(test)]", true),
            ("#[cfg(all(test, unix))]", true),
            ("#[test]", true),
            ("#[tokio::test]", true),
            ("#[tokio::test(start_paused = true)]", true),
            ("#[cfg(any(test, unix))]", false),
            ("#[cfg(not(test))]", false),
            ("#[must_use]", false),
        ] {
            let item: syn::ItemFn = syn::parse_str(&format!("{attribute} fn f() {{}}")).unwrap();
            assert_eq!(is_test_only(&item.attrs), expected, "{attribute}");
        }
    }

    #[test]
    fn parse_error_is_reported_with_its_line() {
        let broken = text("a.rs", "//! A.\nfn f( {}\n");
        let finding = RustFile::parse(&broken).err().unwrap();
        assert_eq!((finding.rule, finding.line), (Rule::Parse, 2));
    }
}
