//! The group `models`: what a turn costs the daemon with a short and a long history, and the embedded model and embedder on
//! one thread. The weights are those that ci has pulled.

use std::path::Path;
use std::process::Stdio;

use super::Bench;
use super::numbers::Spread;
use super::process::call;
use super::report::{Goal, Row, Table};
use super::servers::{DaemonOptions, Server};
use crate::command::Failure;
use crate::weights;

const ROUNDS: usize = 5;
/// Sends of one round; the history grows by twice as many messages.
const SENDS: usize = 100;
const SHORT: usize = 10;
const LONG: usize = 10_000;
const MILLISECONDS: f64 = 1e3;

pub(crate) fn measure(bench: &Bench) -> Result<Table, Failure> {
    let mut rows = turns(bench)?;
    rows.extend(embedded(bench)?);
    Ok(Table {
        title: "models: what a turn costs, and what runs here",
        beside: "10 messages",
        compared: "ratio",
        rows,
        notes: vec![
            "a turn: the daemon's CPU time for a send over HTTP, kept on the disk, with all of the history sent to the \
             scripted model, a process of its own; the history grows by 200 messages in a round"
                .to_owned(),
            "the embedded model: SmolLM2-135M, one thread, a prompt of 860 tokens (crates/local/examples/speed.rs); \
             embeddings: all-MiniLM-L6-v2, one thread, batches of 32 (crates/local/examples/embed_speed.rs)"
                .to_owned(),
        ],
    })
}

fn turns(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let model = Server::model(bench)?;
    let daemon = Server::daemon(bench, &DaemonOptions { model: Some(&model), ..DaemonOptions::default() })?;
    let resident_mb = daemon.process.memory()?.resident / 1e6;
    let mut short = Vec::new();
    for round in 0..ROUNDS {
        let talk = Talk::begin(&daemon, &format!("short-{round}"))?;
        talk.send(SHORT / 2)?;
        short.push(talk.cpu_ms()?);
    }
    let talk = Talk::begin(&daemon, "long")?;
    talk.send(LONG / 2)?;
    let long = (0..ROUNDS).map(|_| talk.cpu_ms()).collect::<Result<Vec<_>, _>>()?;
    let ratio = Spread::of_pairs(&long, &short, |long, short| long / short);
    Ok(vec![
        Row::new("a turn with 10 messages: CPU", "ms", Spread::of(short.iter().copied()))
            .goal(Goal::AtMost(0.3)),
        Row::new("a turn with 10,000 messages: CPU", "ms", Spread::of(long))
            .beside(Spread::of(short))
            .compared(ratio)
            .goal(Goal::AtMost(0.3)),
        Row::new("the daemon before a model was asked: RSS", "MB", Spread::of([resident_mb])),
    ])
}

/// One agent that is talked to.
struct Talk<'a> {
    daemon: &'a Server,
    request: Vec<u8>,
}

impl<'a> Talk<'a> {
    fn begin(daemon: &'a Server, name: &str) -> Result<Self, Failure> {
        daemon.create_agent(&mut daemon.connect()?, name)?;
        let request = daemon.request(&format!("/agent/{name}"), "send", r#"{"content":"!reply ok"}"#);
        Ok(Self { daemon, request })
    }

    fn send(&self, times: usize) -> Result<(), Failure> {
        let mut connection = self.daemon.connect()?;
        for _ in 0..times {
            let answer = connection.call(&self.request).map_err(|cause| self.daemon.failed(&cause))?;
            if !String::from_utf8_lossy(answer.body).contains(r#""content":"ok""#) {
                let body = String::from_utf8_lossy(answer.body).into_owned();
                return Err(Failure::Failed(format!("a send was answered {body}")));
            }
        }
        Ok(())
    }

    /// The daemon's CPU time for one send.
    fn cpu_ms(&self) -> Result<f64, Failure> {
        let before = self.daemon.process.cpu_time()?;
        self.send(SENDS)?;
        let used = self.daemon.process.cpu_time()?.saturating_sub(before);
        Ok(used.as_secs_f64() * MILLISECONDS / SENDS as f64)
    }
}

fn embedded(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let files = weights::variables()?;
    let file =
        |variable: &str| files.iter().find(|(name, _)| *name == variable).map(|(_, path)| path.as_path());
    let (Some(model), Some(embedder)) = (file("NEXUS3_TEST_MODEL"), file("NEXUS3_TEST_EMBEDDER")) else {
        return Err(Failure::Failed("the weights have no names".to_owned()));
    };
    let speed = printed(&bench.programs.speed, model)?;
    let embedding = printed(&bench.programs.embed_speed, embedder)?;
    let row = |name: &str, unit, printed: &str, line: &str, word: usize| {
        Ok::<_, Failure>(Row::new(name, unit, Spread::of([number(printed, line, word)?])))
    };
    Ok(vec![
        row("embedded: prompt", "tok/s", &speed, "first turn: prompt", 7)?.goal(Goal::AtLeast(90.0)),
        row("embedded: answer", "tok/s", &speed, "first turn: answer", 5)?.goal(Goal::AtLeast(35.0)),
        row("embedded: first token, unseen prompt", "ms", &speed, "first token", 2)?,
        row("embedded: RSS", "MB", &speed, "resident", 1)?.goal(Goal::AtMost(300.0)),
        row("embeddings", "1/s", &embedding, "batch of", 3)?,
    ])
}

fn printed(program: &Path, file: &Path) -> Result<String, Failure> {
    let output = call(program).arg(file).stdin(Stdio::null()).output();
    let output =
        output.map_err(|cause| Failure::Failed(format!("{} did not start: {cause}", program.display())))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::Failed(format!("{} ended with {}: {said}", program.display(), output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The n-th word of the line that begins like this.
fn number(printed: &str, line: &str, word: usize) -> Result<f64, Failure> {
    let found = printed.lines().find(|other| other.starts_with(line));
    let found = found.and_then(|found| found.split_whitespace().nth(word)?.parse().ok());
    found.ok_or_else(|| Failure::Failed(format!("no number in the line {line:?} of\n{printed}")))
}
