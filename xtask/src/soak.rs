//! `cargo xtask soak`: long tests: a seeded property test with millions of cases, and crash tests. ci runs the property
//! test with few cases, and 200 cycles of the crash test. The crates `agent` and `testkit` own the tests; this module
//! only builds and runs them.

mod kill9;
mod permissions;

use crate::command::{self, Command, Failure};

pub(crate) const COMMAND: Command = Command {
    name: "soak",
    summary: "run long tests: permission property, SIGKILL of the daemon",
    help: "usage: cargo xtask soak permissions [CASES]\n       \
        cargo xtask soak kill9 [--cycles N] [--seed S] [--release]\n\n\
        permissions: build CASES random agent trees (default 10000000) in release mode\n\
        and check that no agent may do or grant anything that one of its ancestors may\n\
        not grant. Prints progress and the rate. A failed case prints its seed; repeat\n\
        it with `CEILING_SEED=n cargo test -p agent --test ceiling`.\n\n\
        kill9: start the daemon, put it under load, send SIGKILL at a random moment,\n\
        restart it, retry every call without a response, and compare its data with the\n\
        responses that clients received, the requests that the model received and the\n\
        files that tools wrote. Repeats N times (default 200). Prints counts and the\n\
        seed, which is random by default. --release tests the release build.\n\n\
        Exit code 1 when a check fails.",
    run,
};

fn run(arguments: &[String]) -> Result<(), Failure> {
    match arguments.split_first() {
        None => Err(Failure::Usage(COMMAND.help.to_owned())),
        Some((name, arguments)) => match name.as_str() {
            "permissions" => permissions::run(arguments),
            "kill9" => kill9::run(arguments),
            _ => Err(unknown_argument(name)),
        },
    }
}

fn unknown_argument(argument: &str) -> Failure {
    command::unknown_argument(COMMAND.name, argument)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_soak_test_is_rejected_by_name() {
        assert!(run(&[]).is_err_and(|failure| failure.message().starts_with("usage:")));
        let rejected = run(&["permission".to_owned()]);
        assert!(rejected.is_err_and(|failure| failure.message().contains("`permission`")));
    }
}
