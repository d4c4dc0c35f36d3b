//! The runtime against a scripted model: a seeded simulation of everything at once, and one test per promise.
//! Time is paused throughout: what would take minutes takes none.

#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking, and so do its helpers")]

mod agents;
mod budgets;
mod cancels;
mod checks;
mod creates;
mod dice;
mod driver;
mod families;
mod faults;
mod history;
mod many_cancels;
mod model;
mod operations;
mod places;
mod plots;
mod rights;
mod script;
mod simulation;
mod snapshots;
mod steers;
mod stops;
mod talks;
mod threads;
mod toolruns;
mod tools;
mod trees;
mod world;
