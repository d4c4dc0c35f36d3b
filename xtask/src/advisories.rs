//! `cargo xtask advisories`: security advisories that affect the dependencies.
//! Not part of ci, because the advisory database comes from the network and ci has to work without it.

use std::io::Write;

use crate::cargo;
use crate::command::{self, Command, Failure};

pub(crate) const COMMAND: Command = Command {
    name: "advisories",
    summary: "check dependencies for security advisories (needs the network)",
    help: "usage: cargo xtask advisories\n\n\
        Run `cargo deny check advisories` with the rules of deny.toml. It first fetches\n\
        the RustSec advisory database from the network, so `cargo xtask ci` does not run\n\
        it. Exit code 1: a dependency has an advisory, is yanked or unmaintained, or the\n\
        database cannot be fetched.",
    run,
};

const CHECK_COMMAND: &str = "deny --locked check advisories";

fn run(arguments: &[String]) -> Result<(), Failure> {
    command::reject_arguments(COMMAND.name, arguments)?;
    cargo::require_cargo_deny()?;
    let output = cargo::command(CHECK_COMMAND)
        .output()
        .map_err(|cause| cargo::start_failure(CHECK_COMMAND, &cause))?;
    // A closed output pipe must not hide the result.
    let _ = std::io::stdout().write_all(&output.stdout);
    let _ = std::io::stderr().write_all(&output.stderr);
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::Failed(verdict(&String::from_utf8_lossy(&output.stderr)).to_owned()))
}

fn verdict(messages: &str) -> &'static str {
    if messages.contains("failed to fetch advisory database") {
        "advisories not checked: the advisory database could not be fetched; \
         run `cargo xtask advisories` with network access"
    } else {
        "advisories found, see above: update the crate, replace it, \
         or add it to `ignore` in deny.toml with a reason"
    }
}

#[cfg(test)]
mod tests {
    use super::verdict;

    #[test]
    fn unreachable_database_is_not_reported_as_an_advisory() {
        let messages = "[ERROR] failed to fetch advisory database https://example.org: failed to clone";
        assert!(verdict(messages).starts_with("advisories not checked"));
        assert!(verdict("error[vulnerability]: a hole").starts_with("advisories found"));
    }
}
