//! `cargo xtask tidy`: reads the workspace and the source tree, applies every rule, prints all findings.
//! Each rule is a function in a module below; this file only combines them.

mod dependency_reasons;
mod finding;
mod machine_paths;
mod names;
mod retired_words;
mod rooms;
mod rust_file;
mod size;
mod source_rules;
mod source_tree;
mod std_access;
mod suppression;
#[cfg(test)]
mod tests;
mod threats;
mod workspace;

use std::path::Path;

use crate::cargo;
use crate::command::{self, Command, Failure};
use finding::Finding;
use machine_paths::MachinePaths;
use rust_file::RustFile;
use source_tree::TextFile;
use workspace::Member;

pub(crate) const COMMAND: Command = Command {
    name: "tidy",
    summary: "check rules on dependencies, sizes, names and words",
    help: "usage: cargo xtask tidy\n\n\
        Check the rules that the compiler does not:\n\
        - which crate may depend on which, and what it may use of the standard library\n  \
        (xtask/src/tidy/rooms.rs)\n\
        - a written reason for every dependency, under docs/decisions\n\
        - files of at most 500 lines, functions of at most 70\n\
        - function names of at most 60 characters\n\
        - no public type name in two crates\n\
        - no retired words (xtask/src/tidy/retired_words.rs)\n\
        - a glossary of at most 20 entries in ARCHITECTURE.md\n\
        - every test threat_NN_… in docs/reference/threats.md, and the reverse\n\
        - a `//!` header in every file, no unfinished code, no ignored tests, no\n  \
        `#[allow]`, no absolute paths of one machine\n\n\
        Prints findings as `path:line: rule: what is wrong; what to do`. Exit code 1\n\
        when there is any.\n\n\
        The comment `// tidy: allow <rule> because <reason>` suppresses a rule: in the\n\
        whole file when it precedes the first line of code, else for the function or\n\
        line below it.",
    run,
};

fn run(arguments: &[String]) -> Result<(), Failure> {
    command::reject_arguments(COMMAND.name, arguments)?;
    check_and_print(&cargo::root())
}

/// Checks the workspace at `root` and prints the findings; ci calls it too.
pub(crate) fn check_and_print(root: &Path) -> Result<(), Failure> {
    let findings = check(root)?;
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => {
            println!("tidy: no findings");
            Ok(())
        }
        1 => Err(Failure::Failed("tidy: 1 finding".to_owned())),
        count => Err(Failure::Failed(format!("tidy: {count} findings"))),
    }
}

/// Returns all findings in the workspace at `root`, ordered by path and line.
fn check(root: &Path) -> Result<Vec<Finding>, Failure> {
    let members = workspace::read(root)?;
    let texts = source_tree::read(root)?;
    let mut findings = rooms::check(&members);
    findings.extend(dependency_reasons::check(&members, &texts));
    let home = std::env::home_dir();
    let machine_paths = MachinePaths::new(root, home.as_deref());
    findings.extend(check_texts(&members, &texts, &machine_paths));
    findings.sort();
    Ok(findings)
}

fn check_texts(members: &[Member], texts: &[TextFile], machine_paths: &MachinePaths) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut files = Vec::new();
    for text in texts.iter().filter(|text| text.is_rust()) {
        match RustFile::parse(text) {
            Ok(file) => files.push(file),
            Err(finding) => findings.push(finding),
        }
    }
    let test_modules: Vec<String> = files.iter().flat_map(RustFile::test_modules).collect();
    findings.extend(names::check_types(members, &files, &test_modules));
    findings.extend(threats::check(texts, &files));
    for text in texts {
        let mut in_file = size::check_document(text);
        in_file.extend(names::check_glossary(text));
        in_file.extend(retired_words::check_text(text));
        in_file.extend(machine_paths.check(text));
        if let Some(file) = files.iter().find(|file| file.path == text.path) {
            in_file.extend(check_rust(members, &test_modules, text, file));
        }
        findings.extend(suppression::apply(text, in_file));
    }
    findings
}

fn check_rust(
    members: &[Member],
    test_modules: &[String],
    text: &TextFile,
    file: &RustFile<'_>,
) -> Vec<Finding> {
    let mut findings = source_rules::check(text, file);
    findings.extend(size::check_file(text));
    findings.extend(names::check_functions(file));
    findings.extend(retired_words::check_rust(text, file));
    if !rust_file::is_test(file.path, test_modules) {
        findings.extend(size::check_functions(file));
        if let Some(room) = rooms::room_of_source(members, file.path) {
            findings.extend(std_access::check(file, room));
        }
    }
    findings
}
