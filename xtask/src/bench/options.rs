//! The arguments of `cargo xtask bench`.

use std::path::PathBuf;
use std::time::Duration;

use super::{COMMAND, GROUPS};
use crate::command::{Failure, unknown_argument};

const SECONDS_DEFAULT: u64 = 7;
const SECONDS_MAX: u64 = 3600;

/// What to measure, for how long, and where to write it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// Names of groups; none means all.
    groups: Vec<String>,
    /// How long each side is under load.
    pub(crate) time: Duration,
    pub(crate) json: Option<PathBuf>,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let mut options = Self { groups: Vec::new(), time: Duration::from_secs(SECONDS_DEFAULT), json: None };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value =
                || rest.next().ok_or_else(|| Failure::Usage(format!("`{argument}` needs a value")));
            match argument.as_str() {
                "--seconds" => options.time = seconds(value()?)?,
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

fn seconds(text: &str) -> Result<Duration, Failure> {
    let seconds = text.parse().ok().filter(|seconds| (1..=SECONDS_MAX).contains(seconds));
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| Failure::Usage(format!("`{text}` is no number of seconds from 1 to {SECONDS_MAX}")))
}

fn unknown_group(name: &str) -> Failure {
    let names: Vec<_> = GROUPS.iter().map(|group| group.name).collect();
    Failure::Usage(format!("no group `{name}`; there are {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &str) -> Result<Options, Failure> {
        Options::parse(&arguments.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn groups_time_and_file_are_read_in_any_order() {
        let options = parse("rpc --seconds 3 stall --json out.json").unwrap();
        assert!(options.includes("rpc") && options.includes("stall") && !options.includes("turn"));
        assert_eq!(options.time, Duration::from_secs(3));
        assert_eq!(options.json, Some(PathBuf::from("out.json")));
        assert!(parse("").unwrap().includes("memory"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_reason() {
        for (arguments, reason) in [
            ("rcp", "there are rpc, turn, memory, start, stall"),
            ("--seconds", "needs a value"),
            ("--seconds 0", "no number of seconds"),
            ("--seconds soon", "no number of seconds"),
            ("--fast", "does not know `--fast`"),
        ] {
            let failure = parse(arguments).unwrap_err();
            assert!(matches!(&failure, Failure::Usage(text) if text.contains(reason)), "{failure:?}");
        }
    }
}
