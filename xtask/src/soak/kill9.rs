//! `soak kill9`: builds the daemon and testkit's program `kill9`, and runs `kill9` on the daemon.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use super::unknown_argument;
use crate::bench::programs::{Profile, build_one};
use crate::command::Failure;

const CYCLES_DEFAULT: u64 = 200;

/// The number of cycles, the seed, and the build profile of the daemon.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    cycles: u64,
    seed: Option<u64>,
    profile: Profile,
}

pub(super) fn run(arguments: &[String]) -> Result<(), Failure> {
    let options = Options::parse(arguments)?;
    let daemon = build_one(options.profile, "nexus3", "--package nexus3 --bin nexus3")?;
    let kill9 = build_one(Profile::Debug, "kill9", "--package testkit --bin kill9")?;
    let seed = options.seed.unwrap_or_else(seed_from_clock);
    println!("==> kill9 {} --cycles {} --seed {seed}", daemon.display(), options.cycles);
    let status = Command::new(&kill9)
        .arg(daemon)
        .args(["--cycles", &options.cycles.to_string(), "--seed", &seed.to_string()])
        .status()
        .map_err(|cause| Failure::Failed(format!("{} did not start: {cause}", kill9.display())))?;
    if status.success() { Ok(()) } else { Err(Failure::Failed("soak: kill9 failed, see above".to_owned())) }
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let mut options = Self { cycles: CYCLES_DEFAULT, seed: None, profile: Profile::Debug };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut number = || {
                let value =
                    arguments.next().ok_or_else(|| Failure::Usage(format!("`{argument}` needs a value")))?;
                value.replace('_', "").parse::<u64>().map_err(|_| unknown_argument(value))
            };
            match argument.as_str() {
                "--cycles" => options.cycles = number()?,
                "--seed" => options.seed = Some(number()?),
                "--release" => options.profile = Profile::Release,
                _ => return Err(unknown_argument(argument)),
            }
        }
        if options.cycles == 0 { Err(unknown_argument("--cycles 0")) } else { Ok(options) }
    }
}

/// A new seed for each run, which the command prints.
fn seed_from_clock() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::from(since_epoch.subsec_nanos()) ^ since_epoch.as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &str) -> Result<Options, String> {
        let arguments: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
        Options::parse(&arguments).map_err(|failure| failure.message().to_owned())
    }

    #[test]
    fn cycles_seed_and_profile_are_parsed() {
        let default = Options { cycles: 200, seed: None, profile: Profile::Debug };
        assert_eq!(parse(""), Ok(default));
        let chosen = Options { cycles: 1_000, seed: Some(7), profile: Profile::Release };
        assert_eq!(parse("--release --seed 7 --cycles 1_000"), Ok(chosen));
    }

    #[test]
    fn invalid_arguments_are_rejected_by_name() {
        for (arguments, wrong) in [
            ("--cycles", "needs a value"),
            ("--cycles 0", "`--cycles 0`"),
            ("--cycles many", "`many`"),
            ("5", "`5`"),
            ("--wrong", "`--wrong`"),
        ] {
            assert!(parse(arguments).is_err_and(|message| message.contains(wrong)), "{arguments:?}");
        }
    }
}
