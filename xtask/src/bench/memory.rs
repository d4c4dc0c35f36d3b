//! The group `memory`: resident memory of an idle daemon and per connection; the baseline is bare hyper.

use super::Bench;
use super::machine;
use super::process::Memory;
use super::report::{Goal, Row, Table};
use super::servers::{DaemonOptions, Server, wait_until_idle};
use super::statistics::Spread;
use crate::command::Failure;

const ROUNDS: usize = 3;
const CONNECTIONS: usize = 10_000;
/// File descriptors reserved for uses other than connections.
const DESCRIPTORS_RESERVED: usize = 200;
const MEGABYTES: f64 = 1e6;
const KILOBYTES: f64 = 1e3;

/// Memory of a server in three states.
struct MemorySamples {
    /// After start and one call.
    started: Memory,
    /// With all connections open and no request sent on them.
    connected: Memory,
    /// After one request on each connection.
    used: Memory,
}

pub(crate) fn measure(bench: &Bench) -> Result<Table, Failure> {
    let available = machine::descriptors_max().unwrap_or(usize::MAX).saturating_sub(DESCRIPTORS_RESERVED);
    let connections = CONNECTIONS.min(available);
    if connections == 0 {
        return Err(Failure::Failed(
            "too few file descriptors: raise the hard limit (ulimit -Hn)".to_owned(),
        ));
    }
    let (mut baseline, mut measured) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        baseline.push(sample(&Server::baseline(bench)?, connections)?);
        measured.push(sample(&Server::daemon(bench, &DaemonOptions::default())?, connections)?);
    }
    let idle = sample_idle(bench)?;
    let mut notes = vec![
        "RSS includes mapped pages of the executable, private memory (RssAnon) does not; neither includes the \
         kernel's socket buffers; 1 MB is 1,000,000 bytes, 1 KB is 1,000"
            .to_owned(),
    ];
    if connections < CONNECTIONS {
        notes.push(format!(
            "only {connections} connections: raise the hard limit on file descriptors (ulimit -Hn)"
        ));
    }
    Ok(Table {
        title: "memory: after start and one call, when idle, and per connection",
        baseline: "bare hyper",
        comparison: "",
        rows: rows(connections, &baseline, &measured, &idle),
        notes,
    })
}

/// Samples the memory after start and one call, once the daemon has been idle long enough to release its pages.
fn sample_idle(bench: &Bench) -> Result<Vec<Memory>, Failure> {
    let start_daemon = |_| Server::daemon(bench, &DaemonOptions::default());
    let daemons = (0..ROUNDS).map(start_daemon).collect::<Result<Vec<_>, Failure>>()?;
    for daemon in &daemons {
        daemon.call(&mut daemon.connect()?, "/", "list_agents", "{}")?;
    }
    wait_until_idle();
    daemons.iter().map(|daemon| daemon.process.memory()).collect()
}

fn sample(server: &Server, connections: usize) -> Result<MemorySamples, Failure> {
    let request = server.request("/", "list_agents", "{}");
    let call = |connection: &mut super::http::Connection| {
        connection.call(&request).map(|_| ()).map_err(|cause| server.failure(&cause))
    };
    let mut first = server.connect()?;
    call(&mut first)?;
    let started = server.process.memory()?;
    let mut all = (0..connections).map(|_| server.connect()).collect::<Result<Vec<_>, Failure>>()?;
    // The server accepts connections in order: a response on the last one shows that it has accepted all of them.
    call(&mut server.connect()?)?;
    call(&mut first)?;
    let connected = server.process.memory()?;
    for connection in &mut all {
        call(connection)?;
        // Frees the response: 10,000 of them would fill this process's memory.
        connection.buffer = super::http::ResponseBuffer::default();
    }
    let used = server.process.memory()?;
    Ok(MemorySamples { started, connected, used })
}

fn rows(
    connections: usize,
    baseline: &[MemorySamples],
    measured: &[MemorySamples],
    idle: &[Memory],
) -> Vec<Row> {
    let row = |name: &str, unit: &'static str, value: &dyn Fn(&MemorySamples) -> f64| {
        Row::new(name, unit, Spread::from_values(measured.iter().map(value)))
            .baseline(Spread::from_values(baseline.iter().map(value)))
    };
    let per_connection = |memory: f64, before: f64| (memory - before) / connections as f64 / KILOBYTES;
    let unused = format!("per connection, {connections} without a request");
    let used = format!("per connection, {connections} after a request");
    vec![
        row("after one call: RSS", "MB", &|samples| samples.started.resident / MEGABYTES)
            .goal(Goal::AtMost(10.0)),
        row("after one call: private memory", "MB", &|samples| samples.started.private / MEGABYTES),
        Row::new(
            "idle: RSS",
            "MB",
            Spread::from_values(idle.iter().map(|memory| memory.resident / MEGABYTES)),
        )
        .goal(Goal::AtMost(10.0)),
        row(&format!("{unused}: RSS"), "KB", &|samples| {
            per_connection(samples.connected.resident, samples.started.resident)
        })
        .goal(Goal::AtMost(32.0)),
        row(&format!("{used}: RSS"), "KB", &|samples| {
            per_connection(samples.used.resident, samples.started.resident)
        })
        .goal(Goal::AtMost(32.0)),
        row(&format!("{used}: private memory"), "KB", &|samples| {
            per_connection(samples.used.private, samples.started.private)
        }),
    ]
}
