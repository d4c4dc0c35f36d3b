//! The group `memory`: what a server holds when nobody calls, and for each connection. The floor is shown beside it.

use super::Bench;
use super::machine;
use super::process::Memory;
use super::report::{Goal, Row, Table};
use super::servers::{DaemonOptions, Server, wait_until_idle};
use super::statistics::Spread;
use crate::command::Failure;

const ROUNDS: usize = 3;
const CONNECTIONS: usize = 10_000;
/// Descriptors that are left for everything that is no connection.
const DESCRIPTORS_RESERVED: usize = 200;
const MEGABYTES: f64 = 1e6;
const KILOBYTES: f64 = 1e3;

/// Memory in three states.
struct MemorySamples {
    /// After the start and one call.
    idle: Memory,
    /// With all connections open and silent.
    connected: Memory,
    /// After one request on each.
    used: Memory,
}

pub(crate) fn measure(bench: &Bench) -> Result<Table, Failure> {
    let room = machine::descriptors_max().unwrap_or(usize::MAX).saturating_sub(DESCRIPTORS_RESERVED);
    let connections = CONNECTIONS.min(room);
    if connections == 0 {
        return Err(Failure::Failed("the limit of descriptors leaves no room for connections".to_owned()));
    }
    let (mut floor, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        floor.push(sample(&Server::baseline(bench)?, connections)?);
        ours.push(sample(&Server::daemon(bench, &DaemonOptions::default())?, connections)?);
    }
    let resting = sample_idle(bench)?;
    let mut notes = vec![
        "RSS counts what is in memory of the program's file too, private (RssAnon) does not; the kernel's socket \
         buffers are in neither; 1 MB is 1,000,000 bytes, 1 KB is 1,000"
            .to_owned(),
    ];
    if connections < CONNECTIONS {
        notes.push(format!(
            "only {connections} connections: raise the hard limit of descriptors (ulimit -Hn)"
        ));
    }
    Ok(Table {
        title: "memory: after the start and one call, at rest, and per connection",
        baseline: "floor",
        comparison: "",
        rows: rows(connections, &floor, &ours, &resting),
        notes,
    })
}

/// The same after the start and one call, once the daemon has seen that nobody calls any more.
fn sample_idle(bench: &Bench) -> Result<Vec<Memory>, Failure> {
    let start = |_| Server::daemon(bench, &DaemonOptions::default());
    let daemons = (0..ROUNDS).map(start).collect::<Result<Vec<_>, Failure>>()?;
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
    let idle = server.process.memory()?;
    let mut all = (0..connections).map(|_| server.connect()).collect::<Result<Vec<_>, Failure>>()?;
    // Connections are taken in their order: when the last one is answered, the server has all of them.
    call(&mut server.connect()?)?;
    call(&mut first)?;
    let connected = server.process.memory()?;
    for connection in &mut all {
        call(connection)?;
        // Ten thousand answers of ours need not be kept.
        connection.buffer = super::http::ResponseBuffer::default();
    }
    let used = server.process.memory()?;
    Ok(MemorySamples { idle, connected, used })
}

fn rows(connections: usize, floor: &[MemorySamples], ours: &[MemorySamples], resting: &[Memory]) -> Vec<Row> {
    let row = |name: &str, unit: &'static str, of: &dyn Fn(&MemorySamples) -> f64| {
        Row::new(name, unit, Spread::from_values(ours.iter().map(of)))
            .baseline(Spread::from_values(floor.iter().map(of)))
    };
    let each = |memory: f64, before: f64| (memory - before) / connections as f64 / KILOBYTES;
    let idle = format!("each of {connections} connections, idle");
    let used = format!("each of {connections} connections, after a request");
    vec![
        row("idle: RSS", "MB", &|held| held.idle.resident / MEGABYTES).goal(Goal::AtMost(10.0)),
        row("idle: private", "MB", &|held| held.idle.private / MEGABYTES),
        Row::new(
            "at rest: RSS",
            "MB",
            Spread::from_values(resting.iter().map(|memory| memory.resident / MEGABYTES)),
        )
        .goal(Goal::AtMost(10.0)),
        row(&format!("{idle}: RSS"), "KB", &|held| each(held.connected.resident, held.idle.resident))
            .goal(Goal::AtMost(32.0)),
        row(&format!("{used}: RSS"), "KB", &|held| each(held.used.resident, held.idle.resident))
            .goal(Goal::AtMost(32.0)),
        row(&format!("{used}: private"), "KB", &|held| each(held.used.private, held.idle.private)),
    ]
}
