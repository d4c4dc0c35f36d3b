//! `cargo xtask schema`: the list of generated files, writing them, and checking that they are fresh.
//! What is in them is the business of the programs that print them.

use std::fs;
use std::path::Path;

use crate::cargo;
use crate::command::{self, Command, Failure};

pub(crate) const COMMAND: Command = Command {
    name: "schema",
    summary: "write the generated files, or --check that they are fresh",
    help: "usage: cargo xtask schema [--check]\n\n\
        Writes the files that are made from code: openrpc.json and the reference pages of the methods,\n\
        of the events, of the tools and of the configuration. A file that is already right is left alone.\n\n\
        --check  writes nothing; exit code 1 when a file differs, with its first differing line",
    run,
};

struct GeneratedFile {
    path: &'static str,
    /// The cargo call that prints the file.
    command: &'static str,
}

/// Every generated file there is.
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

/// Compares every file with what the code says now; ci calls it too.
pub(crate) fn check() -> Result<(), Failure> {
    let root = cargo::root();
    let mut stale = Vec::new();
    for generated in GENERATED {
        let fresh = generate(generated)?;
        let kept = read_existing(&root.join(generated.path))?;
        stale.extend(difference(generated.path, kept.as_deref(), &fresh));
    }
    if stale.is_empty() {
        println!("schema: {} generated files are fresh", GENERATED.len());
        return Ok(());
    }
    Err(Failure::Failed(stale.join("\n")))
}

fn write() -> Result<(), Failure> {
    let root = cargo::root();
    for generated in GENERATED {
        let fresh = generate(generated)?;
        let path = root.join(generated.path);
        if read_existing(&path)?.as_deref() == Some(fresh.as_str()) {
            println!("fresh    {}", generated.path);
            continue;
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|cause| io_failure(folder, &cause))?;
        }
        fs::write(&path, fresh).map_err(|cause| io_failure(&path, &cause))?;
        println!("written  {}", generated.path);
    }
    Ok(())
}

fn generate(generated: &GeneratedFile) -> Result<String, Failure> {
    let text = cargo::stdout_of(generated.command)?;
    if text.trim().is_empty() {
        // An empty file would pass every later check; the program that prints it is broken.
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

/// What to tell about one file, or nothing when it is fresh.
fn difference(path: &str, kept: Option<&str>, fresh: &str) -> Option<String> {
    let Some(kept) = kept else {
        return Some(format!("{path}: missing; `{FIX_COMMAND}` writes it"));
    };
    if kept == fresh {
        return None;
    }
    let same = kept.lines().zip(fresh.lines()).take_while(|(kept, fresh)| kept == fresh).count();
    let line_of = |text: &str| text.lines().nth(same).unwrap_or("(end of file)").to_owned();
    let line = same + 1;
    Some(format!(
        "{path}:{line}: differs from the code; `{FIX_COMMAND}` writes it again\n  file: {}\n  code: {}",
        line_of(kept),
        line_of(fresh)
    ))
}

#[cfg(test)]
mod tests {
    use super::difference;

    #[test]
    fn an_equal_file_is_fresh() {
        assert_eq!(difference("a.md", Some("one\ntwo\n"), "one\ntwo\n"), None);
    }

    #[test]
    fn a_stale_file_is_told_with_its_first_differing_line_and_the_fix() {
        let told = difference("a.md", Some("one\ntwo\n"), "one\n2\n").unwrap();
        assert_eq!(
            told,
            "a.md:2: differs from the code; `cargo xtask schema` writes it again\n  file: two\n  code: 2"
        );
    }

    #[test]
    fn a_missing_or_shorter_file_is_stale() {
        assert!(difference("a.md", None, "one\n").unwrap().starts_with("a.md: missing"));
        let told = difference("a.md", Some("one\n"), "one\ntwo\n").unwrap();
        assert!(told.contains("a.md:2:") && told.contains("file: (end of file)"), "{told}");
    }

    #[test]
    fn a_difference_in_the_last_newline_counts() {
        assert!(difference("a.md", Some("one"), "one\n").is_some());
    }
}
