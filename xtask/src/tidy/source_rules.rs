//! Rules for every Rust file: a header, no unfinished code, no `allow` attributes, no ignored tests, no `mod.rs`.
// tidy: allow fixme because this file searches for the marker

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use super::finding::{Finding, Rule};
use super::rust_file::RustFile;
use super::source_tree::TextFile;

const UNFINISHED: &[&str] = &["todo", "unimplemented", "dbg"];

pub(crate) fn check(text: &TextFile, file: &RustFile<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(header(text));
    findings.extend(mod_file(text));
    findings.extend(fixme(text));
    scan(file.path, &file.tokens, &mut findings);
    findings
}

fn header(text: &TextFile) -> Option<Finding> {
    let first = text.text.lines().map(str::trim).find(|line| !line.is_empty() && !is_plain_comment(line));
    let header = first.and_then(|line| line.strip_prefix("//!"));
    if header.is_some_and(|header| !header.trim().is_empty()) {
        return None;
    }
    let remedy = "describe in one to four lines what the file owns";
    Some(Finding::new(Rule::Header, &text.path, 1, "no `//!` header", remedy))
}

fn is_plain_comment(line: &str) -> bool {
    line.starts_with("//") && !line.starts_with("//!") && !line.starts_with("///")
}

fn mod_file(text: &TextFile) -> Option<Finding> {
    let (folder, name) = text.path.rsplit_once('/')?;
    let remedy = format!("move it to {folder}.rs");
    (name == "mod.rs").then(|| Finding::new(Rule::ModFile, &text.path, 1, "a file named mod.rs", remedy))
}

fn fixme(text: &TextFile) -> impl Iterator<Item = Finding> {
    text.text.lines().enumerate().filter(|(_, line)| line.contains("FIXME")).map(|(index, _)| {
        let remedy = "fix it now, or file an issue";
        Finding::new(Rule::Fixme, &text.path, index + 1, "a marker for later work", remedy)
    })
}

/// Scans all tokens, also inside macro calls; strings and comments are ignored.
fn scan(path: &str, tokens: &TokenStream, findings: &mut Vec<Finding>) {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    for (index, token) in tokens.iter().enumerate() {
        match (token, &tokens[index + 1..]) {
            (TokenTree::Ident(name), [TokenTree::Punct(bang), TokenTree::Group(_), ..])
                if bang.as_char() == '!' && UNFINISHED.iter().any(|unfinished| name == unfinished) =>
            {
                let problem = format!("`{name}!` is unfinished code");
                let line = name.span().start().line;
                findings.push(Finding::new(Rule::Unfinished, path, line, problem, "finish it or remove it"));
            }
            (TokenTree::Punct(hash), following) if hash.as_char() == '#' => {
                findings
                    .extend(attribute_of(following).and_then(|attribute| check_attribute(path, attribute)));
            }
            _ => {}
        }
        if let TokenTree::Group(group) = token {
            scan(path, &group.stream(), findings);
        }
    }
}

/// Returns the bracketed group after a `#` or `#!`.
fn attribute_of(tokens: &[TokenTree]) -> Option<&Group> {
    let group = match tokens {
        [TokenTree::Group(group), ..] => group,
        [TokenTree::Punct(bang), TokenTree::Group(group), ..] if bang.as_char() == '!' => group,
        _ => return None,
    };
    (group.delimiter() == Delimiter::Bracket).then_some(group)
}

fn check_attribute(path: &str, attribute: &Group) -> Option<Finding> {
    let line = attribute.span_open().start().line;
    if is_attribute(attribute.stream(), "allow") {
        let remedy =
            "write `#[expect(lint, reason = \"...\")]`, which gives the reason and warns when it is obsolete";
        return Some(Finding::new(Rule::AllowAttribute, path, line, "`allow` silences a lint", remedy));
    }
    if is_attribute(attribute.stream(), "ignore") {
        let remedy = "make it pass, or delete it";
        return Some(Finding::new(Rule::IgnoredTest, path, line, "the test never runs", remedy));
    }
    None
}

/// Whether the attribute is `name`, or a `cfg_attr` that expands to it.
fn is_attribute(attribute: TokenStream, name: &str) -> bool {
    let mut tokens = attribute.into_iter();
    match (tokens.next(), tokens.next()) {
        (Some(TokenTree::Ident(first)), _) if first == name => true,
        (Some(TokenTree::Ident(first)), Some(TokenTree::Group(inner))) if first == "cfg_attr" => {
            inner.stream().into_iter().any(|token| matches!(&token, TokenTree::Ident(ident) if ident == name))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, source: &str) -> Vec<(usize, Rule)> {
        let text = TextFile { path: path.to_owned(), text: source.to_owned() };
        let file = RustFile::parse(&text).unwrap();
        check(&text, &file).into_iter().map(|finding| (finding.line, finding.rule)).collect()
    }

    #[test]
    fn file_without_a_header_is_reported() {
        for source in ["//! Owns it.\nfn f() {}\n", "// tidy: allow x because y\n\n//! Owns it.\n"] {
            assert_eq!(found("a.rs", source), [], "{source}");
        }
        for source in ["fn f() {}\n", "//!\nfn f() {}\n", "", "// Owns it.\n", "/// Owns it.\nfn f() {}\n"] {
            assert_eq!(found("a.rs", source), [(1, Rule::Header)], "{source}");
        }
    }

    #[test]
    fn unfinished_code_is_reported_also_inside_macros() {
        for code in
            ["todo!()", "unimplemented!(\"later\")", "dbg!(1)", "assert!(dbg!(true))", "vec![todo!()]"]
        {
            let source = format!("//! A.\nfn f() {{\n    {code};\n}}\n");
            assert_eq!(found("a.rs", &source), [(3, Rule::Unfinished)], "{code}");
        }
    }

    #[test]
    fn comments_and_strings_are_not_unfinished_code() {
        let source = "//! A todo!() list.\n// dbg!(x)\nfn f(todo: u8) -> &'static str {\n    \
            if todo != 1 { \"todo!()\" } else { \"#[allow(x)]\" }\n}\n";
        assert_eq!(found("a.rs", source), []);
    }

    #[test]
    fn allow_attributes_are_reported_expect_is_accepted() {
        for attribute in ["#[allow(dead_code)]", "#[cfg_attr(unix, allow(dead_code))]"] {
            let source = format!("//! A.\n{attribute}\nfn f() {{}}\n");
            assert_eq!(found("a.rs", &source), [(2, Rule::AllowAttribute)], "{attribute}");
        }
        assert_eq!(found("a.rs", "//! A.\n#![allow(dead_code)]\n"), [(2, Rule::AllowAttribute)]);
        assert_eq!(found("a.rs", "//! A.\n#[expect(dead_code, reason = \"b\")]\nfn f() {}\n"), []);
    }

    #[test]
    fn ignored_tests_are_reported() {
        for attribute in ["#[ignore]", "#[ignore = \"slow\"]", "#[cfg_attr(unix, ignore)]"] {
            let source = format!("//! A.\n#[test]\n{attribute}\nfn f() {{}}\n");
            assert_eq!(found("a.rs", &source), [(3, Rule::IgnoredTest)], "{attribute}");
        }
    }

    #[test]
    fn fixme_comments_and_mod_files_are_reported() {
        assert_eq!(found("a.rs", "//! A.\n// FIXME: slow\n"), [(2, Rule::Fixme)]);
        assert_eq!(found("src/pool/mod.rs", "//! A.\n"), [(1, Rule::ModFile)]);
        assert_eq!(found("src/pool.rs", "//! A.\n"), []);
    }
}
