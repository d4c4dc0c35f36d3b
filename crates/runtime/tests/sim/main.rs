//! The runtime against a scripted model: a seeded simulation of everything at once, and one test per promise.
//! Time is paused throughout: what would take minutes takes none.

#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking, and so do its helpers")]

mod acks;
mod agents;
mod budgets;
mod cancels;
mod checks;
mod crashes;
mod creates;
mod dice;
mod driver;
mod families;
mod faults;
mod event_bus;
mod compaction;
mod full_disk;
mod history;
mod lives;
mod lives_acts;
mod lives_checks;
mod many_cancels;
mod model;
mod operations;
mod admission;
mod plots;
mod idempotency;
mod restarts;
mod permissions;
mod script;
mod sessions;
mod simulation;
mod sleeps;
mod snapshots;
mod steers;
mod stops;
mod talks;
mod test_store;
mod threads;
mod told;
mod tool_calls;
mod tools;
mod agent_tree;
mod world;
