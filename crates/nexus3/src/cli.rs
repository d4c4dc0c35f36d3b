//! The command line's words. Flags of `serve` that are settings become the last layer of the configuration.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::model_server::ModelServerArgs;
use crate::models::ModelsArgs;

/// Runs LLM agents for programs and people: JSON-RPC 2.0 on loopback HTTP.
#[derive(Debug, Parser)]
#[command(
    name = "nexus3",
    version,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "Start here:
  nexus3 ask 'Why is the sky blue?'  one question, one answer
  nexus3 serve                       start the daemon
  nexus3 rpc create helper           create an agent
  nexus3 rpc send helper 'Hello!'    talk to it
  nexus3 rpc events                  see what happens
  nexus3 rpc shutdown                stop the daemon"
)]
pub(crate) struct Cli {
    /// Where the store, the token, the configuration and the logs are [default: NEXUS3_HOME, or ~/.nexus3]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start the daemon (also: nexus3 --serve [PORT])
    Serve(ServeArgs),
    /// Ask once and print the answer
    Ask(console::AskArgs),
    /// Call a running daemon
    Rpc(console::RpcArgs),
    /// Copy the store into a file, also while a daemon runs
    Backup(BackupArgs),
    /// Check whether the store is sound, also while a daemon runs
    Check(CheckArgs),
    /// Look at the audit trail
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Make agents from exported documents, or from session files of the original NEXUS3
    Import(ImportArgs),
    /// Show, pull, remove and choose models
    Models(ModelsArgs),
    /// Serve a local model with OpenAI's protocol
    ModelServer(ModelServerArgs),
    /// Look at the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
}

/// What `backup` takes.
#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 done, 1 failed, 2 wrong usage.

The copy is a whole store of one moment: put it into a home as nexus3.db, with no daemon running, to go back to it.

Examples:
  nexus3 backup /mnt/backup/nexus3-monday.db
  nexus3 backup copy.db && nexus3 check copy.db")]
pub(crate) struct BackupArgs {
    /// The file to write; it must not be there yet
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `check` takes.
#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 sound, 1 not sound or not readable, 2 wrong usage. Nothing is changed.

Examples:
  nexus3 check
  nexus3 check copy.db --json")]
pub(crate) struct CheckArgs {
    /// The store [default: nexus3.db in the home]
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Check that no entry of the journal was changed or taken out
    #[command(after_help = "Exit code: 0 whole, 1 broken or not readable, 2 wrong usage. Nothing is changed.

Write the printed hash down elsewhere: an entry that is cut off at the end later shows by a chain that ends before it.

Examples:
  nexus3 audit verify
  nexus3 audit verify copy.db --json")]
    Verify(CheckArgs),
}

/// What `import` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit code: 0 imported, 1 refused (nothing was imported), 2 wrong usage, 5 the store is in use by a daemon
that does not answer.

A running daemon imports; when none runs, the store is opened without one.

Examples:
  nexus3 import worker.json
  nexus3 import worker.json --as worker-2
  nexus3 import ~/.nexus3/sessions/*.json"
)]
pub(crate) struct ImportArgs {
    /// The documents; "-" reads one from standard input
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// The agent's name [default: the one in the document]
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Let the daemon on this port import [default: the one that uses the home]
    #[arg(short, long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,
    /// Print the answers as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every setting, its value and where that comes from
    Show,
    /// Print the reference page of all settings
    Reference,
}

/// Starts the daemon. Settings come from config.toml in the home, then NEXUS3_* in the environment, then these flags.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit code: 0 stopped, 1 failed, 2 wrong usage or configuration, 3 another nexus3 has the port,
4 something else has the port, 5 another process has the store.

The model is chosen by --model PROVIDER/NAME or an alias of config.toml. Providers are found by their usual variables:
OPENAI_API_KEY, ANTHROPIC_API_KEY, OPENROUTER_API_KEY and others, and OPENAI_BASE_URL for another server that speaks
OpenAI's API.

Examples:
  nexus3 serve
  nexus3 serve 9000 --model openai/gpt-4o-mini
  nexus3 serve --no-auth --log-json"
)]
pub(crate) struct ServeArgs {
    /// Port to listen on [default: 8765]; 0 takes any free one
    #[arg(value_name = "PORT", conflicts_with = "port_flag")]
    port: Option<String>,
    /// Port to listen on, as a flag
    #[arg(id = "port_flag", short = 'p', long = "port", value_name = "PORT")]
    port_flag: Option<String>,
    /// Address to listen on: 127.0.0.1, localhost or ::1
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// Let every program on this machine in, without a token
    #[arg(long)]
    no_auth: bool,
    /// Model of the agents, as PROVIDER/NAME
    #[arg(short, long, value_name = "MODEL")]
    model: Option<String>,
    /// Keep every exchange with a model in this new file
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    record: Option<String>,
    /// Serve the exchanges of this recording in place of models
    #[arg(long, value_name = "FILE")]
    replay: Option<String>,
    /// Stop after this many seconds without a request; 0 never stops
    #[arg(long, value_name = "SECONDS", alias = "idle-timeout")]
    idle_timeout_s: Option<String>,
    /// When a step counts as kept: full, once it survives a power cut, or normal
    #[arg(long, value_name = "LEVEL")]
    durability: Option<String>,
    /// What becomes of a turn that a crash cut off, when its agent does not say: resume or mark
    #[arg(long, value_name = "POLICY")]
    on_restart: Option<String>,
    /// Seconds without work after which an agent leaves memory until it is called again; 0 never
    #[arg(long, value_name = "SECONDS", alias = "idle-sleep")]
    idle_sleep_s: Option<String>,
    /// Least severe level on standard error: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Write standard error as JSON lines
    #[arg(long)]
    log_json: bool,
    /// Keep each agent's events in its verbose.md
    #[arg(short = 'V', long)]
    log_verbose: bool,
    /// Keep each agent's exchanges with the model in its raw.jsonl
    #[arg(long, alias = "raw-log")]
    log_raw: bool,
}

impl ServeArgs {
    /// The flags as settings: key and text.
    pub(crate) fn flags(&self) -> Vec<(&'static str, String)> {
        let texts = [
            ("port", self.port.as_ref().or(self.port_flag.as_ref())),
            ("host", self.host.as_ref()),
            ("model", self.model.as_ref()),
            ("record", self.record.as_ref()),
            ("replay", self.replay.as_ref()),
            ("idle_timeout_s", self.idle_timeout_s.as_ref()),
            ("durability", self.durability.as_ref()),
            ("on_restart", self.on_restart.as_ref()),
            ("idle_sleep_s", self.idle_sleep_s.as_ref()),
            ("log.level", self.log_level.as_ref()),
        ];
        let switches = [
            ("auth", self.no_auth, "false"),
            ("log.json", self.log_json, "true"),
            ("log.verbose", self.log_verbose, "true"),
            ("log.raw", self.log_raw, "true"),
        ];
        let texts = texts.into_iter().filter_map(|(key, text)| Some((key, text?.clone())));
        let switches = switches.into_iter().filter(|(_, set, _)| *set);
        texts.chain(switches.map(|(key, _, text)| (key, text.to_owned()))).collect()
    }
}

/// The commands: what stands behind one is its own business.
const COMMANDS: &[&str] =
    &["serve", "ask", "rpc", "backup", "check", "audit", "import", "models", "model-server", "config"];

/// `--serve [PORT]`, anywhere before a subcommand, is the subcommand `serve`.
pub(crate) fn normalize(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    let is_command = |argument: &OsString| COMMANDS.iter().any(|command| argument == command);
    let until = arguments.iter().position(is_command).unwrap_or(arguments.len());
    let found = arguments[..until].iter().position(|argument| {
        argument.to_str().is_some_and(|text| text == "--serve" || text.starts_with("--serve="))
    });
    if let Some(place) = found.filter(|place| *place > 0) {
        let flag = arguments.remove(place);
        if let Some(port) = flag.to_str().and_then(|text| text.strip_prefix("--serve=")) {
            arguments.insert(place, port.into());
        }
        arguments.insert(1, "serve".into());
    }
    arguments
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_is_known_to_the_serve_flag_and_has_an_example() {
        let mut top = Cli::command();
        top.build();
        let named: Vec<&str> =
            top.get_subcommands().map(clap::Command::get_name).filter(|name| *name != "help").collect();
        assert_eq!(named, COMMANDS);
        let models = ["models", "models list", "models info", "models pull", "models remove", "models use"];
        for line in
            ["ask", "model-server", "backup", "check", "audit verify", "import"].into_iter().chain(models)
        {
            let command = line.split(' ').fold(&top, |command, word| command.find_subcommand(word).unwrap());
            let help = command.clone().render_long_help().to_string();
            assert!(help.contains(&format!("\n  nexus3 {line}")) && help.contains("Exit code: 0"), "{help}");
        }
    }

    #[test]
    fn the_serve_flag_is_the_serve_command() {
        let cases: [(&[&str], &[&str]); 6] = [
            (&["nexus3", "--serve"], &["nexus3", "serve"]),
            (&["nexus3", "--serve", "9000"], &["nexus3", "serve", "9000"]),
            (&["nexus3", "--serve=9000"], &["nexus3", "serve", "9000"]),
            (&["nexus3", "--home", "x", "--serve", "9000"], &["nexus3", "serve", "--home", "x", "9000"]),
            (&["nexus3", "serve", "9000"], &["nexus3", "serve", "9000"]),
            (&["nexus3", "rpc", "send", "a", "--serve"], &["nexus3", "rpc", "send", "a", "--serve"]),
        ];
        for (given, wanted) in cases {
            let got = normalize(given.iter().map(OsString::from));
            assert_eq!(got, wanted.iter().map(OsString::from).collect::<Vec<_>>());
        }
    }

    #[test]
    fn flags_become_settings() {
        let line = "nexus3 serve 9000 --no-auth -m openai/x --raw-log --durability normal --on-restart mark --idle-sleep 5";
        let cli = Cli::parse_from(line.split(' '));
        let Command::Serve(args) = cli.command else { panic!("not serve") };
        let expected = [
            ("port", "9000"),
            ("model", "openai/x"),
            ("durability", "normal"),
            ("on_restart", "mark"),
            ("idle_sleep_s", "5"),
            ("auth", "false"),
            ("log.raw", "true"),
        ];
        assert_eq!(args.flags(), expected.map(|(key, text)| (key, text.to_owned())));
    }

    #[test]
    fn a_port_given_twice_is_refused() {
        assert!(Cli::try_parse_from(["nexus3", "serve", "9000", "--port", "9001"]).is_err());
    }
}
