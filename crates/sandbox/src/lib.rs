//! Commands under restrictions that the kernel enforces. The daemon starts the helper, its own executable; the helper
//! restricts itself, runs the command, and kills the command with all its descendants when the daemon ends.

mod built_in;
mod control;
mod helper;
mod launcher;
mod output;
mod request;
mod running;
mod self_test;
mod system_directories;

pub use built_in::BuiltIn;
pub use helper::{HELPER_ARGUMENT, run_helper};
pub use launcher::{BuiltInLaunch, GrantedDirectory, Helper, Launch, LaunchFault, Launcher};
pub use output::{CapturedOutput, OutputLimits};
pub use request::{ResourceLimits, Tier};
pub use running::{CommandExit, CommandInput, OutputStream, RunningCommand};
pub use self_test::{PROBE_ARGUMENT, ProbeOutcome, SelfTest, run_probes};
pub use system_directories::SystemDirectories;
