//! The group `memory`: memory of the daemon after a call and per connection; the baseline is bare hyper. Memory per
//! event stream that is not read, without a baseline.

use super::Bench;
use super::instant_model::InstantModel;
use super::machine;
use super::process::{Figure, Memory};
use super::report::{Goal, Row, Table};
use super::servers::{DaemonOptions, Server};
use super::statistics::Spread;
use crate::command::Failure;

const ROUNDS: usize = 3;
const CONNECTIONS: usize = 10_000;
/// File descriptors reserved for uses other than connections.
const DESCRIPTORS_RESERVED: usize = 200;
/// Event streams that are opened and not read, fewer than `limits.event_streams_max`.
const SILENT_READERS: usize = 1_000;
/// Turns before and after they are opened, and what the model prints in each.
const PRINTING_TURNS: usize = 5;
const PRINTED_BYTES: usize = 8_000_000;
/// Memory per silent reader: hyper's write buffer, a piece of an event, and the connection.
const SILENT_READER_KB_MAX: f64 = 128.0;
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
    let mut notes =
        vec![Memory::NOTE.to_owned(), "no figure includes the kernel's socket buffers".to_owned()];
    if connections < CONNECTIONS {
        notes.push(format!(
            "only {connections} connections: raise the hard limit on file descriptors (ulimit -Hn)"
        ));
    }
    let mut rows = rows(connections, &baseline, &measured);
    rows.push(silent_readers(bench, SILENT_READERS.min(available))?);
    Ok(Table {
        title: "memory: after start and one call, and per connection",
        baseline: "bare hyper",
        comparison: "",
        rows,
        notes,
    })
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

fn rows(connections: usize, baseline: &[MemorySamples], measured: &[MemorySamples]) -> Vec<Row> {
    let per_connection = |after: f64, before: f64| (after - before) / connections as f64 / KILOBYTES;
    let mut rows = Vec::new();
    let mut add = |state: &str, unit, rss_max, value: &dyn Fn(&MemorySamples, Figure) -> f64| {
        for (name, figure) in Memory::FIGURES {
            let spread = |samples: &[MemorySamples]| {
                Spread::from_values(samples.iter().map(|samples| value(samples, figure)))
            };
            let row = Row::new(format!("{state}: {name}"), unit, spread(measured)).baseline(spread(baseline));
            rows.push(if name == "RSS" { row.goal(Goal::AtMost(rss_max)) } else { row });
        }
    };
    add("after one call", "MB", 10.0, &|samples, figure| figure(&samples.started) / MEGABYTES);
    add(&format!("per connection, {connections} without a request"), "KB", 32.0, &|samples, figure| {
        per_connection(figure(&samples.connected), figure(&samples.started))
    });
    add(&format!("per connection, {connections} after a request"), "KB", 32.0, &|samples, figure| {
        per_connection(figure(&samples.used), figure(&samples.started))
    });
    rows
}

/// Measures what each event stream costs that begins at the start of the journal and is not read, while an agent
/// prints 8 MB in each turn.
fn silent_readers(bench: &Bench, readers: usize) -> Result<Row, Failure> {
    let model = InstantModel::printing(PRINTED_BYTES).map_err(|cause| Failure::Failed(cause.to_string()))?;
    let options = DaemonOptions { model: Some(model.address), ..DaemonOptions::default() };
    let server = Server::daemon(bench, &options)?;
    let mut connection = server.connect()?;
    server.create_agent(&mut connection, "printer")?;
    let mut print = || -> Result<f64, Failure> {
        for _ in 0..PRINTING_TURNS {
            server.call(&mut connection, "/agent/printer", "send", r#"{"content":"print"}"#)?;
        }
        server.process.memory().map(|memory| memory.rss)
    };
    let before = print()?;
    let request = server.get_request("/events?after=0");
    let mut silent = Vec::new();
    for _ in 0..readers {
        let mut reader = server.connect()?;
        reader.send(&request).map_err(|cause| server.failure(&cause))?;
        silent.push(reader);
    }
    let growth = (print()? - before) / readers as f64 / KILOBYTES;
    let name = format!("per silent reader, {readers} event streams, 8 MB printed per turn: RSS");
    Ok(Row::new(name, "KB", Spread::from_values([growth])).goal(Goal::AtMost(SILENT_READER_KB_MAX)))
}
