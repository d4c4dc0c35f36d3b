//! `cargo xtask soak`: what ci has no time for: seeded properties with many more cases, and kills without end.
//! The cases themselves are in the rooms they are about; this only builds and runs them.

mod kill9;
mod permissions;

use crate::command::{self, Command, Failure};

pub(crate) const COMMAND: Command = Command {
    name: "soak",
    summary: "seeded properties with millions of cases, and a daemon that is killed again and again",
    help: "usage: cargo xtask soak permissions [CASES]\n       \
        cargo xtask soak kill9 [--cycles N] [--seed S] [--release]\n\n\
        permissions: runs CASES random trees of agents (10000000 when left out) in release mode and holds every\n\
        agent against all of its ancestors: nobody may do or grant what one of them may not grant. Prints\n\
        progress and the rate. A case that fails names its seed; `CEILING_SEED=n cargo test -p agent\n\
        --test ceiling` repeats it.\n\n\
        kill9: starts the daemon, puts it under load, kills it by SIGKILL at a random moment, starts it again,\n\
        repeats every call that nobody has an answer to, and holds what is there against what clients were\n\
        told, what the model was asked and what tools wrote; N times (200 when left out). Prints its ledger\n\
        and the seed, which is made up when left out. --release takes the release build.\n\n\
        Exit code 1 when anything is not as it must be.",
    run,
};

fn run(arguments: &[String]) -> Result<(), Failure> {
    match arguments.split_first() {
        None => Err(Failure::Usage(COMMAND.help.to_owned())),
        Some((name, rest)) => match name.as_str() {
            "permissions" => permissions::run(rest),
            "kill9" => kill9::run(rest),
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
    fn what_cannot_be_run_is_refused_by_name() {
        assert!(run(&[]).is_err_and(|failure| failure.message().starts_with("usage:")));
        let refused = run(&["permission".to_owned()]);
        assert!(refused.is_err_and(|failure| failure.message().contains("`permission`")));
    }
}
