//! The group `stall`: a thousand agents wait for a model that says nothing more. Other calls must not feel it.

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
/// At a place that takes connections: the daemon's and the model's of each agent.
const DESCRIPTORS_MIN: usize = 2 * AGENTS + 200;

/// A call that is timed, and what its answer has to hold.
struct Probe {
    method: &'static str,
    params: &'static str,
    door: Door,
    expected_before: &'static str,
    expected_during: &'static str,
}

/// Who is called: the daemon, or one agent after the other.
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
    // Last, because it ends what stalls.
    Probe {
        method: "cancel",
        params: r#"{"request_id":"stalled"}"#,
        door: Door::Agent,
        expected_before: r#""cancelled":false"#,
        expected_during: r#""cancelled":true"#,
    },
];

/// Its name is the one that `cancel` looks for.
const STALLING_PARAMS: &str = r#"{"content":"!stall so","request_id":"stalled"}"#;

pub(crate) fn measure(bench: &Bench) -> Result<Table, Failure> {
    if machine::descriptors_max().is_some_and(|max| max < DESCRIPTORS_MIN) {
        let text = format!("needs {DESCRIPTORS_MIN} descriptors; raise the hard limit (ulimit -Hn)");
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
    // Dropping a connection would not end its send, but keeping it is what a client does.
    let _waiting = stall_all(&daemon, &model)?;
    let during = time_all(&daemon, &mut connection, |probe| probe.expected_during)?;
    Ok(Table {
        title: "stall: other calls while 1,000 agents wait for the model",
        baseline: "before the stall",
        comparison: "",
        rows: rows(before, during),
        notes: vec![
            format!("{CALLS} calls of each; list_agents lists {} agents, a large answer", AGENTS + 1),
            "cancel ends a stalled send; before the stall it finds none".to_owned(),
            format!("limits.turns_running_max is {AGENTS} here, so that all of them are at the model"),
        ],
    })
}

fn rows(before: Vec<Latencies>, during: Vec<Latencies>) -> Vec<Row> {
    let mut rows = Vec::new();
    for ((probe, mut before), mut during) in PROBES.iter().zip(before).zip(during) {
        for percent in [50, 99] {
            let point =
                |times: &mut Latencies| Spread::from_values([times.percentile(percent) * MILLISECONDS]);
            let row = Row::new(format!("{} p{percent}", probe.method), "ms", point(&mut during));
            rows.push(row.baseline(point(&mut before)).goal(Goal::Below(10.0)));
        }
    }
    rows
}

fn name(agent: usize) -> String {
    format!("stalled-{agent}")
}

/// Sends to every agent what the model will not finish; returns when all are at the model.
fn stall_all(daemon: &Server, model: &Server) -> Result<Vec<Connection>, Failure> {
    let mut waiting = Vec::with_capacity(AGENTS);
    for agent in 0..AGENTS {
        let request = daemon.request(&format!("/agent/{}", name(agent)), "send", STALLING_PARAMS);
        let mut connection = daemon.connect()?;
        connection.send(&request).map_err(|cause| daemon.failure(&cause))?;
        waiting.push(connection);
    }
    let since = Instant::now();
    while connections_to(model)? < AGENTS {
        if since.elapsed() > STALL_TIMEOUT {
            return Err(Failure::Failed(format!("the model never had {AGENTS} connections")));
        }
        thread::park_timeout(POLL_INTERVAL);
    }
    Ok(waiting)
}

/// Established connections to the model, as the kernel lists them.
fn connections_to(model: &Server) -> Result<usize, Failure> {
    const TABLE: &str = "/proc/net/tcp";
    const ESTABLISHED: &str = "01";
    let table = fs::read_to_string(TABLE).map_err(|cause| Failure::Failed(format!("{TABLE}: {cause}")))?;
    let port = format!(":{:04X}", model.address.port());
    let is_one = |line: &&str| {
        let mut fields = line.split_whitespace().skip(2);
        let (peer, state) = (fields.next(), fields.next());
        peer.is_some_and(|peer| peer.ends_with(&port)) && state == Some(ESTABLISHED)
    };
    Ok(table.lines().filter(is_one).count())
}

/// One connection, one call after the other; the times of each probe in their order.
fn time_all(
    daemon: &Server,
    connection: &mut Connection,
    holds: fn(&Probe) -> &'static str,
) -> Result<Vec<Latencies>, Failure> {
    PROBES.iter().map(|probe| time_probe(daemon, connection, probe, holds(probe))).collect()
}

fn time_probe(
    daemon: &Server,
    connection: &mut Connection,
    probe: &Probe,
    holds: &str,
) -> Result<Latencies, Failure> {
    let mut times = Latencies::default();
    for agent in 0..CALLS {
        let path = match probe.door {
            Door::Daemon => "/".to_owned(),
            Door::Agent => format!("/agent/{}", name(agent)),
        };
        let request = daemon.request(&path, probe.method, probe.params);
        let since = Instant::now();
        let answer = connection.call(&request).map_err(|cause| daemon.failure(&cause))?;
        times.push(since.elapsed());
        let body = String::from_utf8_lossy(answer.body);
        if !body.contains(holds) {
            return Err(Failure::Failed(format!("{} was answered {body}", probe.method)));
        }
    }
    Ok(times)
}
