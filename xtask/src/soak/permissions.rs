//! `soak permissions`: runs the seeded property test of permissions in release mode.

use super::unknown_argument;
use crate::cargo;
use crate::command::Failure;

const TEST_COMMAND: &str = "test --release --locked -p agent --test ceiling -- --nocapture no_agent_exceeds";
/// The environment variable that sets the number of cases.
const CASES_VARIABLE: &str = "CEILING_CASES";
/// The environment variable that makes the test run a single case; it is removed from the environment.
const SEED_VARIABLE: &str = "CEILING_SEED";
const CASES_DEFAULT: u64 = 10_000_000;

pub(super) fn run(arguments: &[String]) -> Result<(), Failure> {
    let cases = parse_cases(arguments)?;
    println!("==> {CASES_VARIABLE}={cases} {}", cargo::command_line(TEST_COMMAND));
    let status = cargo::command(TEST_COMMAND)
        .env(CASES_VARIABLE, cases.to_string())
        .env_remove(SEED_VARIABLE)
        .status()
        .map_err(|cause| cargo::start_failure(TEST_COMMAND, &cause))?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::Failed("soak: permissions failed, see above".to_owned()))
    }
}

fn parse_cases(arguments: &[String]) -> Result<u64, Failure> {
    match arguments {
        [] => Ok(CASES_DEFAULT),
        [cases] => match cases.replace('_', "").parse() {
            Ok(0) | Err(_) => Err(unknown_argument(cases)),
            Ok(cases) => Ok(cases),
        },
        [_, more, ..] => Err(unknown_argument(more)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<u64, String> {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        parse_cases(&arguments).map_err(|failure| failure.message().to_owned())
    }

    #[test]
    fn number_of_cases_is_parsed() {
        assert_eq!(parse(&[]), Ok(10_000_000));
        assert_eq!(parse(&["5"]), Ok(5));
        assert_eq!(parse(&["1_000_000"]), Ok(1_000_000));
    }

    #[test]
    fn invalid_number_of_cases_is_rejected_by_name() {
        for (arguments, wrong) in
            [(vec!["0"], "`0`"), (vec!["-1"], "`-1`"), (vec!["many"], "`many`"), (vec!["1", "2"], "`2`")]
        {
            assert!(parse(&arguments).is_err_and(|message| message.contains(wrong)), "{arguments:?}");
        }
    }
}
