//! Errors of presets and of requests that do not fit them.

use super::{FilePath, HostPattern, HostSet, NameSet};

/// Why a preset is invalid or does not fit a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PresetFault {
    /// There is no preset of that name.
    #[error("unknown preset '{name}'; choose one of {choices}")]
    Unknown {
        /// The name.
        name: String,
        /// The available presets.
        choices: String,
    },
    /// A preset of that name exists.
    #[error("there is a preset '{0}' already")]
    DuplicateName(String),
    /// It would allow more than the preset it extends.
    #[error("preset '{name}' can only narrow '{base}': {what} would widen it")]
    Widens {
        /// The preset.
        name: String,
        /// The preset it extends.
        base: String,
        /// The setting that would widen it.
        what: &'static str,
    },
    /// Writable directories were requested for a read-only preset.
    #[error("preset '{0}' cannot write: leave allowed_write_paths out, or choose another preset")]
    CannotWrite(String),
    /// Commands were requested for a preset that runs none.
    #[error("preset '{0}' runs no commands: leave allowed_commands out, or choose another preset")]
    RunsNoCommands(String),
    /// A command beyond the list of the preset was requested.
    #[error(
        "allowed_command '{command}' is not among the commands of preset '{name}'; choose from: {allowed}"
    )]
    CommandBeyondPreset {
        /// The requested command.
        command: String,
        /// The preset.
        name: String,
        /// Its commands.
        allowed: NameSet,
    },
    /// Hosts were requested for a preset that connects to none.
    #[error("preset '{0}' connects to no hosts: leave allowed_hosts out, or choose another preset")]
    ConnectsNowhere(String),
    /// A host beyond the list of the preset was requested.
    #[error("allowed_host '{host}' is not among the hosts of preset '{name}'; choose from: {allowed}")]
    HostBeyondPreset {
        /// The requested host.
        host: HostPattern,
        /// The preset.
        name: String,
        /// Its hosts.
        allowed: HostSet,
    },
    /// A writable directory outside the working directory was requested for a sandboxed preset.
    #[error("allowed_write_path '{path}' is outside sandbox root '{root}'")]
    OutsideRoot {
        /// The requested directory.
        path: FilePath,
        /// The working directory.
        root: FilePath,
    },
}
