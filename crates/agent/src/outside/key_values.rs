//! The key-value store: the interface that stores implement, and the view of one namespace that tools get. Limits are
//! checked here, so that every caller of a namespace has the same ones.

use std::sync::Arc;

use super::{BoxFuture, StoreFault, Timestamp};
use crate::journal::Serial;
use crate::{Fault, FaultKind};

/// Maximum length of a key.
pub const KEY_BYTES_MAX: usize = 512;

/// Maximum length of a value's JSON text.
pub const VALUE_BYTES_MAX: usize = 64 << 10;

/// Maximum number of entries in one namespace. The entries of a destroyed tree are deleted in one transaction, so their
/// number bounds its length.
pub const ENTRIES_MAX: usize = 2_000;

/// Maximum number of keys in one page of a listing.
pub const KEYS_PAGE_MAX: usize = 500;

/// Maximum time to live, in seconds: ten years.
pub const TTL_SECS_MAX: u64 = 10 * 365 * 24 * 60 * 60;

/// The owner of entries. Entries of one namespace are invisible in all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Namespace {
    /// The user of the daemon: the command line, and clients that are not agents.
    User,
    /// An agent tree, by the serial of its root. Its entries are deleted with the last agent of the tree.
    Tree(Serial),
}

/// A stored value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredValue {
    /// The value as JSON text.
    pub json: String,
    /// When the key was first stored.
    pub created_at: Timestamp,
    /// When the value was last stored.
    pub updated_at: Timestamp,
    /// When the entry expires; none if never.
    pub expires_at: Option<Timestamp>,
}

/// A write to one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueWrite {
    /// The namespace.
    pub namespace: Namespace,
    /// The key.
    pub key: String,
    /// The time of the write: entries that expired by then do not exist.
    pub at: Timestamp,
    /// The change.
    pub change: ValueChange,
}

/// The change of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueChange {
    /// Stores a value, and replaces an earlier one.
    Store {
        /// The value as JSON text.
        json: String,
        /// When the entry expires; none if never.
        expires_at: Option<Timestamp>,
    },
    /// Deletes the entry.
    Delete,
}

/// A range of keys to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    /// The namespace.
    pub namespace: Namespace,
    /// Lists only keys that begin with this text.
    pub prefix: String,
    /// The exclusive lower bound of the keys.
    pub after: Option<String>,
    /// The maximum number of keys.
    pub limit: usize,
    /// The time of the read.
    pub at: Timestamp,
}

/// Durable key-value storage. Expired entries are invisible; a later write deletes them.
pub trait KeyValueStore: Send + Sync {
    /// Writes one key. Enqueued when this function returns; committed when the future resolves to `Ok`: whether the key
    /// existed before.
    fn write_value(&self, write: ValueWrite) -> BoxFuture<'static, Result<bool, StoreFault>>;

    /// The entry of a key.
    fn value(
        &self,
        namespace: Namespace,
        key: String,
        at: Timestamp,
    ) -> BoxFuture<'_, Result<Option<StoredValue>, StoreFault>>;

    /// Keys, in ascending byte order.
    fn keys(&self, range: KeyRange) -> BoxFuture<'_, Result<Vec<String>, StoreFault>>;
}

/// The entries of one namespace. The holder cannot name another one.
#[derive(Clone)]
pub struct KeyValues {
    store: Arc<dyn KeyValueStore>,
    namespace: Namespace,
}

/// A page of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPage {
    /// The keys, in ascending byte order.
    pub keys: Vec<String>,
    /// Whether there are more keys after the last one.
    pub has_more: bool,
}

impl KeyValues {
    /// A view of one namespace.
    #[must_use]
    pub fn new(store: Arc<dyn KeyValueStore>, namespace: Namespace) -> Self {
        Self { store, namespace }
    }

    /// Stores a value; `ttl_secs` is its time to live.
    ///
    /// # Errors
    /// When a limit is exceeded; nothing is stored then. Or when the store fails.
    pub async fn store(
        &self,
        key: String,
        json: String,
        ttl_secs: Option<u64>,
        at: Timestamp,
    ) -> Result<(), Fault> {
        check_length("the key", key.len(), KEY_BYTES_MAX, "use a shorter key")?;
        let remedy = "split it over several keys, or write it to a file";
        check_length("the JSON text of the value", json.len(), VALUE_BYTES_MAX, remedy)?;
        let expires_at = ttl_secs.map(|ttl| expiry(ttl, at)).transpose()?;
        let change = ValueChange::Store { json, expires_at };
        self.store.write_value(ValueWrite { namespace: self.namespace, key, at, change }).await?;
        Ok(())
    }

    /// The entry of a key.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn recall(&self, key: String, at: Timestamp) -> Result<Option<StoredValue>, Fault> {
        Ok(self.store.value(self.namespace, key, at).await?)
    }

    /// The first page of the keys that begin with `prefix`, or the page after the key `after`.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn list(&self, prefix: String, after: Option<String>, at: Timestamp) -> Result<KeyPage, Fault> {
        let range = KeyRange { namespace: self.namespace, prefix, after, limit: KEYS_PAGE_MAX + 1, at };
        let mut keys = self.store.keys(range).await?;
        let has_more = keys.len() > KEYS_PAGE_MAX;
        keys.truncate(KEYS_PAGE_MAX);
        Ok(KeyPage { keys, has_more })
    }

    /// Deletes the entry of a key; returns whether there was one.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn delete(&self, key: String, at: Timestamp) -> Result<bool, Fault> {
        let write = ValueWrite { namespace: self.namespace, key, at, change: ValueChange::Delete };
        Ok(self.store.write_value(write).await?)
    }
}

fn check_length(what: &str, bytes: usize, bytes_max: usize, remedy: &str) -> Result<(), Fault> {
    if bytes <= bytes_max {
        return Ok(());
    }
    let text = format!("{what} has {bytes} bytes; the limit is {bytes_max} bytes: {remedy}");
    Err(Fault::new(FaultKind::Invalid, text))
}

fn expiry(ttl_secs: u64, at: Timestamp) -> Result<Timestamp, Fault> {
    if ttl_secs == 0 || ttl_secs > TTL_SECS_MAX {
        let text = format!("ttl_secs is {ttl_secs}; it must be from 1 to {TTL_SECS_MAX}");
        return Err(Fault::new(FaultKind::Invalid, text));
    }
    let micros = i64::try_from(ttl_secs).unwrap_or(i64::MAX).saturating_mul(1_000_000);
    Ok(Timestamp(at.0.saturating_add(micros)))
}
