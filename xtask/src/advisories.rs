//! `cargo xtask advisories`: known security holes in our dependencies.
//! Apart from ci because the database comes from the network, and ci has to work without it.

use std::io::Write;

use crate::cargo;
use crate::command::{self, Command, Failure};

pub(crate) const COMMAND: Command = Command {
    name: "advisories",
    summary: "known security holes in dependencies; fetches a database from the network",
    help: "usage: cargo xtask advisories\n\n\
        Runs `cargo deny check advisories` with the rules of deny.toml. It fetches the RustSec advisory\n\
        database first, so it needs the network; `cargo xtask ci` does not run it. Exit code 1 when a\n\
        dependency has a known hole, is yanked or unmaintained, or when the database can't be fetched.",
    run,
};

const CHECK_COMMAND: &str = "deny --locked check advisories";

fn run(arguments: &[String]) -> Result<(), Failure> {
    command::reject_arguments(COMMAND.name, arguments)?;
    cargo::require_cargo_deny()?;
    let output = cargo::command(CHECK_COMMAND)
        .output()
        .map_err(|cause| cargo::start_failure(CHECK_COMMAND, &cause))?;
    // A closed pipe behind us is no reason to hide the verdict.
    let _ = std::io::stdout().write_all(&output.stdout);
    let _ = std::io::stderr().write_all(&output.stderr);
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::Failed(verdict(&String::from_utf8_lossy(&output.stderr)).to_owned()))
}

fn verdict(messages: &str) -> &'static str {
    if messages.contains("failed to fetch advisory database") {
        "nothing was checked: the advisory database can't be fetched from here; \
         run `cargo xtask advisories` where the network reaches it"
    } else {
        "advisories: see above; update the crate, replace it, \
         or add it to `ignore` in deny.toml with a reason"
    }
}

#[cfg(test)]
mod tests {
    use super::verdict;

    #[test]
    fn an_unreachable_database_is_not_called_a_finding() {
        let messages = "[ERROR] failed to fetch advisory database https://example.org: failed to clone";
        assert!(verdict(messages).starts_with("nothing was checked"));
        assert!(verdict("error[vulnerability]: a hole").starts_with("advisories: see above"));
    }
}
