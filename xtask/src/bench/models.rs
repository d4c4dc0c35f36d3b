//! The group `models`: CPU time of a turn with a short and a long history, and speed and memory of the embedded model
//! and embedder on one thread. Uses the weights that ci has downloaded.

mod turns;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::Bench;
use super::instant_model::InstantModel;
use super::process::{Memory, clean_command};
use super::report::{Goal, Row, Table};
use super::servers::{DaemonOptions, Server, temporary_folder};
use super::statistics::Spread;
use crate::command::Failure;
use crate::weights;

/// The id of the embedded model in the catalog of weights.
const EMBEDDED_MODEL_ID: &str = "smollm2-135m";
/// Memory for a vocabulary to count tokens with, and for loading it.
const EMBEDDED_ADDS_MB_MAX: f64 = 5.0;
const MEGABYTES: f64 = 1e6;

pub(crate) fn measure(bench: &Bench) -> Result<Table, Failure> {
    let mut rows = turns::measure(bench)?;
    rows.extend(embedded(bench)?);
    Ok(Table {
        title: "models: CPU time of a turn, and the embedded models",
        baseline: "relay",
        comparison: "difference",
        rows,
        notes: vec![
            "a turn: CPU time of a durable send over HTTP, with the complete history sent to a model that responds at \
             once; baseline: the relay, which takes the same request, sends as many bytes to the same model, and \
             stores nothing (crates/testkit/src/bin/relay.rs)"
                .to_owned(),
            "1 at once: most of the CPU time is spent waking threads, which is expensive in a virtual machine"
                .to_owned(),
            "the daemon's RSS: mostly pages of the executable, which the child process of the embedded model shares; the \
             first turn maps those for turns and for HTTP"
                .to_owned(),
            Memory::NOTE.to_owned(),
            "the embedded model: SmolLM2-135M, one thread, a prompt of 860 tokens (crates/local/examples/speed.rs); \
             embeddings: all-MiniLM-L6-v2, one thread, batches of 32 (crates/local/examples/embed_speed.rs)"
                .to_owned(),
        ],
    })
}

fn embedded(bench: &Bench) -> Result<Vec<Row>, Failure> {
    let files = weights::test_variables()?;
    let file =
        |variable: &str| files.iter().find(|(name, _)| *name == variable).map(|(_, path)| path.as_path());
    let (Some(model), Some(embedder)) = (file("NEXUS3_TEST_MODEL"), file("NEXUS3_TEST_EMBEDDER")) else {
        return Err(Failure::Failed(
            "no weights are listed for NEXUS3_TEST_MODEL and NEXUS3_TEST_EMBEDDER".to_owned(),
        ));
    };
    let speed = run_on_file(&bench.programs.speed, model)?;
    let embedding = run_on_file(&bench.programs.embed_speed, embedder)?;
    let row = |name: &str, unit, printed: &str, prefix: &str, word: usize| {
        Ok::<_, Failure>(Row::new(name, unit, Spread::from_values([parse_number(printed, prefix, word)?])))
    };
    let mut rows = daemon_memory(bench, model)?;
    rows.extend([
        row("embedded: prompt", "tok/s", &speed, "first turn: prompt", 7)?.goal(Goal::AtLeast(90.0)),
        row("embedded: response", "tok/s", &speed, "first turn: answer", 5)?.goal(Goal::AtLeast(35.0)),
        row("embedded: first token, prompt not cached", "ms", &speed, "first token", 2)?,
        row("embedded: RSS", "MB", &speed, "resident", 1)?.goal(Goal::AtMost(300.0)),
        row("embeddings", "1/s", &embedding, "batch of", 3)?,
    ]);
    Ok(rows)
}

/// Measures the daemon's memory before and after a turn with a remote model, and with the embedded model, which runs in
/// a child process.
fn daemon_memory(bench: &Bench, weights: &Path) -> Result<Vec<Row>, Failure> {
    let home = temporary_folder(bench)?;
    let mut pull = clean_command(&bench.programs.nexus3);
    pull.arg("--home").arg(&home).args(["models", "pull", EMBEDDED_MODEL_ID, "--yes", "--from"]).arg(weights);
    run_checked(&mut pull)?;
    let config = format!(
        "model = 'brief'\n[models.brief]\nmodel = 'local/{EMBEDDED_MODEL_ID}'\nanswer_tokens_max = 8\n"
    );
    let path = home.join("config.toml");
    fs::write(&path, config).map_err(|cause| Failure::Failed(format!("{}: {cause}", path.display())))?;
    let remote =
        InstantModel::start().map_err(|cause| Failure::Failed(format!("the instant model: {cause}")))?;
    let (mut rows, mut added_mb) = (Vec::new(), Vec::new());
    let mut add = |model: &str, state: &str, memory: Memory| {
        for (name, figure) in Memory::FIGURES {
            let name = format!("the daemon {state} a turn with the {model} model: {name}");
            rows.push(Row::new(name, "MB", Spread::from_values([figure(&memory) / MEGABYTES])));
        }
    };
    for (model, options) in [
        ("remote", DaemonOptions { model: Some(remote.address), ..DaemonOptions::default() }),
        ("embedded", DaemonOptions { home: Some(&home), ..DaemonOptions::default() }),
    ] {
        let daemon = Server::daemon(bench, &options)?;
        let before = daemon.process.memory()?;
        let mut connection = daemon.connect()?;
        daemon.create_agent(&mut connection, "agent")?;
        daemon.call(&mut connection, "/agent/agent", "send", r#"{"content":"Say yes."}"#)?;
        let after = daemon.process.memory()?;
        add(model, "before", before);
        add(model, "after", after);
        added_mb.push((after.rss - before.rss) / MEGABYTES);
    }
    let extra = Spread::from_pairs(&added_mb[1..], &added_mb[..1], |embedded, remote| embedded - remote);
    let extra = Row::new("the daemon: RSS added by the embedded model, beyond a remote one", "MB", extra);
    rows.push(extra.goal(Goal::AtMost(EMBEDDED_ADDS_MB_MAX)));
    Ok(rows)
}

fn run_on_file(program: &Path, file: &Path) -> Result<String, Failure> {
    run_checked(clean_command(program).arg(file))
}

/// Runs a program that has to succeed and returns its stdout.
fn run_checked(command: &mut Command) -> Result<String, Failure> {
    let output = command.stdin(Stdio::null()).output();
    let program = command.get_program().display();
    let output = output.map_err(|cause| Failure::Failed(format!("{program} did not start: {cause}")))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::Failed(format!("{program} failed ({}): {stderr}", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Parses the number at index `word` of the first line that starts with `prefix`.
fn parse_number(printed: &str, prefix: &str, word: usize) -> Result<f64, Failure> {
    let line = printed.lines().find(|line| line.starts_with(prefix));
    let number = line.and_then(|line| line.split_whitespace().nth(word)?.parse().ok());
    number.ok_or_else(|| Failure::Failed(format!("no number in the line {prefix:?} of\n{printed}")))
}
