//! `cargo xtask soak`: the seeded properties with many more cases than ci has time for.
//! The cases themselves are tests of the room they are about; this only runs them in release mode.

use crate::cargo;
use crate::command::{self, Command, Failure};

pub(crate) const COMMAND: Command = Command {
    name: "soak",
    summary: "a seeded property with millions of cases",
    help: "usage: cargo xtask soak permissions [CASES]\n\n\
        Runs CASES random trees of agents (10000000 when left out) in release mode and holds every agent\n\
        against all of its ancestors: nobody may do or grant what one of them may not grant. Prints\n\
        progress and the rate. A case that fails names its seed; `CEILING_SEED=n cargo test -p agent\n\
        --test ceiling` repeats it. Exit code 1 when a case fails.",
    run,
};

struct Soak {
    name: &'static str,
    test: &'static str,
    /// How the test is told the number of cases.
    variable: &'static str,
    /// Would run one case instead.
    not_set: &'static str,
    cases: u64,
}

const SOAKS: &[Soak] = &[Soak {
    name: "permissions",
    test: "test --release --locked -p agent --test ceiling -- --nocapture nobody_may_do_or_grant",
    variable: "CEILING_CASES",
    not_set: "CEILING_SEED",
    cases: 10_000_000,
}];

fn run(arguments: &[String]) -> Result<(), Failure> {
    let (soak, cases) = chosen(arguments)?;
    println!("==> {}={cases} {}", soak.variable, cargo::shown(soak.test));
    let status = cargo::command(soak.test)
        .env(soak.variable, cases.to_string())
        .env_remove(soak.not_set)
        .status()
        .map_err(|cause| cargo::not_started(soak.test, &cause))?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::Failed(format!("soak: {} failed, see above", soak.name)))
    }
}

fn chosen(arguments: &[String]) -> Result<(&'static Soak, u64), Failure> {
    let unknown = |argument: &String| command::unknown_argument(COMMAND.name, argument);
    let Some((name, rest)) = arguments.split_first() else {
        return Err(Failure::Usage(COMMAND.help.to_owned()));
    };
    let soak = SOAKS.iter().find(|soak| soak.name == name).ok_or_else(|| unknown(name))?;
    match rest {
        [] => Ok((soak, soak.cases)),
        [cases] => match cases.replace('_', "").parse() {
            Ok(0) | Err(_) => Err(unknown(cases)),
            Ok(cases) => Ok((soak, cases)),
        },
        [_, more, ..] => Err(unknown(more)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(arguments: &[&str]) -> Result<(&'static str, u64), String> {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        let chosen = chosen(&arguments).map(|(soak, cases)| (soak.name, cases));
        chosen.map_err(|failure| failure.message().to_owned())
    }

    #[test]
    fn the_number_of_cases_can_be_chosen() {
        assert_eq!(choose(&["permissions"]), Ok(("permissions", 10_000_000)));
        assert_eq!(choose(&["permissions", "5"]), Ok(("permissions", 5)));
        assert_eq!(choose(&["permissions", "1_000_000"]), Ok(("permissions", 1_000_000)));
    }

    #[test]
    fn what_cannot_be_run_is_refused_by_name() {
        assert!(choose(&[]).is_err_and(|message| message.starts_with("usage:")));
        for (arguments, wrong) in [
            (vec!["permission"], "`permission`"),
            (vec!["permissions", "0"], "`0`"),
            (vec!["permissions", "-1"], "`-1`"),
            (vec!["permissions", "many"], "`many`"),
            (vec!["permissions", "1", "2"], "`2`"),
        ] {
            assert!(choose(&arguments).is_err_and(|message| message.contains(wrong)), "{arguments:?}");
        }
    }
}
