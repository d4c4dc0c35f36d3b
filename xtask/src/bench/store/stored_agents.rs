//! Many stored agents: start-up time, latency of waking an agent, and memory.

use std::path::{Path, PathBuf};
use std::time::Instant;

use super::super::Bench;
use super::super::report::{Goal, Row};
use super::super::servers::{DaemonOptions, Server, temporary_folder};
use super::super::statistics::{Latencies, Spread};
use super::{path_text, run_durable, spread};
use crate::command::Failure;

const STARTS: usize = 10;
const AGENTS_STORED: usize = 10_000;
const WAKES: usize = 1_000;
const AGENTS_STORED_MANY: usize = 100_000;
const AGENTS_LIVE: usize = 1_000;
const MILLISECONDS: f64 = 1e3;
const MEGABYTES: f64 = 1e6;

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let home = fill_home(bench, AGENTS_STORED)?;
    let (mut empty, mut filled) = (Latencies::default(), Latencies::default());
    for _ in 0..STARTS {
        time_start(bench, &mut empty, &temporary_folder(bench)?)?;
        time_start(bench, &mut filled, &home)?;
    }
    let milliseconds = |times: &Latencies| {
        let Spread { median, min, max } = times.spread();
        Spread { median: median * MILLISECONDS, min: min * MILLISECONDS, max: max * MILLISECONDS }
    };
    let wakes = run_durable(bench, &["wake", &path_text(&home.join("nexus3.db")), &WAKES.to_string()])?;
    let wakes = wakes.first().filter(|wakes| wakes.len() == 2);
    let wakes = wakes.ok_or_else(|| Failure::Failed("durable printed no wake latencies".to_owned()))?;
    let many = fill_home(bench, AGENTS_STORED_MANY)?;
    let [asleep, live] = measure_memory(bench, &many)?;
    Ok(vec![
        Row::new("start with 10,000 stored agents", "ms", milliseconds(&filled))
            .baseline(milliseconds(&empty))
            .goal(Goal::AtMost(200.0)),
        Row::new("waking an agent p50", "ms", spread(&wakes[..1])).goal(Goal::AtMost(2.0)),
        Row::new("waking an agent p99", "ms", spread(&wakes[1..])),
        Row::new("100,000 stored agents: RSS", "MB", spread(&[asleep])),
        Row::new("100,000 stored agents, 1,000 live: RSS", "MB", spread(&[live])).goal(Goal::AtMost(150.0)),
    ])
}

/// Creates a home with stored agents, each with one turn in its history.
fn fill_home(bench: &Bench, agents: usize) -> Result<PathBuf, Failure> {
    let home = temporary_folder(bench)?;
    run_durable(bench, &["fill", &path_text(&home.join("nexus3.db")), &agents.to_string()])?;
    Ok(home)
}

fn start_daemon(bench: &Bench, home: &Path) -> Result<Server, Failure> {
    Server::daemon(bench, &DaemonOptions { home: Some(home), ..DaemonOptions::default() })
}

fn time_start(bench: &Bench, times: &mut Latencies, home: &Path) -> Result<(), Failure> {
    let start = Instant::now();
    let daemon = start_daemon(bench, home)?;
    daemon.call(&mut daemon.connect()?, "/", "list_sessions", r#"{"limit":1}"#)?;
    times.push(start.elapsed());
    Ok(())
}

/// Returns the RSS in megabytes with all agents asleep, and with `AGENTS_LIVE` of them live.
fn measure_memory(bench: &Bench, home: &Path) -> Result<[f64; 2], Failure> {
    let daemon = start_daemon(bench, home)?;
    let mut connection = daemon.connect()?;
    daemon.call(&mut connection, "/", "list_sessions", r#"{"limit":1}"#)?;
    let asleep = daemon.process.memory()?.rss / MEGABYTES;
    for agent in 0..AGENTS_LIVE {
        let path = format!("/agent/agent-{}", agent * (AGENTS_STORED_MANY / AGENTS_LIVE));
        daemon.call(&mut connection, &path, "get_messages", "{}")?;
    }
    Ok([asleep, daemon.process.memory()?.rss / MEGABYTES])
}
