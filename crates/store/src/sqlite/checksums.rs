//! The sums of rows: over which columns they are, for whoever writes them and whoever checks them.

use rusqlite::Row;

use crate::digest::{Digest, RequestKey, checksum_parts};

/// The columns of an agent's row, in the order of [`agent_sum`].
pub(crate) const AGENT_CHECKSUM_COLUMNS: &str = "serial, id, parent, gone, capability, record, rights";

/// The sum of an agent's row whose columns begin at this place.
pub(crate) fn agent_checksum(row: &Row<'_>, first: usize) -> rusqlite::Result<i64> {
    let serial: i64 = row.get(first)?;
    let parent: Option<i64> = row.get(first + 2)?;
    let gone: bool = row.get(first + 3)?;
    let text = |place| row.get_ref(first + place)?.as_str().map_err(rusqlite::Error::from);
    Ok(checksum_parts(&[
        &serial.to_be_bytes(),
        text(1)?.as_bytes(),
        &parent.unwrap_or_default().to_be_bytes(),
        &[u8::from(gone)],
        row.get_ref(first + 4)?.as_blob()?,
        text(5)?.as_bytes(),
        text(6)?.as_bytes(),
    ]))
}

/// The sum of a turn's row; its end is looked up in the journal, which has sums of its own.
pub(crate) fn turn_checksum(accepted: i64, agent: i64, key: &RequestKey, turn: i64, content: &Digest) -> i64 {
    checksum_parts(&[&accepted.to_be_bytes(), &agent.to_be_bytes(), key, &turn.to_be_bytes(), content])
}
