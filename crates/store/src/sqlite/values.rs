//! Rows of the key-value store: the statements of the writer, the queries of the readers, and the row checksum.

use agent::outside::{
    ENTRIES_MAX, KeyRange, Namespace, StoreFault, StoredValue, Timestamp, ValueChange, ValueWrite,
};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::queries::QueryFault;
use super::transaction_writer::{WriteError, to_i64};
use crate::batch::refusal;
use crate::digest::checksum_parts;

/// Columns that the checksum covers, in the order of [`value_checksum`].
pub(super) const VALUE_CHECKSUM_COLUMNS: &str = "namespace, key, value, created_at, updated_at, expires_at";

/// Maximum number of expired entries of any namespace that a write deletes.
const EXPIRED_DELETED_MAX: u32 = 16;

/// The number of a namespace in its column. Agents have positive serials.
fn namespace_number(namespace: Namespace) -> Result<i64, StoreFault> {
    match namespace {
        Namespace::User => Ok(0),
        Namespace::Tree(root) => to_i64(root),
    }
}

/// Writes one key in the open transaction; returns whether the key existed before.
pub(super) fn write_value(db: &Connection, write: &ValueWrite) -> Result<bool, WriteError> {
    let ValueWrite { namespace, key, at, change } = write;
    let number = namespace_number(*namespace)?;
    let existing = db
        .prepare_cached("SELECT created_at, expires_at FROM key_values WHERE namespace = ?1 AND key = ?2")?
        .query_row(params![number, key], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let is_live = |(_, expires_at): &(i64, Option<i64>)| expires_at.is_none_or(|expiry| expiry > at.0);
    let live = existing.filter(is_live);
    match change {
        ValueChange::Store { json, expires_at } => {
            if existing.is_none() {
                make_room(db, *namespace, number, *at)?;
            }
            let created_at = live.map_or(at.0, |(created_at, _)| created_at);
            upsert(db, (number, key, json, created_at, at.0, expires_at.map(|expiry| expiry.0)))?;
        }
        ValueChange::Delete => {
            db.prepare_cached("DELETE FROM key_values WHERE namespace = ?1 AND key = ?2")?
                .execute(params![number, key])?;
        }
    }
    Ok(live.is_some())
}

/// Checks that a namespace can get a new entry, and deletes some expired ones.
fn make_room(db: &Connection, namespace: Namespace, number: i64, at: Timestamp) -> Result<(), WriteError> {
    if namespace != Namespace::User {
        let mut root = db.prepare_cached("SELECT 1 FROM agents WHERE serial = ?1")?;
        if !root.exists([number])? {
            return Err(refusal::no_agent().into());
        }
    }
    db.prepare_cached(
        "DELETE FROM key_values WHERE rowid IN \
         (SELECT rowid FROM key_values WHERE expires_at <= ?1 LIMIT ?2)",
    )?
    .execute(params![at.0, EXPIRED_DELETED_MAX])?;
    let count = || -> rusqlite::Result<i64> {
        let mut count = db.prepare_cached("SELECT count(*) FROM key_values WHERE namespace = ?1")?;
        count.query_row([number], |row| row.get(0))
    };
    let is_full = |entries: i64| usize::try_from(entries).is_ok_and(|entries| entries >= ENTRIES_MAX);
    if is_full(count()?) {
        db.prepare_cached("DELETE FROM key_values WHERE namespace = ?1 AND expires_at <= ?2")?
            .execute(params![number, at.0])?;
        if is_full(count()?) {
            return Err(StoreFault::NamespaceFull.into());
        }
    }
    Ok(())
}

type ValueColumns<'a> = (i64, &'a str, &'a str, i64, i64, Option<i64>);

fn upsert(db: &Connection, row: ValueColumns<'_>) -> Result<(), WriteError> {
    let (namespace, key, json, created_at, updated_at, expires_at) = row;
    db.prepare_cached(
        "INSERT INTO key_values (namespace, key, value, created_at, updated_at, expires_at, sum) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (namespace, key) DO UPDATE SET value = excluded.value, \
         created_at = excluded.created_at, updated_at = excluded.updated_at, expires_at = excluded.expires_at, \
         sum = excluded.sum",
    )?
    .execute(params![namespace, key, json, created_at, updated_at, expires_at, checksum_columns(row)])?;
    Ok(())
}

/// Deletes the entries of a tree whose root is removed.
pub(super) fn delete_tree_values(db: &Connection, root: i64) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM key_values WHERE namespace = ?1")?.execute([root]).map(drop)
}

/// Reads the entry of a key.
pub(super) fn value(
    db: &Connection,
    namespace: Namespace,
    key: &str,
    at: Timestamp,
) -> Result<Option<StoredValue>, StoreFault> {
    let number = namespace_number(namespace)?;
    let read = || -> Result<Option<StoredValue>, QueryFault> {
        let mut select = db.prepare_cached(&format!(
            "SELECT {VALUE_CHECKSUM_COLUMNS}, sum FROM key_values WHERE namespace = ?1 AND key = ?2"
        ))?;
        let mut rows = select.query(params![number, key])?;
        rows.next()?.map(|row| live_value(row, at)).transpose().map(Option::flatten)
    };
    Ok(read()?)
}

/// Reads the value of a row; none if it has expired.
fn live_value(row: &Row<'_>, at: Timestamp) -> Result<Option<StoredValue>, QueryFault> {
    if value_checksum(row)? != row.get::<_, i64>(6)? {
        let key: String = row.get(1)?;
        return Err(StoreFault::Corrupt(format!("stored value {key:?}: checksum mismatch")).into());
    }
    let value = StoredValue {
        json: row.get(2)?,
        created_at: Timestamp(row.get(3)?),
        updated_at: Timestamp(row.get(4)?),
        expires_at: row.get::<_, Option<i64>>(5)?.map(Timestamp),
    };
    Ok(Some(value).filter(|value| value.expires_at.is_none_or(|expiry| expiry > at)))
}

/// Reads keys by ascending bytes. The prefix is compared here: `LIKE` has wildcards and ignores the case.
pub(super) fn keys(db: &Connection, range: &KeyRange) -> Result<Vec<String>, StoreFault> {
    let number = namespace_number(range.namespace)?;
    let read = || -> Result<Vec<String>, QueryFault> {
        let mut select = db.prepare_cached(&format!(
            "SELECT {VALUE_CHECKSUM_COLUMNS}, sum FROM key_values \
             WHERE namespace = ?1 AND key >= ?2 AND (?3 IS NULL OR key > ?3) ORDER BY key"
        ))?;
        let mut rows = select.query(params![number, range.prefix, range.after])?;
        let mut keys = Vec::new();
        while keys.len() < range.limit
            && let Some(row) = rows.next()?
        {
            let key: String = row.get(1)?;
            if !key.starts_with(&range.prefix) {
                break;
            }
            if live_value(row, range.at)?.is_some() {
                keys.push(key);
            }
        }
        Ok(keys)
    };
    Ok(read()?)
}

/// Computes the checksum of a row whose first columns are the covered ones.
pub(super) fn value_checksum(row: &Row<'_>) -> rusqlite::Result<i64> {
    let text = |column: usize| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
    let (created_at, updated_at, expires_at) = (row.get(3)?, row.get(4)?, row.get(5)?);
    Ok(checksum_columns((row.get(0)?, text(1)?, text(2)?, created_at, updated_at, expires_at)))
}

fn checksum_columns(row: ValueColumns<'_>) -> i64 {
    let (namespace, key, json, created_at, updated_at, expires_at) = row;
    checksum_parts(&[
        &namespace.to_be_bytes(),
        key.as_bytes(),
        json.as_bytes(),
        &created_at.to_be_bytes(),
        &updated_at.to_be_bytes(),
        &[u8::from(expires_at.is_some())],
        &expires_at.unwrap_or_default().to_be_bytes(),
    ])
}
