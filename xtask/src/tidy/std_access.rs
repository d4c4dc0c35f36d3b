//! Rule: a room uses only the parts of the standard library, and of crates with the same functions, that its row in the
//! room table allows. Works on parsed code: comments and strings are ignored, renamed imports are resolved.

use std::borrow::Cow;
use std::collections::BTreeMap;

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{ImplItemFn, ItemFn, ItemImpl, ItemMod, ItemUse, Macro, Path, UseTree};

use super::finding::{Finding, Rule};
use super::rooms::{Room, StdAccess};
use super::rust_file::{RustFile, is_test_only};

const ENVIRONMENT_PATHS: &[&str] = &["std::env"];

/// Paths that code without side effects must not use; its caller passes in what it needs. `Path` has methods that open
/// files.
const IO_PATHS: &[&str] = &[
    "hyper",
    "hyper_util",
    "libc",
    "reqwest",
    "rustix",
    "rustls",
    "socket2",
    "std::env",
    "std::fs",
    "std::net",
    "std::os",
    "std::path",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
    "tokio::fs",
    "tokio::net",
    "tokio::process",
    "tokio_rustls",
];

/// Reports forbidden paths in a file, outside its tests.
pub(crate) fn check(file: &RustFile<'_>, room: &Room) -> Vec<Finding> {
    let (banned, remedy): (_, Cow<'_, str>) = match room.std_access {
        StdAccess::Pure => (
            IO_PATHS,
            "the room has no side effects: take the value as a parameter or through a trait".into(),
        ),
        StdAccess::IoIn(modules) if !is_in_module(file.path, modules) => {
            (IO_PATHS, format!("only {} may: take a handle from there", modules.join(" and ")).into())
        }
        StdAccess::Io | StdAccess::IoIn(_) => {
            (ENVIRONMENT_PATHS, "the binary reads the environment: take the value as an option".into())
        }
        StdAccess::IoAndEnvironment => return Vec::new(),
    };
    let mut paths = PathVisitor { banned, aliases: BTreeMap::new(), violations: Vec::new() };
    // Imports first, because a path may use a name that is imported further down.
    let mut imports = ImportVisitor { paths: &mut paths };
    imports.visit_file(&file.syntax);
    paths.visit_file(&file.syntax);
    paths
        .violations
        .into_iter()
        .map(|(line, path)| {
            let problem = format!("`{}` may not use `{path}`", room.name);
            Finding::new(Rule::StdAccess, file.path, line, problem, remedy.clone())
        })
        .collect()
}

/// Whether a file is one of these modules, or below one.
fn is_in_module(path: &str, modules: &[&str]) -> bool {
    let Some((_, module)) = path.split_once("/src/") else { return false };
    let module = module.strip_suffix(".rs").unwrap_or(module);
    modules.iter().any(|allowed| {
        module.strip_prefix(allowed).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// Collects forbidden paths.
struct PathVisitor {
    banned: &'static [&'static str],
    /// Imported names and their paths, where the import itself is allowed: `time` for `std::time`.
    aliases: BTreeMap<String, String>,
    violations: Vec<(usize, &'static str)>,
}

impl PathVisitor {
    fn record(&mut self, line: usize, path: &str) {
        if let Some(banned) = self.banned_in(path) {
            self.violations.push((line, banned));
        }
    }

    /// Resolves the first segment of a path by the imports, then records the path.
    fn record_path(&mut self, line: usize, path: &str) {
        let (first, rest) = path.split_once("::").unwrap_or((path, ""));
        match self.aliases.get(first) {
            Some(import) => self.record(line, &format!("{import}::{rest}")),
            None => self.record(line, path),
        }
    }

    fn banned_in(&self, path: &str) -> Option<&'static str> {
        // `use std::time::*` imports the clock as well.
        let glob_prefix = path.strip_suffix('*');
        self.banned.iter().copied().find(|banned| {
            path == *banned
                || path.strip_prefix(banned).is_some_and(|rest| rest.starts_with("::"))
                || glob_prefix.is_some_and(|prefix| banned.starts_with(prefix))
        })
    }

    fn record_import(&mut self, line: usize, path: String, name: &str) {
        if self.banned_in(&path).is_some() {
            self.record(line, &path);
        } else {
            self.aliases.insert(name.to_owned(), path);
        }
    }

    fn record_tokens(&mut self, tokens: TokenStream) {
        let mut path: Option<(usize, String)> = None;
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    match &mut path {
                        Some((_, text)) if colons == 2 => text.push_str(&format!("::{ident}")),
                        _ => {
                            self.record_pending(path.take());
                            path = Some((ident.span().start().line, ident.to_string()));
                        }
                    }
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.record_pending(path.take());
                    self.record_tokens(group.stream());
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => self.record_pending(path.take()),
            }
        }
        self.record_pending(path);
    }

    fn record_pending(&mut self, path: Option<(usize, String)>) {
        if let Some((line, path)) = path {
            self.record_path(line, &path);
        }
    }
}

impl<'ast> Visit<'ast> for PathVisitor {
    fn visit_path(&mut self, path: &'ast Path) {
        let parts: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if let Some(first) = path.segments.first() {
            self.record_path(first.ident.span().start().line, &parts.join("::"));
        }
        visit::visit_path(self, path);
    }

    /// Checks the paths in the tokens of a macro call, which syn does not parse.
    fn visit_macro(&mut self, call: &'ast Macro) {
        self.visit_path(&call.path);
        self.record_tokens(call.tokens.clone());
    }

    fn visit_item_use(&mut self, _: &'ast ItemUse) {
        // `ImportVisitor` has recorded the imports.
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_test_only(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if !is_test_only(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        if !is_test_only(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if !is_test_only(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }
}

/// Records imports in a `PathVisitor`.
struct ImportVisitor<'paths> {
    paths: &'paths mut PathVisitor,
}

impl ImportVisitor<'_> {
    fn record_tree(&mut self, prefix: &str, tree: &UseTree) {
        match tree {
            UseTree::Path(part) => self.record_tree(&format!("{prefix}{}::", part.ident), &part.tree),
            UseTree::Name(name) => self.record_name(prefix, &name.ident, None),
            UseTree::Rename(name) => self.record_name(prefix, &name.ident, Some(&name.rename)),
            UseTree::Glob(glob) => {
                let line = glob.star_token.spans[0].start().line;
                self.paths.record(line, &format!("{prefix}*"));
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.record_tree(prefix, tree)),
        }
    }

    fn record_name(&mut self, prefix: &str, ident: &Ident, rename: Option<&Ident>) {
        // `use std::time::{self}` imports `std::time`.
        let path = if ident == "self" {
            prefix.trim_end_matches("::").to_owned()
        } else {
            format!("{prefix}{ident}")
        };
        let last = path.rsplit("::").next().unwrap_or_default().to_owned();
        let name = rename.map_or(last, ToString::to_string);
        self.paths.record_import(ident.span().start().line, path, &name);
    }
}

impl<'ast> Visit<'ast> for ImportVisitor<'_> {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if !is_test_only(&item.attrs) {
            self.record_tree("", &item.tree);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_test_only(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if !is_test_only(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::rooms::ROOMS;
    use crate::tidy::source_tree::TextFile;

    fn violations(room: &str, source: &str) -> Vec<(usize, String)> {
        violations_in("a", room, source)
    }

    fn violations_in(module: &str, room: &str, source: &str) -> Vec<(usize, String)> {
        let text = TextFile { path: format!("crates/{room}/src/{module}.rs"), text: source.to_owned() };
        let file = RustFile::parse(&text).unwrap();
        let room = ROOMS.iter().find(|row| row.name == room).unwrap();
        let path_in = |problem: &str| problem.split('`').nth(3).unwrap().to_owned();
        let mut found: Vec<_> =
            check(&file, room).iter().map(|finding| (finding.line, path_in(&finding.problem))).collect();
        found.sort();
        found
    }

    #[test]
    fn pure_room_may_not_use_io() {
        for (source, path) in [
            ("use std::fs;", "std::fs"),
            ("use std::fs::File;", "std::fs"),
            ("use std::{collections::BTreeMap, net};", "std::net"),
            ("use std::time::{Duration, Instant};", "std::time::Instant"),
            ("use std::time::*;", "std::time::Instant"),
            ("pub use ::std::process::Command;", "std::process"),
            ("fn f() { let _ = std::time::SystemTime::now(); }", "std::time::SystemTime"),
            ("struct S(std::time::Instant);", "std::time::Instant"),
            ("use std::time; fn f() { time::Instant::now(); }", "std::time::Instant"),
            ("use std::time::{self as t}; fn f() { t::Instant::now(); }", "std::time::Instant"),
            ("use std as s; fn f() { s::thread::yield_now(); }", "std::thread"),
            ("fn f() { println!(\"{:?}\", std::env::args()); }", "std::env"),
            ("fn f() { assert!(!vec![std::env::args()].is_empty()); }", "std::env"),
        ] {
            assert_eq!(violations("agent", source), [(1, path.to_owned())], "{source}");
        }
    }

    #[test]
    fn comments_strings_and_tests_are_ignored() {
        for source in [
            "// std::fs\n/// std::net::TcpStream\nfn f() -> &'static str { \"std::env::var\" }",
            "use std::time::Duration;",
            "use std::{collections::BTreeMap, fmt};",
            "mod fs {} use crate::fs::read;",
            "#[cfg(test)] mod tests { use std::fs; fn f() { std::env::args(); } }",
            "#[cfg(test)] use std::fs;",
            "#[test] fn f() { std::env::temp_dir(); }",
            "fn f(env: u8) -> u8 { env }",
        ] {
            assert_eq!(violations("agent", source), [], "{source}");
        }
    }

    #[test]
    fn io_room_may_not_read_the_environment() {
        let source = "use std::fs;\nfn f() { std::time::Instant::now(); }\nuse std::env::var;\n";
        assert_eq!(violations("runtime", source), [(3, "std::env".to_owned())]);
        assert_eq!(violations("nexus3", source), []);
        assert_eq!(violations("testkit", source), []);
    }

    /// A tool that ignores the judge and opens what its arguments name.
    const PLANTED_TOOL: &str = r#"
        impl ToolDefinition for List {
            async fn run(input: Input, _handle: (), _call: Invocation) -> ToolResult {
                let names = std::fs::read_dir(&input.path).map_err(execution_failed)?;
                compact_json(&names.flatten().map(|entry| entry.file_name()).collect::<Vec<_>>())
            }
        }
    "#;

    #[test]
    fn tool_that_opens_a_path_is_reported() {
        assert_eq!(violations_in("fs/list", "tools", PLANTED_TOOL), [(4, "std::fs".to_owned())]);
        for (source, path) in [
            ("fn f(p: &str) { tokio::fs::read_dir(p); }", "tokio::fs"),
            ("use tokio::{fs as files, task};", "tokio::fs"),
            ("use rustix::fs::openat;", "rustix"),
            ("fn f(p: &str) { rustix::fs::open(p, flags, mode); }", "rustix"),
            ("fn f(p: *const i8) { unsafe { libc::open(p, 0) }; }", "libc"),
            ("fn f(p: &str) { std::path::Path::new(p).read_dir(); }", "std::path"),
            ("use std::os::unix::net::UnixStream;", "std::os"),
            ("use std::process::Command;", "std::process"),
            ("use tokio::process::Command;", "tokio::process"),
            ("use std::net::TcpStream;", "std::net"),
            ("use tokio::net::TcpStream;", "tokio::net"),
            ("use hyper::client::conn::http1;", "hyper"),
            ("fn f(u: &str) { reqwest::get(u); }", "reqwest"),
            ("use socket2::Socket;", "socket2"),
            ("use tokio_rustls::TlsConnector;", "tokio_rustls"),
        ] {
            for module in
                ["fs/list", "fs", "definition", "fs/beneath_roots", "text/workspace", "net", "net/web_fetch"]
            {
                assert_eq!(
                    violations_in(module, "tools", source),
                    [(1, path.to_owned())],
                    "{module}: {source}"
                );
            }
            for module in [
                "fs/beneath_root",
                "fs/beneath_root/replace",
                "net/egress/connection",
                "workspace",
                "workspace/git",
            ] {
                assert_eq!(violations_in(module, "tools", source), [], "{module}: {source}");
            }
        }
    }

    #[test]
    fn module_with_io_may_not_read_the_environment() {
        let source = "use std::env::var;";
        assert_eq!(violations_in("workspace", "tools", source), [(1, "std::env".to_owned())]);
    }

    #[test]
    fn forbidden_import_is_reported_once() {
        let source = "use std::fs;\nfn f() { fs::read(\"a\"); fs::read(\"b\"); }\n";
        assert_eq!(violations("agent", source), [(1, "std::fs".to_owned())]);
    }
}
