//! The group `turn`: a send that the model answers at once, beside the same question put to the model directly.

use std::time::{Duration, Instant};

use super::Bench;
use super::http::{self, Connection};
use super::report::{Goal, Row, Table};
use super::servers::{DaemonOptions, MODEL_KEY, SYSTEM_PROMPT, Server};
use super::statistics::{Latencies, Spread};
use crate::command::Failure;

const ROUNDS: u32 = 15;
/// Sends to one agent; then a fresh one, so that its history stays short.
const SENDS: usize = 50;
pub(crate) const PROMPT: &str = "!reply ok";
const REPLY: &str = "ok";
const MILLISECONDS: f64 = 1e3;

/// Both sides of the comparison, and how many agents were used up.
struct TurnBench<'a> {
    daemon: &'a Server,
    daemon_connection: Connection,
    model: &'a Server,
    model_connection: Connection,
    /// The n-th carries the history of the n-th send to an agent.
    model_requests: Vec<Vec<u8>>,
    agents: usize,
}

/// What the rounds of one side gave.
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
        agents: 0,
    };
    let (mut direct, mut through) = (Samples::default(), Samples::default());
    // The first question makes the daemon's HTTP client, which is not what a turn costs.
    turns.round(Duration::ZERO)?;
    for _ in 0..ROUNDS {
        let (round_direct, round_through) = turns.round(bench.options.time / ROUNDS)?;
        direct.add(round_direct);
        through.add(round_through);
    }
    Ok(Table {
        title: "turn: send of `!reply ok`, beside the same question put to the model directly",
        baseline: "direct",
        comparison: "overhead",
        rows: compare(&direct, &through),
        notes: vec![
            format!("a fresh agent every {SENDS} sends; the direct questions carry the same histories"),
            "the overhead of p99 is over the direct p50".to_owned(),
        ],
    })
}

fn compare(direct: &Samples, through: &Samples) -> Vec<Row> {
    let row = |name: &str, direct: &[f64], through: &[f64]| {
        Row::new(name, "ms", Spread::from_values(through.iter().copied()))
            .baseline(Spread::from_values(direct.iter().copied()))
    };
    let minus =
        |through: &[f64]| Spread::from_pairs(through, &direct.p50_ms, |through, direct| through - direct);
    vec![
        row("latency p50", &direct.p50_ms, &through.p50_ms)
            .comparison(minus(&through.p50_ms))
            .goal(Goal::ComparisonBelow(0.5)),
        row("latency p99", &direct.p99_ms, &through.p99_ms).comparison(minus(&through.p99_ms)),
    ]
}

impl Samples {
    fn add(&mut self, mut times: Latencies) {
        self.p50_ms.push(times.percentile(50) * MILLISECONDS);
        self.p99_ms.push(times.percentile(99) * MILLISECONDS);
    }
}

impl TurnBench<'_> {
    /// Agents in turn with direct questions until both sides together have used twice the time, at least once.
    fn round(&mut self, time: Duration) -> Result<(Latencies, Latencies), Failure> {
        let (mut direct, mut through) = (Latencies::default(), Latencies::default());
        let start = Instant::now();
        while direct.len() == 0 || start.elapsed() < 2 * time {
            self.call_model(&mut direct)?;
            self.send(&mut through)?;
        }
        Ok((direct, through))
    }

    fn call_model(&mut self, times: &mut Latencies) -> Result<(), Failure> {
        for question in &self.model_requests {
            let since = Instant::now();
            self.model_connection.call(question).map_err(|cause| self.model.failure(&cause))?;
            times.push(since.elapsed());
        }
        Ok(())
    }

    fn send(&mut self, times: &mut Latencies) -> Result<(), Failure> {
        let name = format!("turn-{}", self.agents);
        self.agents += 1;
        let (daemon, connection) = (self.daemon, &mut self.daemon_connection);
        daemon.create_agent(connection, &name)?;
        let params = format!(r#"{{"content":"{PROMPT}"}}"#);
        let request = daemon.request(&format!("/agent/{name}"), "send", &params);
        for _ in 0..SENDS {
            let since = Instant::now();
            let answer = connection.call(&request).map_err(|cause| daemon.failure(&cause))?;
            times.push(since.elapsed());
            let wanted = format!(r#""content":"{REPLY}""#);
            if !String::from_utf8_lossy(answer.body).contains(&wanted) {
                let body = String::from_utf8_lossy(answer.body).into_owned();
                return Err(Failure::Failed(format!("a send was answered {body}")));
            }
        }
        daemon.call(connection, "/", "destroy_agent", &format!(r#"{{"agent_id":"{name}"}}"#)).map(|_| ())
    }
}

/// What the daemon asks after `count` earlier sends, without its tools and the time.
fn model_request(model: &Server, count: usize) -> Vec<u8> {
    let user = format!(r#"{{"role":"user","content":"{PROMPT}"}}"#);
    let past = format!(r#"{user},{{"role":"assistant","content":"{REPLY}"}},"#).repeat(count);
    let body = format!(
        r#"{{"model":"scripted","messages":[{{"role":"system","content":"{SYSTEM_PROMPT}"}},{past}{user}],"stream":true,"stream_options":{{"include_usage":true}}}}"#
    );
    http::post_request(model.address, "/v1/chat/completions", Some(MODEL_KEY), &body)
}
