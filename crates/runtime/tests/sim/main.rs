//! The runtime against a scripted model: a seeded simulation of everything at once, and one test per promise.
//! Time is paused throughout: what would take minutes takes none.

#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking, and so do its helpers")]

mod agents;
mod cancels;
mod dice;
mod driver;
mod faults;
mod history;
mod model;
mod operations;

mod places;
mod script;
mod simulation;
mod snapshots;
mod stops;
mod world;
