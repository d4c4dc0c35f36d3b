//! The real binary as a process on loopback, with the scripted model behind it: its HTTP door under hostile peers, agents
//! and their turns, trees and tools, the daemon's life, settings, command line and logs. Every wait ends by an event.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod agent_trees;
mod agents;
mod command_line;
mod daemon_lifecycle;
mod documented_examples;
mod durability;
mod embed_example;
#[cfg(feature = "real-model-tests")]
mod embedded_model;
mod http;
mod logs;
mod models;
mod prompt_injection;
mod settings;
mod support;
mod tools;
mod turns;
