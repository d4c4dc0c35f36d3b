//! The group `start`: time from the start of the daemon to its first response, and run time of a CLI command.

use std::process::Stdio;
use std::time::Instant;

use super::Bench;
use super::process::clean_command;
use super::report::{Goal, Row, Table};
use super::servers::{DaemonOptions, Server};
use super::statistics::{Latencies, Spread};
use crate::command::Failure;

const STARTS: usize = 20;
const LISTS: usize = 50;
const MILLISECONDS: f64 = 1e3;

pub(crate) fn measure(bench: &Bench) -> Result<Table, Failure> {
    let (mut baseline_starts, mut starts) = (Latencies::default(), Latencies::default());
    for _ in 0..STARTS {
        time_start(&mut baseline_starts, || Server::baseline(bench))?;
        time_start(&mut starts, || Server::daemon(bench, &DaemonOptions::default()))?;
    }
    let daemon = Server::daemon(bench, &DaemonOptions::default())?;
    let (mut baseline_runs, mut lists) = (Latencies::default(), Latencies::default());
    for _ in 0..LISTS {
        time_run(bench, &mut baseline_runs, clean_command("true"))?;
        let mut list = clean_command(&bench.programs.nexus3);
        list.arg("--home").arg(&daemon.home).args(["rpc", "list", "-p", &daemon.address.port().to_string()]);
        time_run(bench, &mut lists, list)?;
    }
    let row = |name: String, baseline: &Latencies, measured: &Latencies| {
        Row::new(name, "ms", milliseconds(measured)).baseline(milliseconds(baseline))
    };
    Ok(Table {
        title: "start: the daemon up to its first response, and a CLI command",
        baseline: "baseline",
        comparison: "",
        rows: vec![
            row(format!("spawn to first response, {STARTS} runs"), &baseline_starts, &starts)
                .goal(Goal::AtMost(20.0)),
            row(format!("nexus3 rpc list, {LISTS} runs"), &baseline_runs, &lists).goal(Goal::Below(10.0)),
        ],
        notes: vec![
            "baselines: the start of bare hyper; a run of `true`, the cost of any process".to_owned(),
        ],
    })
}

fn milliseconds(times: &Latencies) -> Spread {
    let Spread { median, min, max } = times.spread();
    Spread { median: median * MILLISECONDS, min: min * MILLISECONDS, max: max * MILLISECONDS }
}

fn time_start(times: &mut Latencies, start: impl FnOnce() -> Result<Server, Failure>) -> Result<(), Failure> {
    let started_at = Instant::now();
    let server = start()?;
    let request = server.request("/", "list_agents", "{}");
    server.connect()?.call(&request).map_err(|cause| server.failure(&cause))?;
    times.push(started_at.elapsed());
    Ok(())
}

fn time_run(bench: &Bench, times: &mut Latencies, mut command: std::process::Command) -> Result<(), Failure> {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let started_at = Instant::now();
    let status = bench.process_group.start(&mut command)?.wait()?;
    times.push(started_at.elapsed());
    if status.success() {
        return Ok(());
    }
    Err(Failure::Failed(format!("{:?} failed ({status})", command.get_program())))
}
