//! The baseline of the group `store`: one SQLite connection that commits every row.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::super::statistics::Latencies;
use crate::command::Failure;

/// About the size of a record of a short turn.
const BODY_BYTES: usize = 200;
const MILLISECONDS: f64 = 1e3;

/// A SQLite writer without group commit.
pub(super) struct RowWriter {
    connection: Connection,
}

impl RowWriter {
    pub(super) fn open(folder: &Path) -> Result<Self, Failure> {
        let connection = Connection::open(folder.join("rows.db")).map_err(failure)?;
        let pragmas = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
            CREATE TABLE rows (sequence INTEGER PRIMARY KEY, agent INTEGER NOT NULL, body BLOB NOT NULL);";
        connection.execute_batch(pragmas).map_err(failure)?;
        Ok(Self { connection })
    }

    /// Inserts rows for `time`; returns rows per second, and p50 and p99 of an insert in milliseconds.
    pub(super) fn run(&self, time: Duration) -> Result<(f64, f64, f64), Failure> {
        let body = vec![b'x'; BODY_BYTES];
        let insert = "INSERT INTO rows (agent, body) VALUES (?1, ?2)";
        let mut insert = self.connection.prepare(insert).map_err(failure)?;
        let mut times = Latencies::default();
        let start = Instant::now();
        while start.elapsed() < time {
            let insert_start = Instant::now();
            insert.execute((1, &body)).map_err(failure)?;
            times.push(insert_start.elapsed());
        }
        let rate = times.len() as f64 / start.elapsed().as_secs_f64();
        Ok((rate, times.percentile(50) * MILLISECONDS, times.percentile(99) * MILLISECONDS))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "map_err passes it by value")]
fn failure(cause: rusqlite::Error) -> Failure {
    Failure::Failed(format!("the baseline SQLite writer: {cause}"))
}
