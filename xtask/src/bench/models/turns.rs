//! CPU time of a turn with a short and a long history, with a model that responds at once. The baseline is the relay,
//! which takes the same request and only sends a request of the same size to the same model.

use std::time::Duration;

use super::super::Bench;
use super::super::instant_model::InstantModel;
use super::super::load::ConnectionPool;
use super::super::report::{Goal, Row};
use super::super::servers::{DaemonOptions, Server};
use super::super::statistics::Spread;
use super::super::turn::PROMPT;
use crate::command::Failure;

const ROUNDS: usize = 5;
/// Duration of load per side and round. It is short, because the histories grow meanwhile.
const ROUND_DURATION: Duration = Duration::from_millis(500);
const HISTORY_LENGTHS: [usize; 2] = [10, 10_000];
const CONCURRENCY_LEVELS: [usize; 2] = [16, 1];
const MILLISECONDS: f64 = 1e3;

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let model =
        InstantModel::start().map_err(|cause| Failure::Failed(format!("the instant model: {cause}")))?;
    let daemon =
        Server::daemon(bench, &DaemonOptions { model: Some(model.address), ..DaemonOptions::default() })?;
    let mut rows = Vec::new();
    for messages in HISTORY_LENGTHS {
        let conversation = Conversation::start(bench, &daemon, &model, messages)?;
        for concurrency in CONCURRENCY_LEVELS {
            rows.push(conversation.measure_row(concurrency)?);
        }
    }
    Ok(rows)
}

/// An agent with `messages` messages, which is forked for each measurement.
struct Conversation<'a> {
    daemon: &'a Server,
    relay: Server,
    name: String,
    messages: usize,
}

impl<'a> Conversation<'a> {
    fn start(
        bench: &Bench,
        daemon: &'a Server,
        model: &InstantModel,
        messages: usize,
    ) -> Result<Self, Failure> {
        let name = format!("with-{messages}");
        let mut connection = daemon.connect()?;
        daemon.create_agent(&mut connection, &name)?;
        let request = send_request(daemon, &name);
        for _ in 0..messages / 2 {
            connection.call(&request).map_err(|cause| daemon.failure(&cause))?;
        }
        let relay = Server::relay(bench, model.address, model.last_request_bytes())?;
        Ok(Self { daemon, relay, name, messages })
    }

    fn measure_row(&self, concurrency: usize) -> Result<Row, Failure> {
        let (mut measured, mut baseline) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let names: Vec<_> =
                (0..concurrency).map(|index| format!("{}-{round}-{index}", self.name)).collect();
            let mut connection = self.daemon.connect()?;
            for name in &names {
                let params = format!(r#"{{"agent_id":"{}","new_agent_id":"{name}"}}"#, self.name);
                self.daemon.call(&mut connection, "/", "fork_agent", &params)?;
            }
            let requests: Vec<_> = names.iter().map(|name| send_request(self.daemon, name)).collect();
            baseline.push(cpu_ms(&self.relay, &requests)?);
            measured.push(cpu_ms(self.daemon, &requests)?);
            for name in &names {
                let params = format!(r#"{{"agent_id":"{name}"}}"#);
                self.daemon.call(&mut connection, "/", "destroy_agent", &params)?;
            }
        }
        let difference = Spread::from_pairs(&measured, &baseline, |measured, baseline| measured - baseline);
        let name = format!("a turn with {} messages, {concurrency} at once: CPU", self.messages);
        let row = Row::new(name, "ms", Spread::from_values(measured))
            .baseline(Spread::from_values(baseline))
            .comparison(difference);
        Ok(if concurrency == 1 { row } else { row.goal(Goal::ComparisonAtMost(0.3)) })
    }
}

fn send_request(daemon: &Server, name: &str) -> Vec<u8> {
    daemon.request(&format!("/agent/{name}"), "send", &format!(r#"{{"content":"{PROMPT}"}}"#))
}

/// Returns a server's CPU time per call, with one call in flight per request.
fn cpu_ms(server: &Server, requests: &[Vec<u8>]) -> Result<f64, Failure> {
    let failed = |cause| server.failure(&cause);
    let mut pool = ConnectionPool::open(server.address, requests.len()).map_err(failed)?;
    // Warm-up: opens the connections, and the daemon encodes the complete history once per conversation.
    pool.run_each(requests, Duration::ZERO).map_err(failed)?;
    let before = server.process.cpu_time()?;
    let round = pool.run_each(requests, ROUND_DURATION).map_err(failed)?;
    let cpu_time = server.process.cpu_time()?.saturating_sub(before);
    Ok(cpu_time.as_secs_f64() * MILLISECONDS / round.calls())
}
