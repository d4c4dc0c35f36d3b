//! The group `direct`: a call through the in-process API; the baseline is the same call over HTTP.

use std::process::Stdio;

use super::Bench;
use super::process::clean_command;
use super::report::{Goal, Row, Table};
use super::statistics::Spread;
use crate::command::Failure;

pub(crate) fn measure(bench: &Bench) -> Result<Table, Failure> {
    let mut command = clean_command(&bench.programs.embed);
    let output = command.arg("measure").stdin(Stdio::null()).output();
    let output = output.map_err(|cause| Failure::Failed(format!("embed did not start: {cause}")))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let rounds: Option<Vec<(f64, f64)>> = printed.lines().map(parse_round).collect();
    let rounds = rounds.filter(|rounds| output.status.success() && !rounds.is_empty()).ok_or_else(|| {
        let stderr = String::from_utf8_lossy(&output.stderr);
        Failure::Failed(format!("embed printed no figures ({}): {printed}{stderr}", output.status))
    })?;
    let in_process: Vec<f64> = rounds.iter().map(|(in_process, _)| *in_process).collect();
    let http: Vec<f64> = rounds.iter().map(|(_, http)| *http).collect();
    let speedup = Spread::from_pairs(&in_process, &http, |in_process, http| http / in_process);
    let spread = |values: &[f64]| Spread::from_values(values.iter().copied());
    Ok(Table {
        title: "direct: get_context through the in-process API; baseline: HTTP, persistent connection",
        baseline: "HTTP",
        comparison: "speedup",
        rows: vec![
            Row::new("latency of a call", "us", spread(&in_process)).goal(Goal::AtMost(5.0)),
            Row::new("speedup over HTTP", "us", spread(&in_process))
                .baseline(spread(&http))
                .comparison(speedup)
                .goal(Goal::ComparisonAtLeast(10.0)),
        ],
        notes: vec![
            "examples/embed.rs: client, server and agents are in one process; debug builds are not measured"
                .to_owned(),
        ],
    })
}

/// Parses the microseconds per call in process and over HTTP.
fn parse_round(line: &str) -> Option<(f64, f64)> {
    let (in_process, http) = line.split_once(' ')?;
    Some((in_process.parse().ok()?, http.parse().ok()?))
}
