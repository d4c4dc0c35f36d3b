//! The group `rpc`: one short call, beside a bare server that gets the same bytes.

use std::time::Duration;

use super::Bench;
use super::load::ConnectionPool;
use super::report::{Goal, Row, Table};
use super::servers::{DaemonOptions, Server};
use super::statistics::Spread;
use crate::command::Failure;

const CONNECTIONS: [usize; 2] = [1, 32];
const ROUNDS: u32 = 15;
const MICROSECONDS: f64 = 1e6;

/// A server with the connections to it, and what its rounds gave.
struct Side<'a> {
    server: &'a Server,
    connections: ConnectionPool,
    rounds: Rounds,
}

/// What the rounds gave, in their order.
#[derive(Default)]
struct Rounds {
    rates: Vec<f64>,
    cpu_us: Vec<f64>,
    p50_us: Vec<f64>,
    p99_us: Vec<f64>,
    calls: f64,
    user: Duration,
}

pub(crate) fn measure(bench: &Bench) -> Result<Table, Failure> {
    let floor = Server::baseline(bench)?;
    let daemon = Server::daemon(bench, &DaemonOptions::default())?;
    daemon.create_agent(&mut daemon.connect()?, "only")?;
    // The floor gets the same bytes, host and token included.
    let request = daemon.request("/", "list_agents", "{}");
    let mut rows = Vec::new();
    for connections in CONNECTIONS {
        let mut beside = Side::open(&floor, connections)?;
        let mut ours = Side::open(&daemon, connections)?;
        // A first round to warm up, which does not count.
        for round in 0..=ROUNDS {
            for side in [&mut beside, &mut ours] {
                side.run(bench, &request)?;
                if round == 0 {
                    side.rounds = Rounds::default();
                }
            }
        }
        rows.extend(compare(connections, &beside.rounds, &ours.rounds));
    }
    let notes = vec![
        format!(
            "with {} connections the load comes from one thread that shares the cores with the server: requests/s \
             and its ratio are of both together, CPU per call is of the server alone",
            CONNECTIONS[1]
        ),
        "CPU per call is of all threads of the server, the kernel's part included; with 1 connection most of that is \
         waking a thread on another core at every call, which is dear in a virtual machine (compare a run on one \
         core, with taskset)"
            .to_owned(),
    ];
    Ok(Table {
        title: "rpc: list_agents with a token and one agent, beside bare hyper",
        baseline: "floor",
        comparison: "ratio",
        rows,
        notes,
    })
}

impl<'a> Side<'a> {
    fn open(server: &'a Server, connections: usize) -> Result<Self, Failure> {
        let herd =
            ConnectionPool::open(server.address, connections).map_err(|cause| server.failure(&cause))?;
        Ok(Self { server, connections: herd, rounds: Rounds::default() })
    }

    fn run(&mut self, bench: &Bench, request: &[u8]) -> Result<(), Failure> {
        let process = &self.server.process;
        let (cpu_before, user_before) = (process.cpu_time()?, process.user_time()?);
        let round = self.connections.run(request, bench.options.time / ROUNDS);
        let mut round = round.map_err(|cause| self.server.failure(&cause))?;
        let cpu = process.cpu_time()?.saturating_sub(cpu_before);
        let rounds = &mut self.rounds;
        rounds.user += process.user_time()?.saturating_sub(user_before);
        rounds.calls += round.calls();
        rounds.rates.push(round.calls_per_second());
        rounds.cpu_us.push(cpu.as_secs_f64() * MICROSECONDS / round.calls());
        rounds.p50_us.push(round.times.percentile(50) * MICROSECONDS);
        rounds.p99_us.push(round.times.percentile(99) * MICROSECONDS);
        Ok(())
    }
}

impl Rounds {
    /// Over all rounds: the kernel's ticks are too coarse for one.
    fn user_us(&self) -> [f64; 1] {
        [self.user.as_secs_f64() * MICROSECONDS / self.calls]
    }
}

fn compare(connections: usize, floor: &Rounds, ours: &Rounds) -> [Row; 5] {
    let row = |what: &str, unit: &'static str, floor: &[f64], ours: &[f64]| {
        let plural = if connections == 1 { "" } else { "s" };
        let name = format!("{connections} connection{plural}: {what}");
        Row::new(name, unit, Spread::from_values(ours.iter().copied()))
            .baseline(Spread::from_values(floor.iter().copied()))
    };
    let ratio = |floor: &[f64], ours: &[f64]| Spread::from_pairs(ours, floor, |ours, floor| ours / floor);
    let rates = ratio(&floor.rates, &ours.rates);
    let cpu = ratio(&floor.cpu_us, &ours.cpu_us);
    let user = ratio(&floor.user_us(), &ours.user_us());
    [
        row("requests", "1/s", &floor.rates, &ours.rates)
            .comparison(rates)
            .goal(Goal::ComparisonAtLeast(0.7)),
        row("CPU per call", "us", &floor.cpu_us, &ours.cpu_us).comparison(cpu).goal(Goal::AtMost(15.0)),
        row("user part of it", "us", &floor.user_us(), &ours.user_us()).comparison(user),
        row("latency p50", "us", &floor.p50_us, &ours.p50_us),
        row("latency p99", "us", &floor.p99_us, &ours.p99_us),
    ]
}
