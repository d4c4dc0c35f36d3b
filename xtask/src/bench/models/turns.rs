//! What a turn costs the daemon with a short and a long history and a model that answers at once, beside a server that
//! only takes the same request and puts a question of the same length to the same model.

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
/// How long each side works in a round. The histories grow meanwhile, so that it has to be short.
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
        let talk = Conversation::start(bench, &daemon, &model, messages)?;
        for at_once in CONCURRENCY_LEVELS {
            rows.push(talk.measure_row(at_once)?);
        }
    }
    Ok(rows)
}

/// An agent with so many messages, from which others are forked.
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

    fn measure_row(&self, at_once: usize) -> Result<Row, Failure> {
        let (mut ours, mut beside) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let names: Vec<_> = (0..at_once).map(|place| format!("{}-{round}-{place}", self.name)).collect();
            let mut connection = self.daemon.connect()?;
            for name in &names {
                let params = format!(r#"{{"agent_id":"{}","new_agent_id":"{name}"}}"#, self.name);
                self.daemon.call(&mut connection, "/", "fork_agent", &params)?;
            }
            let requests: Vec<_> = names.iter().map(|name| send_request(self.daemon, name)).collect();
            beside.push(cpu_ms(&self.relay, &requests)?);
            ours.push(cpu_ms(self.daemon, &requests)?);
            for name in &names {
                let params = format!(r#"{{"agent_id":"{name}"}}"#);
                self.daemon.call(&mut connection, "/", "destroy_agent", &params)?;
            }
        }
        let own = Spread::from_pairs(&ours, &beside, |ours, beside| ours - beside);
        let how = if at_once == 1 { "alone".to_owned() } else { format!("{at_once} at once") };
        let name = format!("a turn with {} messages, {how}: CPU", self.messages);
        let row = Row::new(name, "ms", Spread::from_values(ours))
            .baseline(Spread::from_values(beside))
            .comparison(own);
        Ok(if at_once == 1 { row } else { row.goal(Goal::ComparisonAtMost(0.3)) })
    }
}

fn send_request(daemon: &Server, name: &str) -> Vec<u8> {
    daemon.request(&format!("/agent/{name}"), "send", &format!(r#"{{"content":"{PROMPT}"}}"#))
}

/// A server's CPU time for one call, with as many of them under way as there are requests.
fn cpu_ms(server: &Server, requests: &[Vec<u8>]) -> Result<f64, Failure> {
    let failed = |cause| server.failure(&cause);
    let mut herd = ConnectionPool::open(server.address, requests.len()).map_err(failed)?;
    // The first question of a conversation is written whole, and each connection is made once.
    herd.run_each(requests, Duration::ZERO).map_err(failed)?;
    let before = server.process.cpu_time()?;
    let round = herd.run_each(requests, ROUND_DURATION).map_err(failed)?;
    let used = server.process.cpu_time()?.saturating_sub(before);
    Ok(used.as_secs_f64() * MILLISECONDS / round.calls())
}
