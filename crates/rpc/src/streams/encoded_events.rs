//! Encoded events, shared by all streams: an event is encoded once for all readers that may see it, and a stream holds
//! its position in the event instead of the bytes. Bounded in bytes; an evicted event is read and encoded again.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use agent::Fault;
use agent::outside::JournalEntry;
use bytes::Bytes;
use nexus3_protocol::Id;
use runtime::Subscription;

use super::{encode_event, send};
use crate::events::journal_event;

/// Size of a piece of an event: what a stream hands to the transport at once.
pub(crate) const PIECE_BYTES_MAX: usize = 8 * 1024;

/// Size of all encoded events. A single larger event is cached alone, so that its readers encode it once.
pub(super) const CACHE_BYTES_MAX: usize = 32 << 20;

/// Size of a cached event without its bytes.
const FIXED_BYTES: usize = 256;

/// An encoding of a journal entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Encoding {
    /// The entry as an event.
    Event,
    /// The end of a turn, as the response to the request with this id.
    Response(Id<'static>),
}

/// Sequence of an entry, and its encoding.
type Key = (u64, Encoding);

/// Pieces of an encoded entry. Each is an allocation of its own, so that a piece which waits to be written does not
/// keep the whole event in memory.
type Pieces = Arc<[Bytes]>;

/// The encoded events of all streams.
#[derive(Default)]
pub(super) struct EncodedEvents {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    events: HashMap<Key, Pieces>,
    /// Keys in the order of insertion.
    order: VecDeque<Key>,
    bytes: usize,
}

/// The encoded events, as long as there is a stream.
#[derive(Clone, Default)]
pub(crate) struct SharedEncodedEvents(Arc<Mutex<Weak<EncodedEvents>>>);

impl SharedEncodedEvents {
    /// Returns a reader for one stream. The cache is dropped with the last one.
    pub(super) fn reader(&self) -> PieceReader {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let cache = shared.upgrade().unwrap_or_default();
        *shared = Arc::downgrade(&cache);
        PieceReader { cache, position: None }
    }
}

impl EncodedEvents {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, key: &Key) -> Option<Pieces> {
        self.state().events.get(key).cloned()
    }

    fn get_or_encode(&self, key: &Key, entry: &JournalEntry) -> Pieces {
        if let Some(pieces) = self.get(key) {
            return pieces;
        }
        // Without the lock: a large event takes long.
        let encoded = encode(&key.1, entry);
        let pieces: Pieces = encoded.chunks(PIECE_BYTES_MAX).map(Bytes::copy_from_slice).collect();
        self.insert(key, &pieces);
        pieces
    }

    fn insert(&self, key: &Key, pieces: &Pieces) {
        let mut state = self.state();
        if state.events.insert(key.clone(), Arc::clone(pieces)).is_some() {
            return;
        }
        state.order.push_back(key.clone());
        state.bytes += size(pieces);
        while state.bytes > CACHE_BYTES_MAX && state.order.len() > 1 {
            if let Some(evicted) = state.order.pop_front().and_then(|key| state.events.remove(&key)) {
                state.bytes -= size(&evicted);
            }
        }
    }
}

fn size(pieces: &Pieces) -> usize {
    FIXED_BYTES + pieces.iter().map(Bytes::len).sum::<usize>()
}

fn encode(encoding: &Encoding, entry: &JournalEntry) -> Vec<u8> {
    match encoding {
        Encoding::Event => encode_event(&journal_event(entry)),
        Encoding::Response(id) => send::encode_response(id, entry),
    }
}

/// Reads encoded entries piece by piece. Between two pieces it holds a position only.
pub(super) struct PieceReader {
    cache: Arc<EncodedEvents>,
    /// The entry being read, and the index of its next piece.
    position: Option<(Key, usize)>,
}

impl PieceReader {
    /// Begins an entry; returns its first piece.
    pub(super) fn begin(&mut self, encoding: Encoding, entry: &JournalEntry) -> Bytes {
        let key = (entry.sequence, encoding);
        let pieces = self.cache.get_or_encode(&key, entry);
        self.take(key, &pieces, 0)
    }

    /// Whether pieces of an entry are left.
    pub(super) fn has_begun(&self) -> bool {
        self.position.is_some()
    }

    /// Returns the next piece of the entry that was begun; `None` if none is left.
    pub(super) async fn next(&mut self, journal: &Subscription) -> Result<Option<Bytes>, Fault> {
        let Some((key, index)) = self.position.clone() else { return Ok(None) };
        let pieces = match self.cache.get(&key) {
            Some(pieces) => pieces,
            None => self.cache.get_or_encode(&key, &*journal.entry(key.0).await?),
        };
        Ok(Some(self.take(key, &pieces, index)))
    }

    fn take(&mut self, key: Key, pieces: &Pieces, index: usize) -> Bytes {
        self.position = (index + 1 < pieces.len()).then_some((key, index + 1));
        pieces.get(index).cloned().unwrap_or_default()
    }
}
