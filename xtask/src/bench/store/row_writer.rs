//! What one writes without a thought: one connection, one commit for each row.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::super::statistics::Latencies;
use crate::command::Failure;

/// About as long as a record of a short turn.
const BODY_BYTES: usize = 200;
const MILLISECONDS: f64 = 1e3;

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

    /// Rows per second, and p50 and p99 of one in milliseconds.
    pub(super) fn run(&self, time: Duration) -> Result<(f64, f64, f64), Failure> {
        let body = vec![b'x'; BODY_BYTES];
        let insert = "INSERT INTO rows (agent, body) VALUES (?1, ?2)";
        let mut insert = self.connection.prepare(insert).map_err(failure)?;
        let mut times = Latencies::default();
        let start = Instant::now();
        while start.elapsed() < time {
            let since = Instant::now();
            insert.execute((1, &body)).map_err(failure)?;
            times.push(since.elapsed());
        }
        let rate = times.len() as f64 / start.elapsed().as_secs_f64();
        Ok((rate, times.percentile(50) * MILLISECONDS, times.percentile(99) * MILLISECONDS))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn failure(cause: rusqlite::Error) -> Failure {
    Failure::Failed(format!("the writer beside: {cause}"))
}
