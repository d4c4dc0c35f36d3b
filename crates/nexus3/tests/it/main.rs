//! The real binary as a process on loopback, with the scripted model behind it: its HTTP door under hostile peers, agents
//! and their turns, trees and tools, the daemon's life, settings, command line and logs. Every wait ends by an event.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod agents;
mod command_line;
mod documents;
mod durability;
#[cfg(feature = "real-model-tests")]
mod embedded;
mod embedding;
mod http;
mod life;
mod logs;
mod models;
mod obedience;
mod settings;
mod support;
mod tools;
mod trees;
mod turns;
