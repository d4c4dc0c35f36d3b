//! The group `agents`: memory per agent and latency of `create_agent`, for 10,000 agents created over HTTP.

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

/// The figures of one round.
struct Round {
    rss_kb: f64,
    anonymous_kb: f64,
    p50_ms: f64,
    p99_ms: f64,
}

pub(crate) fn measure(bench: &Bench) -> Result<Table, Failure> {
    let roots = (0..ROUNDS).map(|_| create(bench, ROOT_PARAMS)).collect::<Result<Vec<_>, Failure>>()?;
    let children = (0..ROUNDS).map(|_| create(bench, CHILD_PARAMS)).collect::<Result<Vec<_>, Failure>>()?;
    let mut rows = rows("per root agent", &roots);
    rows.extend(self::rows("per child agent", &children));
    Ok(Table {
        title: "agents: 10,000 created over HTTP, one connection",
        baseline: "",
        comparison: "",
        rows,
        notes: vec![
            "the agents have no messages; memory is the growth of the RSS, divided by the number of agents"
                .to_owned(),
        ],
    })
}

const ROOT_PARAMS: &str = "{}";
const CHILD_PARAMS: &str = r#"{"parent_agent_id":"lead","cwd":"/","preset":"sandboxed"}"#;

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
    let kb_per_agent = |after: f64, before: f64| (after - before) / AGENTS as f64 / KILOBYTES;
    Ok(Round {
        rss_kb: kb_per_agent(after.rss, before.rss),
        anonymous_kb: kb_per_agent(after.anonymous, before.anonymous),
        p50_ms: times.percentile(50) * MILLISECONDS,
        p99_ms: times.percentile(99) * MILLISECONDS,
    })
}

fn rows(name: &str, rounds: &[Round]) -> Vec<Row> {
    let row = |measure: &str, unit, value: &dyn Fn(&Round) -> f64| {
        Row::new(format!("{name}: {measure}"), unit, Spread::from_values(rounds.iter().map(value)))
    };
    vec![
        row("RSS", "KB", &|round| round.rss_kb).goal(Goal::AtMost(10.0)),
        row("anonymous memory", "KB", &|round| round.anonymous_kb),
        row("create_agent p50", "ms", &|round| round.p50_ms).goal(Goal::AtMost(0.3)),
        row("create_agent p99", "ms", &|round| round.p99_ms),
    ]
}
