//! Doubles for the outside: a model that does what its messages say, and the daemon under test as a process.
//! The API blocks, so that plain `#[test]` functions and threads use it; waits end by an event or by a panic.

#![expect(clippy::expect_used, clippy::panic, reason = "a test double fails by panicking")]

mod command;
mod daemon;
mod model;
mod process;
mod raw;

pub use command::{Finished, run};
pub use daemon::{FailedStart, TestDaemon, TestDaemonBuilder};
pub use model::script::{SCRIPT_WORDS, Script, ScriptFault, ScriptWord, ScriptedCall};
pub use model::{ModelOptions, RecordedRequest, ScriptedModel};
pub use raw::{RawAnswer, RawConnection};
