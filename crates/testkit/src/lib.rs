//! Test doubles: a scripted model server, and the daemon under test as a process.
//! The API is blocking, for plain `#[test]` functions and threads; each wait ends with an event or panics.

#![expect(clippy::expect_used, clippy::panic, reason = "a test double fails by panicking")]

mod command;
mod daemon;
mod events;
mod kill9;
mod model;
mod process;
mod raw;
mod tls;

pub use command::{CommandOutput, run};
pub use daemon::{FailedStart, StartingDaemon, StoppedDaemon, TestDaemon, TestDaemonBuilder};
pub use events::{NextEvent, StreamEvent, TestEventStream};
pub use kill9::{Kill9, Kill9Report};
pub use model::script::{SCRIPT_COMMANDS, Script, ScriptCommand, ScriptFault, ScriptedCall};
pub use model::{CallCounts, Ledger, ModelOptions, RecordedRequest, RoundKey, ScriptedModel};
pub use raw::{RawConnection, RawResponse};
pub use tls::TLS_CA_PEM;
