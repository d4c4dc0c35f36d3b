//! Tools that run commands in the sandbox. [`runner`] starts them; the tools parse arguments and format results.

mod custom;
mod exec;
mod result;
mod runner;
mod shell;

pub use custom::{CustomTool, CustomToolFault, CustomToolSettings, InputMode, OutputMode};
pub(crate) use runner::{BuiltInCall, PermittedCommand, StartedCommand};
pub use runner::{CommandOptions, CommandRunner, SandboxReport};

use crate::definition::{ToolEntry, tool};

/// The tools, in the order in which models see them.
pub(crate) const TOOLS: &[ToolEntry] = &[tool::<shell::Shell>(), tool::<exec::Exec>()];

/// The timeout of a command that names none.
pub(crate) const TIMEOUT_SECS_DEFAULT: u64 = 30;

/// The longest timeout of a command.
pub(crate) const TIMEOUT_SECS_MAX: u64 = 300;
