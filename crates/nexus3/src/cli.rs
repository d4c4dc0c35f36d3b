//! Command-line grammar and help texts. The flags of `serve` that are settings form the configuration's last layer.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::local_engine::ModelServerArgs;
use crate::models::ModelsArgs;

/// Run LLM agents and control them over JSON-RPC 2.0 on loopback HTTP
#[derive(Debug, Parser)]
#[command(
    name = "nexus3",
    version,
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "The home directory holds the store, the token, config.toml and the logs:
--home, else NEXUS3_HOME, else ~/.nexus3.

Start here:
  nexus3 ask 'Why is the sky blue?'  ask one question
  nexus3 serve                       start the daemon
  nexus3 rpc create helper           create an agent
  nexus3 rpc send helper 'Hello!'    send it a message
  nexus3 rpc events                  follow the events
  nexus3 rpc shutdown                stop the daemon"
)]
pub(crate) struct Cli {
    /// Set the home directory [default: ~/.nexus3]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start the daemon (also: nexus3 --serve [PORT])
    Serve(ServeArgs),
    /// Ask one question and print the answer
    Ask(console::AskArgs),
    /// Call a running daemon
    Rpc(console::RpcArgs),
    /// Answer agents that ask before a tool call
    Approvals(console::ApprovalsArgs),
    /// Copy the store to a file, also while a daemon runs
    Backup(BackupArgs),
    /// Check the store for damage, also while a daemon runs
    Check(CheckArgs),
    /// Verify the journal, which is the audit trail
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Create agents from exported snapshots or NEXUS3 session files
    Import(ImportArgs),
    /// List, download, remove and select models
    Models(ModelsArgs),
    /// Serve a local model over the OpenAI API
    ModelServer(ModelServerArgs),
    /// List the tools that agents can use
    Tools(ToolsArgs),
    /// Run one tool, without an agent or a daemon
    Run(RunArgs),
    /// Check the installation: home, daemon, sandbox
    Doctor(DoctorArgs),
    /// Show the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
}

/// Arguments of `tools`.
#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 listed, 2 wrong usage.

Examples:
  nexus3 tools
  nexus3 tools --json | jq '.[].name'")]
pub(crate) struct ToolsArgs {
    /// Print names, descriptions and schemas as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 done, 1 the tool failed or was denied, 2 wrong usage.

The tool runs with the permissions of a preset in the current directory;
commands run in the sandbox. Values of NAME=VALUE are text where the tool takes
text, else JSON if they are JSON.

Examples:
  nexus3 run fs.read_file path=Cargo.toml
  nexus3 run cmd.exec command=cargo args='[\"--version\"]'
  nexus3 run hash.sha256 -a '{\"text\": \"abc\"}' -f json")]
pub(crate) struct RunArgs {
    /// Name of the tool; nexus3 tools lists them
    #[arg(value_name = "TOOL")]
    pub(crate) tool: String,
    /// Arguments of the tool
    #[arg(value_name = "NAME=VALUE")]
    pub(crate) arguments: Vec<String>,
    /// Arguments as a JSON object
    #[arg(short = 'a', long = "args", value_name = "JSON", conflicts_with = "arguments")]
    pub(crate) json_arguments: Option<String>,
    /// Output: text or json (with isError)
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    #[arg(value_parser = ["text", "json"], hide_possible_values = true)]
    pub(crate) format: String,
    /// Permissions of the call
    #[arg(long, value_name = "PRESET", default_value = "trusted")]
    pub(crate) preset: String,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 all checks passed, 1 a check failed, 2 wrong usage.

Examples:
  nexus3 doctor
  nexus3 doctor --json")]
pub(crate) struct DoctorArgs {
    /// Print the checks as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `backup`.
#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 done, 1 failed, 2 wrong usage.

The copy is a consistent snapshot. To restore it, stop the daemon, move all
files nexus3.db* in the home directory away, and copy the snapshot to nexus3.db.

Examples:
  nexus3 backup /mnt/backup/nexus3-monday.db
  nexus3 backup copy.db && nexus3 check copy.db")]
pub(crate) struct BackupArgs {
    /// Write this file; it must not exist yet
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `check` and `audit verify`.
#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 no damage, 1 damaged or unreadable, 2 wrong usage.
The store is not changed.

Examples:
  nexus3 check
  nexus3 check copy.db --json")]
pub(crate) struct CheckArgs {
    /// Read this store [default: nexus3.db in the home]
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Verify that no journal entry was changed or removed
    #[command(after_help = "Exit code: 0 intact, 1 broken or unreadable, 2 wrong usage.
The store is not changed.

Save the printed hash elsewhere: if entries are cut off at the end later, the
chain no longer reaches that hash.

Examples:
  nexus3 audit verify
  nexus3 audit verify copy.db --json")]
    Verify(CheckArgs),
}

/// Arguments of `import`.
#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 imported, 1 refused (nothing was imported), 2 wrong usage,
5 the store is in use by a daemon that does not respond.

The running daemon imports the files; without one, this command opens the store.

Examples:
  nexus3 import worker.json
  nexus3 import worker.json --as worker-2
  nexus3 import ~/.nexus3/sessions/*.json")]
pub(crate) struct ImportArgs {
    /// Import these files; "-" reads one from standard input
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Name the agent [default: the name in the file]
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Use the daemon on this port [default: the home's daemon]
    #[arg(short, long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,
    /// Print the results as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every setting, its value and the value's origin
    Show,
    /// Print the reference page of all settings as Markdown
    Reference,
}

/// Start the daemon
#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 stopped, 1 failed, 2 wrong usage or configuration, 3 the port is
in use by another nexus3, 4 by another program, 5 the store is in use.

Settings come from config.toml in the home, then from NEXUS3_* variables, then
from these flags; the last one wins.

--model takes PROVIDER/NAME or an alias from config.toml. API keys come from the
provider's usual variables: OPENAI_API_KEY, ANTHROPIC_API_KEY,
OPENROUTER_API_KEY and others. OPENAI_BASE_URL selects another server with
OpenAI's API.

Examples:
  nexus3 serve
  nexus3 serve 9000 --model openai/gpt-4o-mini
  nexus3 serve --no-auth --log-json")]
pub(crate) struct ServeArgs {
    /// Listen on this port; 0: any free port [default: 8765]
    #[arg(value_name = "PORT", conflicts_with = "port_flag")]
    port: Option<String>,
    /// Listen on this port (same as PORT)
    #[arg(id = "port_flag", short = 'p', long = "port", value_name = "PORT")]
    port_flag: Option<String>,
    /// Listen on 127.0.0.1, localhost or ::1
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// Accept all local programs without a token
    #[arg(long)]
    no_auth: bool,
    /// Set the default model, as PROVIDER/NAME
    #[arg(short, long, value_name = "MODEL")]
    model: Option<String>,
    /// Record all model exchanges to this new file
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    record: Option<String>,
    /// Replay this recording instead of using models
    #[arg(long, value_name = "FILE")]
    replay: Option<String>,
    /// Stop after this many idle seconds; 0: never
    #[arg(long, value_name = "SECONDS", alias = "idle-timeout")]
    idle_timeout_s: Option<String>,
    /// Set when data counts as saved: full or normal
    #[arg(long, value_name = "LEVEL")]
    durability: Option<String>,
    /// After a crash, resume or mark open turns
    #[arg(long, value_name = "POLICY")]
    on_restart: Option<String>,
    /// Unload agents idle for this long; 0: never
    #[arg(long, value_name = "SECONDS", alias = "idle-sleep")]
    idle_sleep_s: Option<String>,
    /// Log at error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Log to standard error as JSON lines
    #[arg(long)]
    log_json: bool,
    /// Write each agent's events to its verbose.md
    #[arg(short = 'V', long)]
    log_verbose: bool,
    /// Write model exchanges to the agent's raw.jsonl
    #[arg(long, alias = "raw-log")]
    log_raw: bool,
}

impl ServeArgs {
    /// Returns the given flags as pairs of a setting's key and its text.
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

/// Names of the subcommands. `normalize` leaves the arguments after the first of them unchanged.
const COMMANDS: &[&str] = &[
    "serve",
    "ask",
    "rpc",
    "approvals",
    "backup",
    "check",
    "audit",
    "import",
    "models",
    "model-server",
    "tools",
    "run",
    "doctor",
    "config",
];

/// Rewrites `--serve [PORT]`, anywhere before a subcommand, to the subcommand `serve`.
pub(crate) fn normalize(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    let is_command = |argument: &OsString| COMMANDS.iter().any(|command| argument == command);
    let command_index = arguments.iter().position(is_command).unwrap_or(arguments.len());
    let flag_index = arguments[..command_index].iter().position(|argument| {
        argument.to_str().is_some_and(|text| text == "--serve" || text.starts_with("--serve="))
    });
    if let Some(index) = flag_index.filter(|index| *index > 0) {
        let flag = arguments.remove(index);
        if let Some(port) = flag.to_str().and_then(|text| text.strip_prefix("--serve=")) {
            arguments.insert(index, port.into());
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
    fn command_line_definition_is_valid() {
        Cli::command().debug_assert();
    }

    /// Lines of a command's help, and of its subcommands' help, with more than 80 columns.
    fn long_help_lines(command: &clap::Command) -> Vec<String> {
        // Width 0 disables wrapping.
        let help = command.clone().term_width(0).render_help().to_string();
        let is_long = |line: &&str| line.chars().count() > 80;
        let lines = help.lines().filter(is_long).map(|line| format!("{}: {line}", command.get_name()));
        // The crate `console` defines the help of `ask` and `rpc`.
        let is_own = |name: &str| !["help", "ask", "rpc"].contains(&name);
        let subcommands = command.get_subcommands().filter(|subcommand| is_own(subcommand.get_name()));
        lines.chain(subcommands.flat_map(long_help_lines)).collect()
    }

    #[test]
    fn help_texts_fit_80_columns() {
        let mut top = Cli::command();
        top.build();
        assert_eq!(long_help_lines(&top), Vec::<String>::new());
    }

    #[test]
    fn every_command_is_in_commands_and_shows_an_example() {
        let mut top = Cli::command();
        top.build();
        let names: Vec<&str> =
            top.get_subcommands().map(clap::Command::get_name).filter(|name| *name != "help").collect();
        assert_eq!(names, COMMANDS);
        let models = ["models", "models list", "models info", "models pull", "models remove", "models use"];
        let model_server = cfg!(feature = "local").then_some("model-server");
        let commands =
            ["ask", "approvals", "backup", "check", "audit verify", "import", "tools", "run", "doctor"]
                .into_iter();
        for line in commands.chain(models).chain(model_server) {
            let command = line.split(' ').fold(&top, |command, word| command.find_subcommand(word).unwrap());
            let help = command.clone().render_long_help().to_string();
            assert!(help.contains(&format!("\n  nexus3 {line}")) && help.contains("Exit code: 0"), "{help}");
        }
    }

    #[test]
    fn serve_flag_becomes_serve_command() {
        let cases: [(&[&str], &[&str]); 6] = [
            (&["nexus3", "--serve"], &["nexus3", "serve"]),
            (&["nexus3", "--serve", "9000"], &["nexus3", "serve", "9000"]),
            (&["nexus3", "--serve=9000"], &["nexus3", "serve", "9000"]),
            (&["nexus3", "--home", "x", "--serve", "9000"], &["nexus3", "serve", "--home", "x", "9000"]),
            (&["nexus3", "serve", "9000"], &["nexus3", "serve", "9000"]),
            (&["nexus3", "rpc", "send", "a", "--serve"], &["nexus3", "rpc", "send", "a", "--serve"]),
        ];
        for (given, expected) in cases {
            let normalized = normalize(given.iter().map(OsString::from));
            assert_eq!(normalized, expected.iter().map(OsString::from).collect::<Vec<_>>());
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
    fn port_given_twice_is_rejected() {
        assert!(Cli::try_parse_from(["nexus3", "serve", "9000", "--port", "9001"]).is_err());
    }
}
