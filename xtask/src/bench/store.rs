//! The group `store`: throughput and latency of durable sends (the baseline is a SQLite writer that commits every row),
//! turns with a long history, and many stored agents.

mod row_writer;
mod stored_agents;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use self::row_writer::RowWriter;
use super::Bench;
use super::load::ConnectionPool;
use super::process::clean_command;
use super::report::{Goal, Row, Table};
use super::servers::{DaemonOptions, Server, temporary_folder};
use super::statistics::Spread;
use crate::command::Failure;

const AGENTS: usize = 64;
const ROUNDS: u32 = 5;
const HISTORY_ROUNDS: usize = 9;
const MILLISECONDS: f64 = 1e3;

/// Journal records of a turn without tools: `TurnAccepted`, `TurnBegun`, `MessageAdded`, `TurnEnded`.
const TURN_ROWS: f64 = 4.0;

pub(crate) fn measure(bench: &Bench) -> Result<Table, Failure> {
    let mut rows = measure_turns(bench)?;
    rows.extend(measure_history(bench)?);
    rows.extend(stored_agents::measure(bench)?);
    Ok(Table {
        title: "store: sends that are durable when they are acknowledged",
        baseline: "baseline",
        comparison: "ratio",
        rows,
        notes: vec![
            format!(
                "baseline of sends in `full`: one SQLite connection (WAL, synchronous=FULL) on the same disk that \
                 commits every row, {TURN_ROWS} rows per turn; its latency is that of one commit"
            ),
            "sends run in one process (crates/nexus3/examples/durable.rs) with a model that responds at once; \
             over HTTP the scripted model and the load generator share the cores"
                .to_owned(),
            "baseline of turns with 10,000 messages: with 10; of a start with 10,000 stored agents: with none; \
             the model does not read its requests"
                .to_owned(),
        ],
    })
}

/// Figures of one side, one per round.
#[derive(Default)]
struct Samples {
    rates: Vec<f64>,
    p50_ms: Vec<f64>,
    p99_ms: Vec<f64>,
}

impl Samples {
    fn push(&mut self, (rate, p50_ms, p99_ms): (f64, f64, f64)) {
        self.rates.push(rate);
        self.p50_ms.push(p50_ms);
        self.p99_ms.push(p99_ms);
    }
}

fn spread(values: &[f64]) -> Spread {
    Spread::from_values(values.iter().copied())
}

fn measure_turns(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let time = bench.options.time / ROUNDS;
    let [mut row_writer, mut full, mut normal, mut http] = [(); 4].map(|()| Samples::default());
    for _ in 0..ROUNDS {
        row_writer.push(RowWriter::open(&temporary_folder(bench)?)?.run(time)?);
        full.push(in_process(bench, "full", time)?);
        normal.push(in_process(bench, "normal", time)?);
        http.push(over_http(bench, time)?);
    }
    row_writer.rates.iter_mut().for_each(|rate| *rate /= TURN_ROWS);
    let name = |measure: &str| format!("{AGENTS} agents, {measure}");
    let ratio = Spread::from_pairs(&full.rates, &row_writer.rates, |full, row_writer| full / row_writer);
    Ok(vec![
        Row::new(name("full: sends"), "1/s", spread(&full.rates))
            .baseline(spread(&row_writer.rates))
            .comparison(ratio)
            .goal(Goal::AtLeast(5000.0)),
        Row::new(name("full: latency p50"), "ms", spread(&full.p50_ms)).baseline(spread(&row_writer.p50_ms)),
        Row::new(name("full: latency p99"), "ms", spread(&full.p99_ms))
            .baseline(spread(&row_writer.p99_ms))
            .goal(Goal::AtMost(20.0)),
        Row::new(name("normal: sends"), "1/s", spread(&normal.rates)),
        Row::new(name("normal: latency p99"), "ms", spread(&normal.p99_ms)),
        Row::new(name("full, over HTTP: sends"), "1/s", spread(&http.rates)),
        Row::new(name("full, over HTTP: latency p99"), "ms", spread(&http.p99_ms)),
    ])
}

fn in_process(bench: &Bench, durability: &str, time: Duration) -> Result<(f64, f64, f64), Failure> {
    let file = temporary_folder(bench)?.join("nexus3.db");
    let seconds = time.as_secs_f64().to_string();
    let lines = run_durable(bench, &["turns", &path_text(&file), durability, &AGENTS.to_string(), &seconds])?;
    match lines.first().map(Vec::as_slice) {
        Some([rate, p50_ms, p99_ms]) => Ok((*rate, *p50_ms, *p99_ms)),
        _ => Err(Failure::Failed(format!("durable printed {lines:?}"))),
    }
}

/// Sends over HTTP with one agent per connection; the scripted model runs as a separate process.
fn over_http(bench: &Bench, time: Duration) -> Result<(f64, f64, f64), Failure> {
    let model = Server::model(bench)?;
    let daemon =
        Server::daemon(bench, &DaemonOptions { model: Some(model.address), ..DaemonOptions::default() })?;
    let mut connection = daemon.connect()?;
    let mut requests = Vec::new();
    for agent in 0..AGENTS {
        let name = format!("agent-{agent}");
        daemon.create_agent(&mut connection, &name)?;
        requests.push(daemon.request(&format!("/agent/{name}"), "send", r#"{"content":"!reply ok"}"#));
    }
    let failed = |cause| daemon.failure(&cause);
    let mut pool = ConnectionPool::open(daemon.address, AGENTS).map_err(failed)?;
    let mut round = pool.run_each(&requests, time).map_err(failed)?;
    let rate = round.calls_per_second();
    let mut percentile = |percent| round.times.percentile(percent) * MILLISECONDS;
    Ok((rate, percentile(50), percentile(99)))
}

fn measure_history(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let rounds = HISTORY_ROUNDS.to_string();
    let file = path_text(&temporary_folder(bench)?.join("nexus3.db"));
    let mut rows = Vec::new();
    for (name, file) in [("on the disk", file.as_str()), ("in memory", "memory")] {
        let lines = run_durable(bench, &["history", file, &rounds])?;
        let pairs = lines.iter().filter_map(|line| match line.as_slice() {
            [long, short] => Some((*long, *short)),
            _ => None,
        });
        let (long, short): (Vec<f64>, Vec<f64>) = pairs.unzip();
        let ratio = Spread::from_pairs(&long, &short, |long, short| long / short);
        let row = Row::new(format!("a turn with 10,000 messages, {name}"), "ms", spread(&long));
        rows.push(row.baseline(spread(&short)).comparison(ratio).goal(Goal::ComparisonAtMost(1.2)));
    }
    Ok(rows)
}

fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Runs the example `durable` and parses the numbers that it prints, line by line.
fn run_durable(bench: &Bench, arguments: &[&str]) -> Result<Vec<Vec<f64>>, Failure> {
    let mut command = clean_command(&bench.programs.durable);
    let output = command.args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|cause| Failure::Failed(format!("durable did not start: {cause}")))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::Failed(format!("durable {arguments:?} failed ({}): {stderr}", output.status)));
    }
    let printed = String::from_utf8_lossy(&output.stdout);
    let parse_line = |line: &str| line.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>();
    printed
        .lines()
        .map(parse_line)
        .collect::<Result<_, _>>()
        .map_err(|_| Failure::Failed(format!("durable printed {printed}")))
}
