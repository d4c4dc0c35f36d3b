//! Table of the in-memory key-value store.

use std::collections::BTreeMap;

use agent::outside::{
    ENTRIES_MAX, KeyRange, Namespace, StoreFault, StoredValue, Timestamp, ValueChange, ValueWrite,
};

/// Entries by key, for each namespace.
#[derive(Default)]
pub(super) struct Values(BTreeMap<Namespace, NamespaceValues>);

/// The entries of one namespace.
pub(super) type NamespaceValues = BTreeMap<String, StoredValue>;

fn is_live(value: &StoredValue, at: Timestamp) -> bool {
    value.expires_at.is_none_or(|expiry| expiry > at)
}

impl Values {
    /// Writes one key; returns whether it existed before.
    pub(super) fn write(&mut self, write: ValueWrite) -> Result<bool, StoreFault> {
        let ValueWrite { namespace, key, at, change } = write;
        let values = self.0.entry(namespace).or_default();
        values.retain(|_, value| is_live(value, at));
        let ValueChange::Store { json, expires_at } = change else {
            return Ok(values.remove(&key).is_some());
        };
        let existing = values.get(&key).map(|value| value.created_at);
        if existing.is_none() && values.len() >= ENTRIES_MAX {
            return Err(StoreFault::NamespaceFull);
        }
        let created_at = existing.unwrap_or(at);
        values.insert(key, StoredValue { json, created_at, updated_at: at, expires_at });
        Ok(existing.is_some())
    }

    pub(super) fn get(&self, namespace: Namespace, key: &str, at: Timestamp) -> Option<StoredValue> {
        self.0.get(&namespace)?.get(key).filter(|value| is_live(value, at)).cloned()
    }

    pub(super) fn keys(&self, range: &KeyRange) -> Vec<String> {
        let Some(values) = self.0.get(&range.namespace) else { return Vec::new() };
        let matching = values
            .range(range.prefix.clone()..)
            .take_while(|(key, _)| key.starts_with(&range.prefix))
            .filter(|(key, value)| {
                range.after.as_ref().is_none_or(|after| *key > after) && is_live(value, range.at)
            });
        matching.take(range.limit).map(|(key, _)| key.clone()).collect()
    }

    /// Removes the entries of a namespace.
    pub(super) fn take(&mut self, namespace: Namespace) -> Option<NamespaceValues> {
        self.0.remove(&namespace)
    }

    /// Restores removed entries.
    pub(super) fn restore(&mut self, namespace: Namespace, values: NamespaceValues) {
        self.0.insert(namespace, values);
    }
}
