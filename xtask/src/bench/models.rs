//! The group `models`: what a turn costs the daemon with a short and a long history, and the embedded model and embedder on
//! one thread. The weights are those that ci has pulled.

mod turns;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::Bench;
use super::instant_model::InstantModel;
use super::process::clean_command;
use super::report::{Goal, Row, Table};
use super::servers::{DaemonOptions, Server, temporary_folder, wait_until_idle};
use super::statistics::Spread;
use crate::command::Failure;
use crate::weights;

/// The catalog's name of the model.
const EMBEDDED_MODEL_ID: &str = "smollm2-135m";
/// A vocabulary to count with, and what is needed on the way.
const EMBEDDED_ADDS_MB_MAX: f64 = 5.0;

pub(crate) fn measure(bench: &Bench) -> Result<Table, Failure> {
    let mut rows = turns::measure(bench)?;
    rows.extend(embedded(bench)?);
    Ok(Table {
        title: "models: what a turn costs, and what runs here",
        baseline: "relay",
        comparison: "own",
        rows,
        notes: vec![
            "a turn: CPU time for a send over HTTP, kept on the disk, the whole history sent to a model that answers at \
             once; beside it the relay, which takes the same request and asks the same model with as many bytes, and \
             keeps nothing (crates/testkit/src/bin/relay.rs); own is the difference"
                .to_owned(),
            "alone most of the CPU time is waking threads, which is dear in a virtual machine".to_owned(),
            "the daemon's RSS: most of it is pages of the program; the first answer brings in those for a turn and for HTTP, \
             and when nobody calls for a while the daemon lets go of them"
                .to_owned(),
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
        return Err(Failure::Failed("the weights have no names".to_owned()));
    };
    let speed = run_on_file(&bench.programs.speed, model)?;
    let embedding = run_on_file(&bench.programs.embed_speed, embedder)?;
    let row = |name: &str, unit, printed: &str, line: &str, word: usize| {
        Ok::<_, Failure>(Row::new(name, unit, Spread::from_values([parse_number(printed, line, word)?])))
    };
    let mut rows = daemon_memory(bench, model)?;
    rows.extend([
        row("embedded: prompt", "tok/s", &speed, "first turn: prompt", 7)?.goal(Goal::AtLeast(90.0)),
        row("embedded: answer", "tok/s", &speed, "first turn: answer", 5)?.goal(Goal::AtLeast(35.0)),
        row("embedded: first token, unseen prompt", "ms", &speed, "first token", 2)?,
        row("embedded: RSS", "MB", &speed, "resident", 1)?.goal(Goal::AtMost(300.0)),
        row("embeddings", "1/s", &embedding, "batch of", 3)?,
    ]);
    Ok(rows)
}

/// What a daemon takes in memory before and after one answer of a model elsewhere, and of the embedded one, which runs in
/// its child.
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
    let elsewhere =
        InstantModel::start().map_err(|cause| Failure::Failed(format!("the instant model: {cause}")))?;
    let (mut rows, mut added_mb, mut resting) = (Vec::new(), Vec::new(), Vec::new());
    let row = |model: &str, when: &str, resident_mb| {
        let name = format!("the daemon {when} an answer of a model {model}: RSS");
        Row::new(name, "MB", Spread::from_values([resident_mb]))
    };
    for (model, options) in [
        ("elsewhere", DaemonOptions { model: Some(elsewhere.address), ..DaemonOptions::default() }),
        ("embedded", DaemonOptions { home: Some(&home), ..DaemonOptions::default() }),
    ] {
        let daemon = Server::daemon(bench, &options)?;
        let before = resident_mb(&daemon)?;
        let mut connection = daemon.connect()?;
        daemon.create_agent(&mut connection, "asked")?;
        daemon.call(&mut connection, "/agent/asked", "send", r#"{"content":"Say yes."}"#)?;
        let after = resident_mb(&daemon)?;
        rows.extend([row(model, "before", before), row(model, "after", after)]);
        added_mb.push(after - before);
        resting.push((model, daemon));
    }
    wait_until_idle();
    for (model, daemon) in &resting {
        rows.push(row(model, "at rest after", resident_mb(daemon)?));
    }
    let more = Spread::from_pairs(&added_mb[1..], &added_mb[..1], |embedded, elsewhere| embedded - elsewhere);
    let more = Row::new("the daemon: what the embedded model adds more to its RSS", "MB", more);
    rows.push(more.goal(Goal::AtMost(EMBEDDED_ADDS_MB_MAX)));
    Ok(rows)
}

fn resident_mb(daemon: &Server) -> Result<f64, Failure> {
    Ok(daemon.process.memory()?.resident / 1e6)
}

fn run_on_file(program: &Path, file: &Path) -> Result<String, Failure> {
    run_checked(clean_command(program).arg(file))
}

/// What a program prints that has to succeed.
fn run_checked(command: &mut Command) -> Result<String, Failure> {
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
fn parse_number(printed: &str, line: &str, word: usize) -> Result<f64, Failure> {
    let found = printed.lines().find(|other| other.starts_with(line));
    let found = found.and_then(|found| found.split_whitespace().nth(word)?.parse().ok());
    found.ok_or_else(|| Failure::Failed(format!("no number in the line {line:?} of\n{printed}")))
}
