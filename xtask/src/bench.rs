//! `cargo xtask bench`: speed, memory and start-up of the release build, with baselines measured in the same run.
//! This file has the list of groups and runs them; each group is a module, next to the modules that they share.

mod agents;
mod commands;
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
    summary: "measure speed, memory and start-up of the release build",
    help: "usage: cargo xtask bench [NAME...] [--seconds N] [--json FILE]\n\n\
        Build the release binaries and measure all groups, or the named ones. Each\n\
        baseline is measured in alternation with nexus3, in the same run. Figures are\n\
        medians over the rounds, with minimum and maximum. A missed goal is reported but\n\
        is no failure: exit code 1 only when a group could not run.\n\n\
        rpc     list_agents with a token and one agent, over 1 and over 32 persistent\n        \
        connections: requests/s, CPU time per call, latency; baseline: a bare\n        \
        hyper server with the same requests (crates/server/examples/floor.rs)\n\
        turn    a send that the scripted model answers at once; baseline: the same\n        \
        request sent directly to the model server\n\
        memory  RSS, PSS, USS and anonymous memory after start and one call, and per\n        \
        connection with 10,000 connections, before and after a request on each;\n        \
        per event stream that is not read while an agent prints 10 MB per turn\n\
        start   time from start to the daemon's first response, and of `nexus3 rpc list`\n\
        stall   latency of other calls while 1,000 agents wait for a stalled model\n\
        direct  a call through the in-process API (examples/embed.rs); baseline: the\n        \
        same call over HTTP\n\
        agents  memory per agent, and latency of create_agent, for 10,000 agents\n\
        store   durable sends; baseline: a SQLite writer that commits every row. Turns\n        \
        with 10,000 messages; baseline: with 10. Start, wake and memory with\n        \
        many stored agents\n\
        models  CPU time of a turn with 10 and with 10,000 messages; baseline: a relay\n        \
        that only sends a request of the same size to the model\n        \
        (crates/testkit/src/bin/relay.rs). The embedded model and embeddings on\n        \
        one thread, with the weights that ci has downloaded\n\
        commands  /bin/true in the sandbox, in both tiers; baseline: the same command\n          \
        without a sandbox (crates/sandbox/examples/commands.rs)\n\n\
        --seconds N  duration of load per side in rpc (per number of connections), turn\n             \
        and store (default 7)\n\
        --json FILE  also write the figures to FILE",
    run,
};

/// A group of measurements that can be run alone.
struct Group {
    name: &'static str,
    measure: fn(&Bench) -> Result<Table, Failure>,
}

/// All groups, in the order in which they run.
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
    Group { name: "commands", measure: commands::measure },
];

/// The binaries, processes and options that all groups share.
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
            Err(failure) => {
                failed.push(format!("group `{}` could not run: {}", group.name, failure.message()));
            }
        }
    }
    report.set_final_load(machine::load());
    println!("\n{}", report.footer());
    if let Some(path) = &bench.options.json {
        report.write_json(path)?;
    }
    if failed.is_empty() { Ok(()) } else { Err(Failure::Failed(failed.join("\n"))) }
}

/// Runs this command again as a release build: the load generator shares the cores with the servers, and a debug build
/// would limit the throughput.
fn run_optimized(arguments: &[String]) -> Result<(), Failure> {
    const CARGO_RUN: &str = "run --release --quiet --locked --package xtask -- bench";
    let status = cargo::command(CARGO_RUN)
        .args(arguments)
        .current_dir(".")
        .status()
        .map_err(|cause| cargo::start_failure(CARGO_RUN, &cause))?;
    if status.success() { Ok(()) } else { Err(Failure::Failed(format!("the benchmark ended with {status}"))) }
}

#[cfg(test)]
mod tests {
    use super::{COMMAND, GROUPS};

    #[test]
    fn help_lists_every_group() {
        for group in GROUPS {
            assert!(COMMAND.help.contains(&format!("\n{}", group.name)), "{}", group.name);
        }
    }
}
