//! The arguments of `cargo xtask bench`.

use std::path::PathBuf;
use std::time::Duration;

use super::{COMMAND, GROUPS};
use crate::command::{Failure, unknown_argument};

const SECONDS_DEFAULT: u64 = 7;
const SECONDS_MAX: u64 = 3600;

/// The groups to run, the duration of load, and the JSON output file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// Names of groups; empty means all.
    groups: Vec<String>,
    /// The duration of load per side.
    pub(crate) time: Duration,
    pub(crate) json: Option<PathBuf>,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let mut options = Self { groups: Vec::new(), time: Duration::from_secs(SECONDS_DEFAULT), json: None };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut value =
                || arguments.next().ok_or_else(|| Failure::Usage(format!("`{argument}` needs a value")));
            match argument.as_str() {
                "--seconds" => options.time = parse_seconds(value()?)?,
                "--json" => options.json = Some(value()?.into()),
                flag if flag.starts_with('-') => return Err(unknown_argument(COMMAND.name, flag)),
                name if GROUPS.iter().any(|group| group.name == name) => options.groups.push(name.to_owned()),
                name => return Err(unknown_group(name)),
            }
        }
        Ok(options)
    }

    pub(crate) fn includes(&self, group: &str) -> bool {
        self.groups.is_empty() || self.groups.iter().any(|wanted| wanted == group)
    }
}

fn parse_seconds(text: &str) -> Result<Duration, Failure> {
    let seconds = text.parse().ok().filter(|seconds| (1..=SECONDS_MAX).contains(seconds));
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| Failure::Usage(format!("invalid number of seconds `{text}`; use 1 to {SECONDS_MAX}")))
}

fn unknown_group(name: &str) -> Failure {
    let names: Vec<_> = GROUPS.iter().map(|group| group.name).collect();
    Failure::Usage(format!("unknown group `{name}`; use one of {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &str) -> Result<Options, Failure> {
        Options::parse(&arguments.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn groups_and_options_are_parsed_in_any_order() {
        let options = parse("rpc --seconds 3 stall --json out.json").unwrap();
        assert!(options.includes("rpc") && options.includes("stall") && !options.includes("turn"));
        assert_eq!(options.time, Duration::from_secs(3));
        assert_eq!(options.json, Some(PathBuf::from("out.json")));
        assert!(parse("").unwrap().includes("memory"));
    }

    #[test]
    fn invalid_arguments_are_rejected_with_a_reason() {
        for (arguments, reason) in [
            ("rcp", "use one of rpc, turn, memory, start, stall"),
            ("--seconds", "needs a value"),
            ("--seconds 0", "invalid number of seconds"),
            ("--seconds soon", "invalid number of seconds"),
            ("--fast", "unknown argument `--fast`"),
        ] {
            let failure = parse(arguments).unwrap_err();
            assert!(matches!(&failure, Failure::Usage(text) if text.contains(reason)), "{failure:?}");
        }
    }
}
