//! `cargo xtask schema`: the list of generated files, writing them, and checking that they are up to date.
//! The programs that print them own their content.

use std::fs;
use std::path::Path;

use crate::cargo;
use crate::command::{self, Command, Failure};

pub(crate) const COMMAND: Command = Command {
    name: "schema",
    summary: "write the generated files, or --check that they are up to date",
    help: "usage: cargo xtask schema [--check]\n\n\
        Write the files that are generated from code: openrpc.json and the reference\n\
        pages of methods, events, tools and configuration. Files that are up to date are\n\
        not written.\n\n\
        --check  write nothing; print the first differing line of each outdated file,\n         \
        exit code 1 when there is any",
    run,
};

struct GeneratedFile {
    path: &'static str,
    /// The cargo command that prints the file.
    command: &'static str,
}

/// All generated files.
const GENERATED: &[GeneratedFile] = &[
    GeneratedFile {
        path: "lib/nexus3-protocol/openrpc.json",
        command: "run -q -p nexus3-protocol --features schema --example openrpc -- json",
    },
    GeneratedFile {
        path: "docs/reference/methods.md",
        command: "run -q -p nexus3-protocol --features schema --example openrpc -- markdown",
    },
    GeneratedFile {
        path: "docs/reference/events.md",
        command: "run -q -p nexus3-protocol --features schema --example openrpc -- events",
    },
    GeneratedFile { path: "docs/reference/tools.md", command: "run -q -p tools --example page" },
    GeneratedFile { path: "docs/reference/config.md", command: "run -q -p nexus3 -- config reference" },
];

const FIX_COMMAND: &str = "cargo xtask schema";

fn run(arguments: &[String]) -> Result<(), Failure> {
    match arguments.split_first() {
        Some((first, rest)) if first == "--check" => {
            command::reject_arguments(COMMAND.name, rest)?;
            check()
        }
        _ => {
            command::reject_arguments(COMMAND.name, arguments)?;
            write()
        }
    }
}

/// Compares every generated file with the output of its generator; ci calls it too.
pub(crate) fn check() -> Result<(), Failure> {
    let root = cargo::root();
    let mut outdated = Vec::new();
    for generated in GENERATED {
        let expected = generate(generated)?;
        let existing = read_existing(&root.join(generated.path))?;
        outdated.extend(difference(generated.path, existing.as_deref(), &expected));
    }
    if outdated.is_empty() {
        println!("schema: {} generated files are up to date", GENERATED.len());
        return Ok(());
    }
    Err(Failure::Failed(outdated.join("\n")))
}

fn write() -> Result<(), Failure> {
    let root = cargo::root();
    for generated in GENERATED {
        let expected = generate(generated)?;
        let path = root.join(generated.path);
        if read_existing(&path)?.as_deref() == Some(expected.as_str()) {
            println!("current  {}", generated.path);
            continue;
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|cause| io_failure(folder, &cause))?;
        }
        fs::write(&path, expected).map_err(|cause| io_failure(&path, &cause))?;
        println!("written  {}", generated.path);
    }
    Ok(())
}

fn generate(generated: &GeneratedFile) -> Result<String, Failure> {
    let text = cargo::stdout_of(generated.command)?;
    if text.trim().is_empty() {
        // An empty file would pass every later check, and only a broken generator prints nothing.
        return Err(Failure::Failed(format!(
            "{}: `{}` printed nothing",
            generated.path,
            cargo::command_line(generated.command)
        )));
    }
    Ok(text)
}

fn read_existing(path: &Path) -> Result<Option<String>, Failure> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(io_failure(path, &cause)),
    }
}

fn io_failure(path: &Path, cause: &std::io::Error) -> Failure {
    Failure::Failed(format!("{}: {cause}", path.display()))
}

/// Returns a message with the first difference, or none when the file is up to date.
fn difference(path: &str, existing: Option<&str>, expected: &str) -> Option<String> {
    let Some(existing) = existing else {
        return Some(format!("{path}: missing; run `{FIX_COMMAND}`"));
    };
    if existing == expected {
        return None;
    }
    let equal_lines =
        existing.lines().zip(expected.lines()).take_while(|(left, right)| left == right).count();
    let first_difference = |text: &str| text.lines().nth(equal_lines).unwrap_or("(end of file)").to_owned();
    Some(format!(
        "{path}:{}: differs from the code; run `{FIX_COMMAND}`\n  file: {}\n  code: {}",
        equal_lines + 1,
        first_difference(existing),
        first_difference(expected)
    ))
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn equal_file_has_no_difference() {
        assert_eq!(difference("a.md", Some("one\ntwo\n"), "one\ntwo\n"), None);
    }

    #[test]
    fn difference_names_the_first_differing_line_and_the_fix() {
        let message = difference("a.md", Some("one\ntwo\n"), "one\n2\n").unwrap();
        assert_eq!(
            message,
            "a.md:2: differs from the code; run `cargo xtask schema`\n  file: two\n  code: 2"
        );
    }

    #[test]
    fn missing_or_shorter_file_differs() {
        assert!(difference("a.md", None, "one\n").unwrap().starts_with("a.md: missing"));
        let message = difference("a.md", Some("one\n"), "one\ntwo\n").unwrap();
        assert!(message.contains("a.md:2:") && message.contains("file: (end of file)"), "{message}");
    }

    #[test]
    fn missing_final_newline_is_a_difference() {
        assert!(difference("a.md", Some("one"), "one\n").is_some());
    }
}
