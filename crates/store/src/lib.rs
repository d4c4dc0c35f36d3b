//! Keeps things: the journal and what follows from it, in one SQLite file or in memory. What a record means is the
//! business of `agent`; when one is written, of the runtime.

mod batch;
mod codec;
mod digest;
mod maintenance;
mod memory;
mod sqlite;

#[cfg(test)]
mod conformance;

pub use maintenance::{
    BackupReport, ChainBreak, ChainReport, CheckReport, MaintenanceFault, Problem, backup, check,
    verify_chain,
};
pub use memory::{MemoryStore, memory};
pub use sqlite::{Durability, OpenFault, SqliteOptions, SqliteStore, open};
