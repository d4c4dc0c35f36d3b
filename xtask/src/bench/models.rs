//! The group `models`: what a turn costs the daemon with a short and a long history, and the embedded model and embedder on
//! one thread. The weights are those that ci has pulled.

mod turns;

use std::path::Path;
use std::process::{Command, Stdio};

use super::Bench;
use super::numbers::Spread;
use super::process::call;
use super::report::{Goal, Row, Table};
use super::servers::{DaemonOptions, Server, folder};
use super::turn::PROMPT;
use crate::command::Failure;
use crate::weights;

/// The catalog's name of the model.
const EMBEDDED: &str = "smollm2-135m";

pub(crate) fn measure(bench: &Bench) -> Result<Table, Failure> {
    let mut rows = turns::measure(bench)?;
    rows.extend(embedded(bench)?);
    Ok(Table {
        title: "models: what a turn costs, and what runs here",
        beside: "relay",
        compared: "own",
        rows,
        notes: vec![
            "a turn: CPU time for a send over HTTP, kept on the disk, the whole history sent to a model that answers at \
             once; beside it the relay, which takes the same request and asks the same model with as many bytes, and \
             keeps nothing (crates/testkit/src/bin/relay.rs); own is the difference"
                .to_owned(),
            "alone most of the CPU time is waking threads, which is dear in a virtual machine".to_owned(),
            "the embedded model: SmolLM2-135M, one thread, a prompt of 860 tokens (crates/local/examples/speed.rs); \
             embeddings: all-MiniLM-L6-v2, one thread, batches of 32 (crates/local/examples/embed_speed.rs)"
                .to_owned(),
        ],
    })
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
    let [before, after] = daemon_of_the_embedded(bench, model)?;
    Ok(vec![
        row("embedded: prompt", "tok/s", &speed, "first turn: prompt", 7)?.goal(Goal::AtLeast(90.0)),
        row("embedded: answer", "tok/s", &speed, "first turn: answer", 5)?.goal(Goal::AtLeast(35.0)),
        row("embedded: first token, unseen prompt", "ms", &speed, "first token", 2)?,
        row("embedded: RSS", "MB", &speed, "resident", 1)?.goal(Goal::AtMost(300.0)),
        Row::new("embedded: RSS of its daemon before", "MB", Spread::of([before])),
        Row::new("embedded: RSS of its daemon after an answer", "MB", Spread::of([after])),
        row("embeddings", "1/s", &embedding, "batch of", 3)?,
    ])
}

/// What a daemon takes before and after the embedded model answers in its child.
fn daemon_of_the_embedded(bench: &Bench, weights: &Path) -> Result<[f64; 2], Failure> {
    let home = folder(bench)?;
    let mut pull = call(&bench.programs.nexus3);
    pull.arg("--home").arg(&home).args(["models", "pull", EMBEDDED, "--yes", "--from"]).arg(weights);
    done(&mut pull)?;
    let daemon = Server::daemon(bench, &DaemonOptions { home: Some(&home), ..DaemonOptions::default() })?;
    let resident_mb = || Ok::<_, Failure>(daemon.process.memory()?.resident / 1e6);
    let mut connection = daemon.connect()?;
    let before = resident_mb()?;
    let params = format!(r#"{{"agent_id":"asked","model":"local/{EMBEDDED}"}}"#);
    daemon.call(&mut connection, "/", "create_agent", &params)?;
    daemon.call(&mut connection, "/agent/asked", "send", &format!(r#"{{"content":"{PROMPT}"}}"#))?;
    Ok([before, resident_mb()?])
}

fn printed(program: &Path, file: &Path) -> Result<String, Failure> {
    done(call(program).arg(file))
}

/// What a program prints that has to succeed.
fn done(command: &mut Command) -> Result<String, Failure> {
    let output = command.stdin(Stdio::null()).output();
    let program = command.get_program().display();
    let output = output.map_err(|cause| Failure::Failed(format!("{program} did not start: {cause}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::Failed(format!("{program} ended with {}: {said}", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The n-th word of the line that begins like this.
fn number(printed: &str, line: &str, word: usize) -> Result<f64, Failure> {
    let found = printed.lines().find(|other| other.starts_with(line));
    let found = found.and_then(|found| found.split_whitespace().nth(word)?.parse().ok());
    found.ok_or_else(|| Failure::Failed(format!("no number in the line {line:?} of\n{printed}")))
}
