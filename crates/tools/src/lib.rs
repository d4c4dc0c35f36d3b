//! Built-in tools that models call: computations, files beneath allowed directories, commands in a sandbox, hosts,
//! stored values, other agents.
//! A tool is one file and an entry in its family's file; the permission judge checks its effects before it runs.

mod agents;
mod approvals;
mod arguments;
mod base64;
mod blocking;
mod catalog;
mod commands;
mod definition;
mod effects;
mod fs;
mod git;
mod hash;
mod json;
mod memory;
mod net;
mod plan;
mod process;
mod regex;
mod registry;
mod result;
mod spec;
mod text;
mod time;
mod uuid;
mod workspace;

pub use catalog::builtin_specs;
pub use commands::{
    CommandOptions, CommandRunner, CustomTool, CustomToolFault, CustomToolSettings, InputMode, OutputMode,
    SandboxReport,
};
pub use definition::ToolDependencies;
pub use git::BUILT_INS;
pub use net::{NetworkClient, NetworkLimits, NetworkOptions, Resolve, ResolvedAddresses, SystemResolver};
pub use registry::{NameTaken, ToolRegistry};
pub use workspace::LocalWorkspace;
