//! Integration tests of the real binary as a process on loopback with a scripted model: HTTP under hostile peers,
//! agents, turns, agent trees and tools, daemon lifecycle, settings, command line and logs. Every wait ends with an
//! event.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

mod agent_trees;
mod agents;
mod approvals;
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
