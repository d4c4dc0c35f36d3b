//! The group `stall`: latency of other calls while 1,000 agents wait for a stalled model; baseline: without stall.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use super::Bench;
use super::http::Connection;
use super::machine;
use super::report::{Goal, Row, Table};
use super::servers::{DaemonOptions, Server};
use super::statistics::{Latencies, Spread};
use crate::command::Failure;

const AGENTS: usize = 1_000;
const CALLS: usize = 200;
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const MILLISECONDS: f64 = 1e3;
/// The daemon has two connections per agent: from the client and to the model.
const DESCRIPTORS_MIN: usize = 2 * AGENTS + 200;

/// A timed call, and the text that its response has to contain before and during the stall.
struct Probe {
    method: &'static str,
    params: &'static str,
    door: Door,
    expected_before: &'static str,
    expected_during: &'static str,
}

/// The target of a call: the daemon, or the agents in turn.
#[derive(Clone, Copy)]
enum Door {
    Daemon,
    Agent,
}

const PROBES: [Probe; 3] = [
    Probe {
        method: "list_agents",
        params: "{}",
        door: Door::Daemon,
        expected_before: r#""message_count":0"#,
        expected_during: r#""message_count":1"#,
    },
    Probe {
        method: "get_context",
        params: "{}",
        door: Door::Agent,
        expected_before: r#""message_count":0"#,
        expected_during: r#""message_count":1"#,
    },
    // Last, because it cancels the stalled turns.
    Probe {
        method: "cancel",
        params: r#"{"request_id":"stalled"}"#,
        door: Door::Agent,
        expected_before: r#""cancelled":false"#,
        expected_during: r#""cancelled":true"#,
    },
];

/// The request id is the one that `cancel` names.
const STALLING_PARAMS: &str = r#"{"content":"!stall so","request_id":"stalled"}"#;

pub(crate) fn measure(bench: &Bench) -> Result<Table, Failure> {
    if machine::descriptors_max().is_some_and(|max| max < DESCRIPTORS_MIN) {
        let text = format!("needs {DESCRIPTORS_MIN} file descriptors; raise the hard limit (ulimit -Hn)");
        return Err(Failure::Failed(text));
    }
    let model = Server::model(bench)?;
    let options = DaemonOptions {
        model: Some(model.address),
        turns_running_max: Some(AGENTS),
        ..DaemonOptions::default()
    };
    let daemon = Server::daemon(bench, &options)?;
    let mut connection = daemon.connect()?;
    daemon.create_agent(&mut connection, "quiet")?;
    for agent in 0..AGENTS {
        daemon.create_agent(&mut connection, &name(agent))?;
    }
    let before = time_all(&daemon, &mut connection, |probe| probe.expected_before)?;
    // Clients keep their connections open while they wait, although closing one would not cancel the send.
    let _connections = stall_all(&daemon, &model)?;
    let during = time_all(&daemon, &mut connection, |probe| probe.expected_during)?;
    Ok(Table {
        title: "stall: other calls while 1,000 agents wait for the model",
        baseline: "without stall",
        comparison: "",
        rows: rows(before, during),
        notes: vec![
            format!("{CALLS} calls of each; list_agents lists {} agents, a large response", AGENTS + 1),
            "cancel ends a stalled send; without stall it finds none".to_owned(),
            format!("limits.turns_running_max is {AGENTS}, so that all agents call the model at once"),
        ],
    })
}

fn rows(before: Vec<Latencies>, during: Vec<Latencies>) -> Vec<Row> {
    let mut rows = Vec::new();
    for ((probe, mut before), mut during) in PROBES.iter().zip(before).zip(during) {
        for percent in [50, 99] {
            let value =
                |times: &mut Latencies| Spread::from_values([times.percentile(percent) * MILLISECONDS]);
            let row = Row::new(format!("{} p{percent}", probe.method), "ms", value(&mut during));
            rows.push(row.baseline(value(&mut before)).goal(Goal::Below(10.0)));
        }
    }
    rows
}

fn name(agent: usize) -> String {
    format!("stalled-{agent}")
}

/// Sends every agent a message on which the model stalls; returns when all agents are connected to the model.
fn stall_all(daemon: &Server, model: &Server) -> Result<Vec<Connection>, Failure> {
    let mut connections = Vec::with_capacity(AGENTS);
    for agent in 0..AGENTS {
        let request = daemon.request(&format!("/agent/{}", name(agent)), "send", STALLING_PARAMS);
        let mut connection = daemon.connect()?;
        connection.send(&request).map_err(|cause| daemon.failure(&cause))?;
        connections.push(connection);
    }
    let start = Instant::now();
    while connections_to(model)? < AGENTS {
        if start.elapsed() > STALL_TIMEOUT {
            return Err(Failure::Failed(format!(
                "the model did not get {AGENTS} connections within {} s",
                STALL_TIMEOUT.as_secs()
            )));
        }
        thread::park_timeout(POLL_INTERVAL);
    }
    Ok(connections)
}

/// Counts the established connections to the model in the kernel's table.
fn connections_to(model: &Server) -> Result<usize, Failure> {
    const TABLE: &str = "/proc/net/tcp";
    const ESTABLISHED: &str = "01";
    let table = fs::read_to_string(TABLE).map_err(|cause| Failure::Failed(format!("{TABLE}: {cause}")))?;
    let port = format!(":{:04X}", model.address.port());
    let is_connection = |line: &&str| {
        let mut fields = line.split_whitespace().skip(2);
        let (peer, state) = (fields.next(), fields.next());
        peer.is_some_and(|peer| peer.ends_with(&port)) && state == Some(ESTABLISHED)
    };
    Ok(table.lines().filter(is_connection).count())
}

/// Runs the probes one after the other on one connection; returns the latencies of each.
fn time_all(
    daemon: &Server,
    connection: &mut Connection,
    expected: fn(&Probe) -> &'static str,
) -> Result<Vec<Latencies>, Failure> {
    PROBES.iter().map(|probe| time_probe(daemon, connection, probe, expected(probe))).collect()
}

fn time_probe(
    daemon: &Server,
    connection: &mut Connection,
    probe: &Probe,
    expected: &str,
) -> Result<Latencies, Failure> {
    let mut times = Latencies::default();
    for agent in 0..CALLS {
        let path = match probe.door {
            Door::Daemon => "/".to_owned(),
            Door::Agent => format!("/agent/{}", name(agent)),
        };
        let request = daemon.request(&path, probe.method, probe.params);
        let start = Instant::now();
        let response = connection.call(&request).map_err(|cause| daemon.failure(&cause))?;
        times.push(start.elapsed());
        let body = String::from_utf8_lossy(response.body);
        if !body.contains(expected) {
            return Err(Failure::Failed(format!("unexpected response to {}: {body}", probe.method)));
        }
    }
    Ok(times)
}
