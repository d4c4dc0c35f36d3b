//! Tests of the runtime against a scripted model: a seeded simulation of all operations, and one test per guarantee.
//! The clock is paused, so minutes of simulated time take no real time; only tests on several threads use real time.

#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking, and so do its helpers")]

mod acknowledgements;
mod admission;
mod agent_tree;
mod agents;
mod approvals;
mod budgets;
mod cancellation;
mod cancellation_stress;
mod compaction;
mod concurrent_reads;
mod conversations;
mod crashes;
mod creation;
mod damaged_agents;
mod directory_identities;
mod driver;
mod event_bus;
mod full_disk;
mod history;
mod idempotency;
mod invariants;
mod lifecycle;
mod model_faults;
mod operations;
mod permissions;
mod plans_and_values;
mod prompt_context;
mod restart_invariants;
mod restart_operations;
mod restart_simulation;
mod restarts;
mod scenarios;
mod shutdown;
mod simulation;
mod sleep_and_wake;
mod steering;
mod test_store;
mod thread_stress;
mod tool_calls;
mod tools;
mod tree_locks;
mod tree_operations;
mod world;
