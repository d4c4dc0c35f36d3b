//! `cargo xtask ci`: the ordered list of checks that a change has to pass before it is merged.
//! Developers and the CI machine run the same list.

use std::time::{Duration, Instant};

use crate::command::{self, Command, Failure};
use crate::{cargo, schema, tidy, weights};

pub(crate) const COMMAND: Command = Command {
    name: "ci",
    summary: "run all checks: fmt, tidy, clippy, tests, soak, schema, cargo-deny",
    help: "usage: cargo xtask ci\n\n\
        Run in order, and stop at the first failure:\n  \
        fmt      cargo fmt --check\n  \
        tidy     the project's own rules\n  \
        clippy   warnings are errors\n  \
        no-local clippy for the daemon without the local engine\n  \
        weights  nexus3 models pull, for the model weights that tests need\n  \
        test     all tests\n  \
        kill9    kill the daemon 200 times under load, and verify its data\n  \
        schema   compare the generated files with the code\n  \
        deny     cargo deny check bans licenses sources\n\n\
        Needs cargo-deny; `./scripts/test` installs it and then runs this command.",
    run,
};

enum Action {
    Cargo(&'static str),
    /// A cargo command that needs cargo-deny.
    Deny(&'static str),
    Tidy,
    /// Downloads the model weights that the tests of real models need.
    Weights,
    /// A cargo command whose environment names the weights' files.
    WithWeights(&'static str),
    SchemaCheck,
}

struct Step {
    name: &'static str,
    action: Action,
}

/// The features that ci checks and tests: all but `llama-cpp`, which needs cmake and a C++ compiler and is built by
/// `cargo xtask llama-cpp`. A test fails when a feature is missing from this list.
macro_rules! features {
    () => {
        "local/real-model-tests,nexus3-protocol/schema,nexus3/local,nexus3/real-model-tests"
    };
}

/// Cheap steps first: a formatting error is reported before anything is compiled.
const STEPS: &[Step] = &[
    Step { name: "fmt", action: Action::Cargo("fmt --all --check") },
    Step { name: "tidy", action: Action::Tidy },
    Step {
        name: "clippy",
        action: Action::Cargo(concat!(
            "clippy --workspace --all-targets --features ",
            features!(),
            " --locked -- -D warnings"
        )),
    },
    Step {
        name: "no-local",
        action: Action::Cargo("clippy -p nexus3 --no-default-features --locked -- -D warnings"),
    },
    Step { name: "weights", action: Action::Weights },
    Step {
        name: "test",
        action: Action::WithWeights(concat!("test --workspace --features ", features!(), " --locked")),
    },
    Step { name: "kill9", action: Action::Cargo("xtask soak kill9 --cycles 200") },
    Step { name: "schema", action: Action::SchemaCheck },
    Step { name: "deny", action: Action::Deny("deny --locked check bans licenses sources") },
];

fn run(arguments: &[String]) -> Result<(), Failure> {
    command::reject_arguments(COMMAND.name, arguments)?;
    let (times, failure) = run_in_order(STEPS, |step| {
        println!("\n==> {}: {}", step.name, step_command(step));
        run_step(step)
    });
    println!("\n{}", table(STEPS, &times, failure.is_some()));
    match (failure, STEPS.get(times.len().saturating_sub(1))) {
        (Some(failure), Some(step)) => Err(Failure::Failed(format!(
            "{}\nci stopped at `{}`; run it alone with `{}`",
            failure.message(),
            step.name,
            step_command(step)
        ))),
        (Some(failure), None) => Err(failure),
        (None, _) => Ok(()),
    }
}

fn run_step(step: &Step) -> Result<(), Failure> {
    match step.action {
        Action::Cargo(arguments) => cargo::run(arguments),
        Action::Deny(arguments) => cargo::require_cargo_deny().and_then(|()| cargo::run(arguments)),
        Action::Tidy => tidy::check_and_print(&cargo::root()),
        Action::Weights => weights::pull(),
        Action::WithWeights(arguments) => cargo::run_with_variables(arguments, &weights::test_variables()?),
        Action::SchemaCheck => schema::check(),
    }
}

fn step_command(step: &Step) -> String {
    match step.action {
        Action::Cargo(arguments) | Action::Deny(arguments) | Action::WithWeights(arguments) => {
            cargo::command_line(arguments)
        }
        Action::Weights => "nexus3 models pull".to_owned(),
        Action::Tidy => "cargo xtask tidy".to_owned(),
        Action::SchemaCheck => "cargo xtask schema --check".to_owned(),
    }
}

/// Returns the durations of the steps that ran, and the failure of the last one if it failed.
fn run_in_order(
    steps: &[Step],
    mut run_step: impl FnMut(&Step) -> Result<(), Failure>,
) -> (Vec<Duration>, Option<Failure>) {
    let mut times = Vec::new();
    for step in steps {
        let start = Instant::now();
        let outcome = run_step(step);
        times.push(start.elapsed());
        if let Err(failure) = outcome {
            return (times, Some(failure));
        }
    }
    (times, None)
}

fn table(steps: &[Step], times: &[Duration], last_failed: bool) -> String {
    let mut lines = vec![format!("{:<8}{:>10}  result", "step", "seconds")];
    for (index, step) in steps.iter().enumerate() {
        let seconds = times.get(index).map_or("-".to_owned(), |time| format!("{:.1}", time.as_secs_f64()));
        let result = match index + 1 {
            number if number < times.len() => "ok",
            number if number == times.len() && last_failed => "FAILED",
            number if number == times.len() => "ok",
            _ => "not run",
        };
        lines.push(format!("{:<8}{seconds:>10}  {result}", step.name));
    }
    let total: Duration = times.iter().sum();
    lines.push(format!("{:<8}{:>10.1}", "total", total.as_secs_f64()));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_failure_stops_the_run() {
        let mut seen = Vec::new();
        let (times, failure) = run_in_order(STEPS, |step| {
            seen.push(step.name);
            if step.name == "clippy" { Err(Failure::Failed("no".to_owned())) } else { Ok(()) }
        });
        assert_eq!(seen, ["fmt", "tidy", "clippy"]);
        assert_eq!(times.len(), 3);
        assert!(failure.is_some());
    }

    #[test]
    fn every_feature_except_llama_cpp_is_checked() {
        let metadata = cargo_metadata::MetadataCommand::new()
            .current_dir(cargo::root())
            .no_deps()
            .other_options(["--offline".to_owned()])
            .exec()
            .expect("cargo metadata of the workspace");
        let features = |package: &cargo_metadata::Package| {
            let name = package.name.to_string();
            package.features.keys().map(move |feature| format!("{name}/{feature}")).collect::<Vec<_>>()
        };
        let mut declared: Vec<String> = metadata.packages.iter().flat_map(features).collect();
        declared.retain(|feature| !feature.ends_with("/llama-cpp") && !feature.ends_with("/default"));
        declared.sort_unstable();
        assert_eq!(declared.join(","), features!());
    }

    #[test]
    fn all_steps_run_when_none_fails() {
        let (times, failure) = run_in_order(STEPS, |_| Ok(()));
        assert_eq!(times.len(), STEPS.len());
        assert!(failure.is_none());
    }

    #[test]
    fn table_shows_failed_and_skipped_steps() {
        let second = Duration::from_secs(1);
        let lines = table(STEPS, &[second, second], true);
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines[1], "fmt            1.0  ok");
        assert_eq!(lines[2], "tidy           1.0  FAILED");
        assert_eq!(lines[3], "clippy           -  not run");
        assert_eq!(lines[10], "total          2.0");
    }
}
