//! The tool catalog as the runtime uses it: arguments as models write them, judged by a grant, run on a real file
//! system and with recording peers.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and so do its helpers"
)]

mod agents;
mod appends;
mod blocked_aliases;
mod commands;
mod custom_tools;
mod directory_copies;
mod edits;
mod escapes;
mod file_operations;
mod fixture;
mod git;
mod git_repository;
mod git_threats;
mod git_tools;
mod injections;
mod links;
mod listings;
mod memory;
mod network;
mod patches;
mod plans;
mod processes;
mod pure;
mod races;
mod reads;
mod regexes;
mod replaced_roots;
mod results;
mod sandbox;
mod small_disk;
mod undo;
mod writes;
