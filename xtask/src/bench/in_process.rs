//! The group `direct`: a call to an agent in the same process, beside the same call over HTTP.

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
    let rounds: Option<Vec<(f64, f64)>> = printed.lines().map(round).collect();
    let rounds = rounds.filter(|rounds| output.status.success() && !rounds.is_empty()).ok_or_else(|| {
        let said = String::from_utf8_lossy(&output.stderr);
        Failure::Failed(format!("embed measured nothing ({}): {printed}{said}", output.status))
    })?;
    let direct: Vec<f64> = rounds.iter().map(|(direct, _)| *direct).collect();
    let http: Vec<f64> = rounds.iter().map(|(_, http)| *http).collect();
    let faster = Spread::from_pairs(&direct, &http, |direct, http| http / direct);
    let spread = |values: &[f64]| Spread::from_values(values.iter().copied());
    Ok(Table {
        title: "direct: get_context in the same process, beside HTTP with a kept connection",
        baseline: "HTTP",
        comparison: "times",
        rows: vec![
            Row::new("one call", "us", spread(&direct)).goal(Goal::AtMost(5.0)),
            Row::new("how much faster", "us", spread(&direct))
                .baseline(spread(&http))
                .comparison(faster)
                .goal(Goal::ComparisonAtLeast(10.0)),
        ],
        notes: vec![
            "examples/embed.rs: client, server and agents are in one process; a debug build is never measured".to_owned(),
        ],
    })
}

fn round(line: &str) -> Option<(f64, f64)> {
    let (direct, http) = line.split_once(' ')?;
    Some((direct.parse().ok()?, http.parse().ok()?))
}
