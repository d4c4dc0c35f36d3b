//! The group `turn`: latency of a send that the model answers at once; the baseline is the same request sent directly
//! to the model server.

use std::time::{Duration, Instant};

use super::Bench;
use super::http::{self, Connection};
use super::report::{Goal, Row, Table};
use super::servers::{DaemonOptions, MODEL_KEY, SYSTEM_PROMPT, Server};
use super::statistics::{Latencies, Spread};
use crate::command::Failure;

const ROUNDS: u32 = 15;
/// Sends per agent. Each agent is replaced after them, so that its history stays short.
const SENDS: usize = 50;
pub(crate) const PROMPT: &str = "!reply ok";
const REPLY: &str = "ok";
const MILLISECONDS: f64 = 1e3;

/// Both sides of the comparison.
struct TurnBench<'a> {
    daemon: &'a Server,
    daemon_connection: Connection,
    model: &'a Server,
    model_connection: Connection,
    /// The n-th request has the history of the n-th send to an agent.
    model_requests: Vec<Vec<u8>>,
    agents_created: usize,
}

/// Figures of one side, one per round.
#[derive(Default)]
struct Samples {
    p50_ms: Vec<f64>,
    p99_ms: Vec<f64>,
}

pub(crate) fn measure(bench: &Bench) -> Result<Table, Failure> {
    let model = Server::model(bench)?;
    let daemon =
        Server::daemon(bench, &DaemonOptions { model: Some(model.address), ..DaemonOptions::default() })?;
    let mut turns = TurnBench {
        daemon_connection: daemon.connect()?,
        model_connection: model.connect()?,
        model_requests: (0..SENDS).map(|count| model_request(&model, count)).collect(),
        daemon: &daemon,
        model: &model,
        agents_created: 0,
    };
    let (mut direct, mut sends) = (Samples::default(), Samples::default());
    // The daemon creates its HTTP client at the first model call, which is not part of the cost of a turn.
    turns.round(Duration::ZERO)?;
    for _ in 0..ROUNDS {
        let (round_direct, round_sends) = turns.round(bench.options.time / ROUNDS)?;
        direct.add(round_direct);
        sends.add(round_sends);
    }
    Ok(Table {
        title: "turn: send of `!reply ok`; baseline: the same request sent directly to the model",
        baseline: "direct",
        comparison: "overhead",
        rows: compare(&direct, &sends),
        notes: vec![
            format!("a new agent every {SENDS} sends; the direct requests have the same histories"),
            "the overhead of p99 is relative to the direct p50".to_owned(),
        ],
    })
}

fn compare(direct: &Samples, sends: &Samples) -> Vec<Row> {
    let row = |name: &str, direct: &[f64], sends: &[f64]| {
        Row::new(name, "ms", Spread::from_values(sends.iter().copied()))
            .baseline(Spread::from_values(direct.iter().copied()))
    };
    let overhead = |sends: &[f64]| Spread::from_pairs(sends, &direct.p50_ms, |send, direct| send - direct);
    vec![
        row("latency p50", &direct.p50_ms, &sends.p50_ms)
            .comparison(overhead(&sends.p50_ms))
            .goal(Goal::ComparisonBelow(0.5)),
        row("latency p99", &direct.p99_ms, &sends.p99_ms).comparison(overhead(&sends.p99_ms)),
    ]
}

impl Samples {
    fn add(&mut self, mut times: Latencies) {
        self.p50_ms.push(times.percentile(50) * MILLISECONDS);
        self.p99_ms.push(times.percentile(99) * MILLISECONDS);
    }
}

impl TurnBench<'_> {
    /// Alternates direct requests and sends until both sides together have taken twice `time`, but at least once.
    fn round(&mut self, time: Duration) -> Result<(Latencies, Latencies), Failure> {
        let (mut direct, mut sends) = (Latencies::default(), Latencies::default());
        let start = Instant::now();
        while direct.len() == 0 || start.elapsed() < 2 * time {
            self.call_model(&mut direct)?;
            self.send(&mut sends)?;
        }
        Ok((direct, sends))
    }

    fn call_model(&mut self, times: &mut Latencies) -> Result<(), Failure> {
        for request in &self.model_requests {
            let start = Instant::now();
            self.model_connection.call(request).map_err(|cause| self.model.failure(&cause))?;
            times.push(start.elapsed());
        }
        Ok(())
    }

    fn send(&mut self, times: &mut Latencies) -> Result<(), Failure> {
        let name = format!("turn-{}", self.agents_created);
        self.agents_created += 1;
        let (daemon, connection) = (self.daemon, &mut self.daemon_connection);
        daemon.create_agent(connection, &name)?;
        let params = format!(r#"{{"content":"{PROMPT}"}}"#);
        let request = daemon.request(&format!("/agent/{name}"), "send", &params);
        for _ in 0..SENDS {
            let start = Instant::now();
            let response = connection.call(&request).map_err(|cause| daemon.failure(&cause))?;
            times.push(start.elapsed());
            let expected = format!(r#""content":"{REPLY}""#);
            if !String::from_utf8_lossy(response.body).contains(&expected) {
                let body = String::from_utf8_lossy(response.body).into_owned();
                return Err(Failure::Failed(format!("unexpected response to send: {body}")));
            }
        }
        daemon.call(connection, "/", "destroy_agent", &format!(r#"{{"agent_id":"{name}"}}"#)).map(|_| ())
    }
}

/// The request that the daemon sends to the model after `count` earlier sends, without tools and volatile suffix.
fn model_request(model: &Server, count: usize) -> Vec<u8> {
    let user = format!(r#"{{"role":"user","content":"{PROMPT}"}}"#);
    let history = format!(r#"{user},{{"role":"assistant","content":"{REPLY}"}},"#).repeat(count);
    let body = format!(
        r#"{{"model":"scripted","messages":[{{"role":"system","content":"{SYSTEM_PROMPT}"}},{history}{user}],"stream":true,"stream_options":{{"include_usage":true}}}}"#
    );
    http::post_request(model.address, "/v1/chat/completions", Some(MODEL_KEY), &body)
}
