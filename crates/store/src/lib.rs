//! Keeps things: the journal and what follows from it, in one SQLite file or in memory. What a record means is the
//! business of `agent`; when one is written, of the runtime.

mod codec;
mod batch;
mod digest;
mod memory;
mod sqlite;
mod maintenance;

#[cfg(test)]
mod conformance;

pub use memory::{MemoryStore, memory};
pub use sqlite::{Durability, OpenFault, SqliteOptions, SqliteStore, open};
pub use maintenance::{
    BackupReport, ChainBreak, ChainReport, CheckReport, Problem, MaintenanceFault, backup, check, verify_chain,
};
