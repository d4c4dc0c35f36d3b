//! The group `commands`: what the sandbox costs a command; the baseline is the same command without a sandbox.

use std::process::Stdio;

use super::Bench;
use super::process::clean_command;
use super::report::{Goal, Row, Table};
use super::statistics::Spread;
use crate::command::Failure;

pub(crate) fn measure(bench: &Bench) -> Result<Table, Failure> {
    let output = clean_command(&bench.programs.commands).stdin(Stdio::null()).output();
    let output = output.map_err(|cause| Failure::Failed(format!("commands did not start: {cause}")))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let rounds: Option<Vec<[f64; 3]>> = printed.lines().map(parse_round).collect();
    let rounds = rounds.filter(|rounds| output.status.success() && !rounds.is_empty()).ok_or_else(|| {
        let stderr = String::from_utf8_lossy(&output.stderr);
        Failure::Failed(format!("commands printed no figures ({}): {stderr}", output.status))
    })?;
    let column = |index: usize| -> Vec<f64> { rounds.iter().map(|round| round[index]).collect() };
    let plain = column(0);
    let row = |name: &str, values: &[f64]| {
        Row::new(name, "ms", Spread::from_values(values.iter().copied()))
            .baseline(Spread::from_values(plain.iter().copied()))
            .comparison(Spread::from_pairs(values, &plain, |confined, plain| confined - plain))
    };
    Ok(Table {
        title: "commands: /bin/true in the sandbox; baseline: started with posix_spawn",
        baseline: "plain",
        comparison: "added",
        rows: vec![
            row("tier landlock", &column(1)).goal(Goal::ComparisonAtMost(2.0)),
            row("tier namespaces", &column(2)),
        ],
        notes: vec![
            "from the start to the end of its output (crates/sandbox/examples/commands.rs); added: the \
             difference of neighbouring runs"
                .to_owned(),
        ],
    })
}

/// Parses the milliseconds without a sandbox and in the two tiers.
fn parse_round(line: &str) -> Option<[f64; 3]> {
    let figures: Option<Vec<f64>> = line.split(' ').map(|figure| figure.parse().ok()).collect();
    figures?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::parse_round;

    #[test]
    fn round_has_three_figures() {
        assert_eq!(parse_round("0.7 1.5 2.75"), Some([0.7, 1.5, 2.75]));
        for line in ["", "0.7 1.5", "0.7 1.5 x", "1 2 3 4"] {
            assert_eq!(parse_round(line), None, "{line}");
        }
    }
}
