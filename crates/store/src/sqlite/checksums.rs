//! Checksums of `agents` and `turns` rows: the columns they cover, shared by the writer, the queries and `check`.
// tidy: allow retired-word because the stored format names a field `rights`

use rusqlite::Row;

use crate::digest::{Digest, RequestKey, checksum_parts};

/// Columns of an `agents` row that the checksum covers, in the order of [`agent_checksum`].
pub(crate) const AGENT_CHECKSUM_COLUMNS: &str = "serial, id, parent, gone, capability, record, rights";

/// Computes the checksum of an `agents` row whose covered columns start at column `first`.
pub(crate) fn agent_checksum(row: &Row<'_>, first: usize) -> rusqlite::Result<i64> {
    let serial: i64 = row.get(first)?;
    let parent: Option<i64> = row.get(first + 2)?;
    let is_destroyed: bool = row.get(first + 3)?;
    let text = |column| row.get_ref(first + column)?.as_str().map_err(rusqlite::Error::from);
    Ok(checksum_parts(&[
        &serial.to_be_bytes(),
        text(1)?.as_bytes(),
        &parent.unwrap_or_default().to_be_bytes(),
        &[u8::from(is_destroyed)],
        row.get_ref(first + 4)?.as_blob()?,
        text(5)?.as_bytes(),
        text(6)?.as_bytes(),
    ]))
}

/// Computes the checksum of a `turns` row. It does not cover the turn's end, which is in the journal with its own
/// checksum.
pub(crate) fn turn_checksum(accepted: i64, agent: i64, key: &RequestKey, turn: i64, content: &Digest) -> i64 {
    checksum_parts(&[&accepted.to_be_bytes(), &agent.to_be_bytes(), key, &turn.to_be_bytes(), content])
}
