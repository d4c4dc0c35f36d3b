//! `cargo xtask bench`: what the daemon costs, measured beside what it cannot do without, in one run.
//! This file knows the groups and runs them; each group is a module, and what they share is beside them.

mod agents;
mod http;
mod in_process;
mod instant_model;
mod load;
mod machine;
mod memory;
mod models;
mod options;
mod process;
pub(crate) mod programs;
mod report;
mod rpc;
mod servers;
mod stall;
mod start;
mod statistics;
mod store;
mod turn;

use crate::cargo;
use crate::command::{Command, Failure};
use options::Options;
use process::ProcessGroup;
use programs::Programs;
use report::{Report, Table};

pub(crate) const COMMAND: Command = Command {
    name: "bench",
    summary: "speed, memory and start of the release build, with the goals for each",
    help: "usage: cargo xtask bench [NAME...] [--seconds N] [--json FILE]\n\n\
        Builds the release binaries and measures them, all groups or those named. What is compared is\n\
        measured in turns in one run; numbers are medians over the rounds, with the least and the most.\n\
        A goal that is missed is told and is no failure: exit code 1 only when something could not run.\n\n\
        rpc     list_agents with a token and one agent, over 1 and over 32 kept connections, beside a bare\n        \
        hyper server (crates/server/examples/floor.rs) that gets the same bytes: requests per\n        \
        second, CPU time of the server per call, latency\n\
        turn    a send that the scripted model answers at once, beside the same question put to the model\n        \
        directly: what the daemon adds\n\
        memory  resident memory after the start and one call, and per connection with 10,000 of them,\n        \
        before and after a request on each\n\
        start   from starting the daemon to its first answer, and one run of `nexus3 rpc list`\n\
        stall   latency of other calls while 1,000 agents wait for a model that says nothing more\n\
        direct  a call to an agent in the same process (examples/embed.rs), beside the same call over HTTP\n\
        agents  10,000 agents created over HTTP: memory of each, and how long a create takes\n\
        store   sends that are on the disk when they are answered, beside a writer that commits row by row; a\n        \
        turn with 10,000 messages beside one with 10; start, waking and memory with many stored agents\n\
        models  CPU time of a turn with 10 and with 10,000 messages and a model that answers at once, beside a\n        \
        server that only asks the same (crates/testkit/src/bin/relay.rs); the embedded model and\n        \
        embeddings on one thread, with the weights that ci has pulled\n\n\
        --seconds N  how long each side is under load in rpc (per number of connections), turn and\n             \
        store; 7 without it\n\
        --json FILE  write the numbers there too",
    run,
};

/// One part of the benchmark.
struct Group {
    name: &'static str,
    measure: fn(&Bench) -> Result<Table, Failure>,
}

/// Every group there is, in the order they run.
const GROUPS: &[Group] = &[
    Group { name: "rpc", measure: rpc::measure },
    Group { name: "turn", measure: turn::measure },
    Group { name: "memory", measure: memory::measure },
    Group { name: "start", measure: start::measure },
    Group { name: "stall", measure: stall::measure },
    Group { name: "direct", measure: in_process::measure },
    Group { name: "agents", measure: agents::measure },
    Group { name: "store", measure: store::measure },
    Group { name: "models", measure: models::measure },
];

/// What every group works with.
struct Bench {
    programs: Programs,
    process_group: ProcessGroup,
    options: Options,
}

fn run(arguments: &[String]) -> Result<(), Failure> {
    let options = Options::parse(arguments)?;
    if cfg!(debug_assertions) {
        return run_optimized(arguments);
    }
    let programs = programs::build()?;
    machine::raise_descriptor_limit();
    let bench = Bench { programs, process_group: ProcessGroup::new()?, options };
    let mut report = Report::new(machine::describe());
    println!("\n{}", report.header());
    let mut failed = Vec::new();
    for group in GROUPS.iter().filter(|group| bench.options.includes(group.name)) {
        eprintln!("\nmeasuring {} ...", group.name);
        match (group.measure)(&bench) {
            Ok(table) => {
                println!("\n{table}");
                report.add(group.name, table);
            }
            Err(failure) => failed.push(format!("`{}` could not run: {}", group.name, failure.message())),
        }
    }
    report.set_final_load(machine::load());
    println!("\n{}", report.footer());
    if let Some(path) = &bench.options.json {
        report.write_json(path)?;
    }
    if failed.is_empty() { Ok(()) } else { Err(Failure::Failed(failed.join("\n"))) }
}

/// The load comes from this program and takes the same cores: it has to be as quick as the servers are.
fn run_optimized(arguments: &[String]) -> Result<(), Failure> {
    const CALL: &str = "run --release --quiet --locked --package xtask -- bench";
    let status = cargo::command(CALL)
        .args(arguments)
        .current_dir(".")
        .status()
        .map_err(|cause| cargo::start_failure(CALL, &cause))?;
    if status.success() { Ok(()) } else { Err(Failure::Failed(format!("the benchmark ended with {status}"))) }
}

#[cfg(test)]
mod tests {
    use super::{COMMAND, GROUPS};

    #[test]
    fn every_group_is_explained() {
        for group in GROUPS {
            assert!(COMMAND.help.contains(&format!("\n{}", group.name)), "{}", group.name);
        }
    }
}
