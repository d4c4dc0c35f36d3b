//! The group `rpc`: throughput, CPU time and latency of a short call; the baseline is bare hyper with equal requests.

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

/// A server, the connections to it, and the figures of its rounds.
struct Side<'a> {
    server: &'a Server,
    connections: ConnectionPool,
    rounds: Rounds,
}

/// Figures, one per round.
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
    let bare_hyper = Server::baseline(bench)?;
    let daemon = Server::daemon(bench, &DaemonOptions::default())?;
    daemon.create_agent(&mut daemon.connect()?, "only")?;
    // Bare hyper gets the same bytes, including host and token.
    let request = daemon.request("/", "list_agents", "{}");
    let mut rows = Vec::new();
    for connections in CONNECTIONS {
        let mut baseline = Side::open(&bare_hyper, connections)?;
        let mut measured = Side::open(&daemon, connections)?;
        // The first round warms up and is discarded.
        for round in 0..=ROUNDS {
            for side in [&mut baseline, &mut measured] {
                side.run(bench, &request)?;
                if round == 0 {
                    side.rounds = Rounds::default();
                }
            }
        }
        rows.extend(compare(connections, &baseline.rounds, &measured.rounds));
    }
    let notes = vec![
        format!(
            "with {} connections the load generator is one thread that shares the cores with the server: requests/s \
             and their ratio include its work, CPU per call is of the server alone",
            CONNECTIONS[1]
        ),
        "CPU per call is of all threads of the server, including system time; with 1 connection most of it is \
         waking a thread on another core at every call, which is expensive in a virtual machine (compare a run on one \
         core, with taskset)"
            .to_owned(),
    ];
    Ok(Table {
        title: "rpc: list_agents with a token and one agent; baseline: bare hyper",
        baseline: "bare hyper",
        comparison: "ratio",
        rows,
        notes,
    })
}

impl<'a> Side<'a> {
    fn open(server: &'a Server, connections: usize) -> Result<Self, Failure> {
        let connections =
            ConnectionPool::open(server.address, connections).map_err(|cause| server.failure(&cause))?;
        Ok(Self { server, connections, rounds: Rounds::default() })
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
    /// User time per call over all rounds: clock ticks are too coarse for one round.
    fn user_us(&self) -> [f64; 1] {
        [self.user.as_secs_f64() * MICROSECONDS / self.calls]
    }
}

fn compare(connections: usize, baseline: &Rounds, measured: &Rounds) -> [Row; 5] {
    let row = |measure: &str, unit: &'static str, baseline: &[f64], measured: &[f64]| {
        let plural = if connections == 1 { "" } else { "s" };
        let name = format!("{connections} connection{plural}: {measure}");
        Row::new(name, unit, Spread::from_values(measured.iter().copied()))
            .baseline(Spread::from_values(baseline.iter().copied()))
    };
    let ratio = |baseline: &[f64], measured: &[f64]| {
        Spread::from_pairs(measured, baseline, |measured, baseline| measured / baseline)
    };
    let rates = ratio(&baseline.rates, &measured.rates);
    let cpu = ratio(&baseline.cpu_us, &measured.cpu_us);
    let user = ratio(&baseline.user_us(), &measured.user_us());
    [
        row("requests", "1/s", &baseline.rates, &measured.rates)
            .comparison(rates)
            .goal(Goal::ComparisonAtLeast(0.7)),
        row("CPU per call", "us", &baseline.cpu_us, &measured.cpu_us)
            .comparison(cpu)
            .goal(Goal::AtMost(15.0)),
        row("user CPU per call", "us", &baseline.user_us(), &measured.user_us()).comparison(user),
        row("latency p50", "us", &baseline.p50_us, &measured.p50_us),
        row("latency p99", "us", &baseline.p99_us, &measured.p99_us),
    ]
}
