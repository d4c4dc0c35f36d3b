//! The group `agents`: what an agent costs: ten thousand of them created over HTTP, in time and in memory.

use std::time::Instant;

use super::Bench;
use super::report::{Goal, Row, Table};
use super::servers::{DaemonOptions, Server};
use super::statistics::{Latencies, Spread};
use crate::command::Failure;

const AGENTS: usize = 10_000;
const ROUNDS: usize = 3;
const KILOBYTES: f64 = 1e3;
const MILLISECONDS: f64 = 1e3;

/// What one round gave.
struct Round {
    resident: f64,
    private: f64,
    p50_ms: f64,
    p99_ms: f64,
}

pub(crate) fn measure(bench: &Bench) -> Result<Table, Failure> {
    let flat = (0..ROUNDS).map(|_| create(bench, "{}")).collect::<Result<Vec<_>, Failure>>()?;
    let below = (0..ROUNDS).map(|_| create(bench, PARENT)).collect::<Result<Vec<_>, Failure>>()?;
    let mut rows = rows("each", &flat);
    rows.extend(self::rows("each, with a parent", &below));
    Ok(Table {
        title: "agents: 10,000 created over HTTP, one connection",
        baseline: "",
        comparison: "",
        rows,
        notes: vec![
            "the agents have no messages; RSS after all of them less RSS before, by their number".to_owned(),
        ],
    })
}

const PARENT: &str = r#"{"parent_agent_id":"lead","cwd":"/","preset":"sandboxed"}"#;

fn create(bench: &Bench, params: &str) -> Result<Round, Failure> {
    let daemon = Server::daemon(bench, &DaemonOptions::default())?;
    let mut connection = daemon.connect()?;
    daemon.call(&mut connection, "/", "create_agent", r#"{"agent_id":"lead","preset":"trusted"}"#)?;
    let before = daemon.process.memory()?;
    let mut times = Latencies::default();
    for _ in 0..AGENTS {
        let start = Instant::now();
        daemon.call(&mut connection, "/", "create_agent", params)?;
        times.push(start.elapsed());
    }
    let after = daemon.process.memory()?;
    let each = |after: f64, before: f64| (after - before) / AGENTS as f64 / KILOBYTES;
    Ok(Round {
        resident: each(after.resident, before.resident),
        private: each(after.private, before.private),
        p50_ms: times.percentile(50) * MILLISECONDS,
        p99_ms: times.percentile(99) * MILLISECONDS,
    })
}

fn rows(name: &str, rounds: &[Round]) -> Vec<Row> {
    let row = |what: &str, unit, of: &dyn Fn(&Round) -> f64| {
        Row::new(format!("{name}: {what}"), unit, Spread::from_values(rounds.iter().map(of)))
    };
    vec![
        row("RSS", "KB", &|round| round.resident).goal(Goal::AtMost(10.0)),
        row("private", "KB", &|round| round.private),
        row("create p50", "ms", &|round| round.p50_ms).goal(Goal::AtMost(0.3)),
        row("create p99", "ms", &|round| round.p99_ms),
    ]
}
