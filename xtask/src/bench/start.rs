//! The group `start`: how long a daemon takes to its first answer, and a command line to its end.

use std::process::Stdio;
use std::time::Instant;

use super::Bench;
use super::numbers::{Spread, Times};
use super::process::call;
use super::report::{Goal, Row, Table};
use super::servers::{DaemonOptions, Server};
use crate::command::Failure;

const STARTS: usize = 20;
const LISTS: usize = 50;
const MILLISECONDS: f64 = 1e3;

pub(crate) fn measure(bench: &Bench) -> Result<Table, Failure> {
    let (mut floor_starts, mut starts) = (Times::default(), Times::default());
    for _ in 0..STARTS {
        time_start(&mut floor_starts, || Server::floor(bench))?;
        time_start(&mut starts, || Server::daemon(bench, &DaemonOptions::default()))?;
    }
    let daemon = Server::daemon(bench, &DaemonOptions::default())?;
    let (mut nothings, mut lists) = (Times::default(), Times::default());
    for _ in 0..LISTS {
        time_run(bench, &mut nothings, call("true"))?;
        let mut list = call(&bench.programs.nexus3);
        list.arg("--home").arg(&daemon.home).args(["rpc", "list", "-p", &daemon.address.port().to_string()]);
        time_run(bench, &mut lists, list)?;
    }
    let row = |name: String, beside: &Times, ours: &Times| {
        Row::new(name, "ms", milliseconds(ours)).beside(milliseconds(beside))
    };
    Ok(Table {
        title: "start: of the daemon up to its first answer, and of a command line up to its end",
        beside: "floor",
        compared: "",
        rows: vec![
            row(format!("spawn to first answer, {STARTS} runs"), &floor_starts, &starts)
                .goal(Goal::AtMost(20.0)),
            row(format!("nexus3 rpc list, {LISTS} runs"), &nothings, &lists).goal(Goal::Below(10.0)),
        ],
        notes: vec!["beside `nexus3 rpc list` stands a run of `true`: what any process costs".to_owned()],
    })
}

fn milliseconds(times: &Times) -> Spread {
    let Spread { median, min, max } = times.spread();
    Spread { median: median * MILLISECONDS, min: min * MILLISECONDS, max: max * MILLISECONDS }
}

fn time_start(times: &mut Times, start: impl FnOnce() -> Result<Server, Failure>) -> Result<(), Failure> {
    let since = Instant::now();
    let server = start()?;
    let request = server.request("/", "list_agents", "{}");
    server.connect()?.call(&request).map_err(|cause| server.failed(&cause))?;
    times.push(since.elapsed());
    Ok(())
}

fn time_run(bench: &Bench, times: &mut Times, mut command: std::process::Command) -> Result<(), Failure> {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let since = Instant::now();
    let status = bench.leash.start(&mut command)?.wait()?;
    times.push(since.elapsed());
    if status.success() {
        return Ok(());
    }
    Err(Failure::Failed(format!("{:?} ended with {status}", command.get_program())))
}
