//! Durable storage of the journal and the rows derived from it, in one SQLite file or in memory. `agent` defines what a
//! record means; the runtime decides when to append one.

mod batch;
mod codec;
mod digest;
mod maintenance;
mod memory;
mod open;
mod sqlite;

#[cfg(test)]
mod conformance;

pub use maintenance::{
    BackupReport, ChainBreak, ChainReport, CheckReport, Maintenance, MaintenanceFault, Problem,
};
pub use memory::{MemoryStore, memory};
pub use open::{OpenFault, StoreOptions, maintenance, open};
pub use sqlite::{Durability, SqliteOptions};
