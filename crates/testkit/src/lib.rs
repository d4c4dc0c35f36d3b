//! For the tests of every room: doubles of the outside (models, clock, random numbers), HTTP peers, an event stream
//! reader, seeded simulations, and the daemon under test as a process. The API is blocking, for plain `#[test]` functions
//! and threads, except `HttpPeer` and `ScriptedProvider`; each wait ends with an event or panics.

#![expect(clippy::expect_used, clippy::panic, reason = "a test double fails by panicking")]

mod client;
mod clock;
mod command;
mod daemon;
mod entropy;
mod events;
mod fake_pip;
pub mod http;
mod kill9;
mod model;
mod peer;
mod process;
mod provider;
mod raw;
mod rng;
mod seeds;
mod tls;

pub use client::{DaemonClient, rpc_request};
pub use clock::TestClock;
pub use command::{CommandOutput, run};
pub use daemon::{FailedStart, StartingDaemon, StoppedDaemon, TestDaemon, TestDaemonBuilder};
pub use entropy::CountingEntropy;
pub use events::{NextEvent, StreamEvent, TestEventStream};
pub use fake_pip::FakePip;
pub use kill9::{Kill9, Kill9Report};
pub use model::script::{SCRIPT_COMMANDS, Script, ScriptCommand, ScriptFault, ScriptedCall};
pub use model::{CallCounts, Ledger, ModelOptions, RecordedRequest, RoundKey, ScriptedModel};
pub use peer::{HttpPeer, PeerAction, PeerLog, PeerRequest, http_response, yield_many};
pub use provider::{ModelObservations, ScriptedProvider, SingleModel, WINDOW_TOKENS, panic_quietly};
pub use raw::{RawConnection, RawResponse};
pub use rng::TestRng;
pub use seeds::{SeededSimulation, seeds_from_environment};
pub use tls::TLS_CA_PEM;
