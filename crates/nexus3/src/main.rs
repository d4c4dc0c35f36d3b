//! Entry point of the nexus3 binary: parses the command line, loads the configuration and runs the selected command.
//! Agent, store and transport logic live in the workspace's library crates.

mod ask;
mod assemble;
mod cli;
mod commands;
mod config;
mod doctor;
mod home;
mod import;
mod local_engine;
mod logs;
mod maintenance;
mod memory;
mod model_registry;
mod models;
mod process;
mod secrets;
mod serve;
mod signals;
mod token_file;
mod tool_commands;

use std::ffi::OsString;
use std::io::{IsTerminal as _, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{AuditCommand, Cli, Command, ConfigCommand};
use crate::config::Config;

/// Errors that end a command. Each variant has its own exit code, which scripts rely on.
#[derive(Debug, thiserror::Error)]
enum Failure {
    /// The command line, the environment or the configuration is wrong.
    #[error("{0}")]
    Usage(String),
    /// The command failed while it ran.
    #[error("{0}")]
    Run(String),
    /// Another nexus3 daemon listens on the port.
    #[error("{0}")]
    PortInUseByNexus(String),
    /// Another program listens on the port.
    #[error("{0}")]
    PortInUseByOther(String),
    /// Another process holds the store's lock.
    #[error("{0}")]
    StoreLocked(String),
}

impl Failure {
    fn exit_code(&self) -> u8 {
        match self {
            Failure::Run(_) => 1,
            Failure::Usage(_) => 2,
            Failure::PortInUseByNexus(_) => 3,
            Failure::PortInUseByOther(_) => 4,
            Failure::StoreLocked(_) => 5,
        }
    }
}

fn main() -> ExitCode {
    // First of all: a command of an agent waits for its helper to start.
    if let Some(code) = run_sandbox_role() {
        return code;
    }
    let arguments = cli::normalize(std::env::args_os());
    let cli = Cli::parse_from(arguments);
    match run(cli) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            let _ = writeln!(console_errors(), "nexus3: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Runs the sandbox helper or its probes, if this process was started as one of them.
fn run_sandbox_role() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let role = arguments.next()?;
    if role == sandbox::HELPER_ARGUMENT {
        Some(sandbox::run_helper(tools::BUILT_INS))
    } else if role == sandbox::PROBE_ARGUMENT {
        let arguments: Vec<String> = arguments.filter_map(|argument| argument.into_string().ok()).collect();
        Some(sandbox::run_probes(&arguments))
    } else {
        None
    }
}

fn run(cli: Cli) -> Result<u8, Failure> {
    let environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    let home = home::locate(cli.home.as_deref(), &environment)?;
    // The daemon logs the warnings; its model server inherits its environment.
    if !matches!(cli.command, Command::Serve(_) | Command::ModelServer(_)) {
        for warning in config::unknown_variables(&environment) {
            let _ = writeln!(std::io::stderr(), "nexus3: {warning}");
        }
    }
    let load = |flags: &[(&'static str, String)]| -> Result<Config, Failure> {
        config::load(&home, environment.iter().cloned(), flags)
            .map_err(|fault| Failure::Usage(fault.to_string()))
    };
    match cli.command {
        Command::Serve(args) => {
            let config = load(&args.flags())?;
            serve::run(home.clone(), &config, &environment).map(|()| 0)
        }
        Command::Ask(args) => ask::run(args, &home, &load(&[])?, &environment),
        Command::Rpc(args) => run_rpc(args, home.clone(), &load(&[])?, &environment),
        Command::Approvals(args) => run_approvals(args, home.clone(), &load(&[])?, &environment),
        Command::Backup(args) => maintenance::backup(&args, &home),
        Command::Check(args) => maintenance::check(&args, &home),
        Command::Audit(AuditCommand::Verify(args)) => maintenance::verify(&args, &home),
        Command::Import(args) => import::run(&args, home.clone(), &load(&[])?, &environment),
        Command::Models(args) => {
            let servers = || model_registry::discover_servers(&load(&[])?, &environment);
            models::run(&args, &home, &environment, &load, servers)
        }
        Command::ModelServer(args) => local_engine::serve_model(&args, &home),
        Command::Doctor(args) => doctor::run(&args, &home, &load(&[])?, &environment),
        Command::Tools(args) => tool_commands::list(&args, &load(&[])?),
        Command::Run(args) => tool_commands::run(&args, &home, &load(&[])?, &environment),
        Command::Config(ConfigCommand::Show) => print_stdout(&config::show(&load(&[])?)),
        Command::Config(ConfigCommand::Reference) => print_stdout(&config::reference()),
    }
}

fn run_rpc(
    args: console::RpcArgs,
    home: std::path::PathBuf,
    config: &Config,
    environment: &home::Environment,
) -> Result<u8, Failure> {
    let options = console_options(home, config, environment)?;
    let runtime = console_runtime()?;
    let (mut input, mut output, mut errors) = (std::io::stdin(), console_output(), console_errors());
    let streams = console::Streams { input: &mut input, output: &mut output, errors: &mut errors };
    Ok(runtime.block_on(console::run(args, &options, streams, signals::wait_for_interrupt())))
}

fn run_approvals(
    args: console::ApprovalsArgs,
    home: std::path::PathBuf,
    config: &Config,
    environment: &home::Environment,
) -> Result<u8, Failure> {
    let options = console_options(home, config, environment)?;
    let (mut input, mut output, mut errors) = (std::io::stdin(), console_output(), console_errors());
    let streams = console::Streams { input: &mut input, output: &mut *output, errors: &mut errors };
    Ok(console_runtime()?.block_on(console::approvals(args, &options, streams)))
}

/// Standard output for texts from models and tools. A program gets them unchanged, a terminal without control characters.
fn console_output() -> Box<dyn Write> {
    let output = std::io::stdout();
    match output.is_terminal() {
        true => Box::new(console::TerminalWriter::new(output)),
        false => Box::new(output),
    }
}

/// Standard error, which people read wherever it leads.
fn console_errors() -> console::TerminalWriter<std::io::Stderr> {
    console::TerminalWriter::new(std::io::stderr())
}

fn console_options(
    home: std::path::PathBuf,
    config: &Config,
    environment: &home::Environment,
) -> Result<console::ConsoleOptions, Failure> {
    let rooms = config.room_options();
    Ok(console::ConsoleOptions {
        home,
        api_key: home::environment_variable(environment, "NEXUS3_API_KEY")?,
        host: rooms.host.to_owned(),
        port: rooms.port,
        new_request_id: process::generate_request_id,
    })
}

fn console_runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|fault| runtime_failure(&fault))
}

/// Reports that the async runtime could not be built.
fn runtime_failure(fault: &std::io::Error) -> Failure {
    Failure::Run(format!("cannot start the async runtime: {fault}"))
}

/// Writes `text` to standard output. A closed pipe is not an error: the reader has stopped reading.
fn print_stdout(text: &str) -> Result<u8, Failure> {
    match console_output().write_all(text.as_bytes()) {
        Err(fault) if fault.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Run(format!("cannot write to standard output: {fault}")))
        }
        _ => Ok(0),
    }
}
