//! Prompt-prefix cache: the encoded conversation of each agent, so that a request only encodes what is new. Bounded in
//! bytes, evicts the least recently used conversation. The encoding is left to the dialects.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use agent::journal::Serial;
use agent::outside::{ModelRequest, Requester};
use agent::{AgentId, Fault, HistoryVersion, Message, ToolSpec};
use bytes::Bytes;

use crate::dialect::ModelOptions;

/// Most bytes cached of all conversations.
const CACHE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Most bytes cached of one conversation; a longer one is encoded anew for each request.
const CONVERSATION_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Size from which a block no longer grows by copying. Full blocks are merged in pairs as in a binary counter, so a
/// conversation has few blocks and each byte is copied a logarithmic number of times.
const BLOCK_BYTES: usize = 16 * 1024;

/// Cache overhead per message: its list entries, and the allocation that the weak pointer keeps alive.
const MESSAGE_OVERHEAD_BYTES: usize = 256;

/// Cache key: agent, dialect and model, and the settings of the model that the encoding of messages depends on. Two
/// aliases may stand for one model name, and only one of them may accept images or think.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PrefixKey {
    agent: Option<AgentId>,
    root: Serial,
    dialect: &'static str,
    model: String,
    accepts_images: bool,
    thinks: bool,
}

impl PrefixKey {
    pub(crate) fn new(requester: &Requester, dialect: &'static str, model: &ModelOptions) -> Self {
        Self {
            agent: requester.agent.clone(),
            root: requester.root,
            dialect,
            model: model.name.clone(),
            accepts_images: model.accepts_images,
            thinks: model.thinks(),
        }
    }
}

/// Encodes one message. The result may depend only on the cache key, the message and those before it: later requests
/// with the same key reuse it.
pub(crate) type EncodeMessage<'a> = &'a dyn Fn(&[Arc<Message>], &Message, &mut Vec<u8>) -> Result<(), Fault>;

/// Cache of encoded conversations.
#[derive(Debug)]
pub(crate) struct PrefixCache {
    bytes_max: usize,
    entries: Mutex<CacheEntries>,
}

#[derive(Debug, Default)]
struct CacheEntries {
    prefixes: HashMap<PrefixKey, (u64, Prefix)>,
    /// Keys by the time of insertion, oldest first; each use inserts anew.
    order: BTreeMap<u64, PrefixKey>,
    bytes: usize,
    ticks: u64,
}

impl Default for PrefixCache {
    fn default() -> Self {
        Self::with_capacity(CACHE_BYTES_MAX)
    }
}

impl PrefixCache {
    /// Creates an empty cache of at most so many bytes.
    pub(crate) fn with_capacity(bytes_max: usize) -> Self {
        Self { bytes_max, entries: Mutex::default() }
    }

    /// Removes the cached prefix while a request is encoded; empty if there is none.
    pub(crate) fn take(&self, key: &PrefixKey) -> Prefix {
        self.lock_entries().take(key).unwrap_or_default()
    }

    /// Inserts the prefix and evicts the oldest ones. Requests without an agent are not cached: their key does not
    /// identify a conversation.
    pub(crate) fn put(&self, key: PrefixKey, prefix: Prefix) {
        if key.agent.is_none() || prefix.cost_bytes() > CONVERSATION_BYTES_MAX.min(self.bytes_max) {
            return;
        }
        let mut entries = self.lock_entries();
        entries.take(&key);
        entries.ticks += 1;
        let now = entries.ticks;
        entries.bytes += prefix.cost_bytes();
        entries.order.insert(now, key.clone());
        entries.prefixes.insert(key, (now, prefix));
        while entries.bytes > self.bytes_max {
            let Some((_, oldest)) = entries.order.pop_first() else { return };
            entries.take(&oldest);
        }
    }

    fn lock_entries(&self) -> MutexGuard<'_, CacheEntries> {
        // The entries are consistent at every point where a panic could occur.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheEntries {
    fn take(&mut self, key: &PrefixKey) -> Option<Prefix> {
        let (put_at, prefix) = self.prefixes.remove(key)?;
        self.order.remove(&put_at);
        self.bytes -= prefix.cost_bytes();
        Some(prefix)
    }
}

/// An encoded conversation.
#[derive(Debug, Default)]
pub(crate) struct Prefix {
    /// The encoded messages. Weak pointers let the texts be freed, yet no other message can reuse their address.
    messages: Vec<Weak<Message>>,
    history_version: Option<HistoryVersion>,
    /// End offset of each message, over all blocks.
    ends: Vec<usize>,
    blocks: Vec<Bytes>,
    tools: CachedEncoding<ToolSpec>,
    system: CachedEncoding<str>,
}

impl Prefix {
    /// Updates the prefix to the messages of a request; unchanged messages are not encoded again.
    pub(crate) fn update(&mut self, request: &ModelRequest, encode: EncodeMessage<'_>) -> Result<(), Fault> {
        let messages = &request.messages;
        self.truncate(self.count_unchanged(request));
        self.history_version.clone_from(&request.history_version);
        let start = self.len_bytes();
        let mut encoded = Vec::new();
        for (index, message) in messages.iter().enumerate().skip(self.messages.len()) {
            encode(&messages[..index], message, &mut encoded)?;
            self.messages.push(Arc::downgrade(message));
            self.ends.push(start + encoded.len());
        }
        self.append(encoded);
        Ok(())
    }

    /// Counts the leading messages that are already encoded.
    fn count_unchanged(&self, request: &ModelRequest) -> usize {
        let messages = &request.messages;
        let is_same_at = |index: usize| {
            let (cached, now) = (self.messages.get(index), messages.get(index));
            cached.zip(now).is_some_and(|(cached, now)| is_same_allocation(cached, now))
        };
        // Within one history version the list only grows; two copies that diverged differ at the last cached message.
        let has_grown = request.history_version.is_some() && request.history_version == self.history_version;
        if has_grown && self.messages.len().checked_sub(1).is_some_and(is_same_at) {
            return self.messages.len();
        }
        (0..).take_while(|index| is_same_at(*index)).count()
    }

    /// Returns the encoded tools; encodes them only if they changed.
    pub(crate) fn tools(
        &mut self,
        tools: &[Arc<ToolSpec>],
        encode: impl FnOnce(&[Arc<ToolSpec>]) -> Result<Vec<u8>, Fault>,
    ) -> Result<Bytes, Fault> {
        self.tools.update(tools, encode)
    }

    /// Returns the encoded system prompt; encodes it only if it changed.
    pub(crate) fn system(
        &mut self,
        system: &Arc<str>,
        encode: impl FnOnce(&str) -> Result<Vec<u8>, Fault>,
    ) -> Result<Bytes, Fault> {
        self.system.update(std::slice::from_ref(system), |_| encode(system))
    }

    /// Returns the end offset of a message; 0 if there is none.
    pub(crate) fn end_offset(&self, index: usize) -> usize {
        self.ends.get(index).copied().unwrap_or_default()
    }

    /// Returns the encoded length.
    pub(crate) fn len_bytes(&self) -> usize {
        self.ends.last().copied().unwrap_or_default()
    }

    /// Appends the encoded messages to the body, with insertions at increasing offsets. Copies nothing.
    pub(crate) fn push_pieces(&self, inserts: &[(usize, Bytes)], out: &mut Vec<Bytes>) {
        let mut inserts = inserts.iter().peekable();
        let mut start = 0;
        for block in &self.blocks {
            let mut from = 0;
            while let Some((at, bytes)) = inserts.next_if(|(at, _)| *at <= start + block.len()) {
                let until = at.saturating_sub(start).max(from);
                out.extend([block.slice(from..until), bytes.clone()]);
                from = until;
            }
            out.push(block.slice(from..));
            start += block.len();
        }
        out.extend(inserts.map(|(_, bytes)| bytes.clone()));
    }

    /// Drops all but the first messages.
    fn truncate(&mut self, count: usize) {
        if count == self.messages.len() {
            return;
        }
        self.messages.truncate(count);
        self.ends.truncate(count);
        let mut remaining_bytes = self.len_bytes();
        self.blocks.retain_mut(|block| {
            let block_bytes = remaining_bytes.min(block.len());
            remaining_bytes -= block_bytes;
            // A slice would keep the truncated bytes in memory.
            if block_bytes < block.len() {
                *block = Bytes::copy_from_slice(&block[..block_bytes]);
            }
            block_bytes > 0
        });
    }

    /// Appends to the last block, or as a new block once that one is full.
    fn append(&mut self, encoded: Vec<u8>) {
        if encoded.is_empty() {
            return;
        }
        match self.blocks.last_mut().filter(|last| last.len() < BLOCK_BYTES) {
            Some(last) => *last = Bytes::from([last, encoded.as_slice()].concat()),
            None => {
                self.merge_blocks();
                self.blocks.push(Bytes::from(encoded));
            }
        }
    }

    /// Merges the last two blocks while the last is at least half as long as the one before it.
    fn merge_blocks(&mut self) {
        while let [.., before, last] = self.blocks.as_slice()
            && last.len() * 2 >= before.len()
        {
            let both = [before.as_ref(), last].concat();
            self.blocks.truncate(self.blocks.len() - 2);
            self.blocks.push(Bytes::from(both));
        }
    }

    fn cost_bytes(&self) -> usize {
        let messages = self.messages.len() * MESSAGE_OVERHEAD_BYTES;
        self.len_bytes() + messages + self.tools.encoded.len() + self.system.encoded.len()
    }
}

/// An encoding and the values it was encoded from.
#[derive(Debug)]
struct CachedEncoding<T: ?Sized> {
    sources: Vec<Weak<T>>,
    encoded: Bytes,
}

impl<T: ?Sized> Default for CachedEncoding<T> {
    fn default() -> Self {
        Self { sources: Vec::new(), encoded: Bytes::new() }
    }
}

impl<T: ?Sized> CachedEncoding<T> {
    fn update(
        &mut self,
        sources: &[Arc<T>],
        encode: impl FnOnce(&[Arc<T>]) -> Result<Vec<u8>, Fault>,
    ) -> Result<Bytes, Fault> {
        let same = self.sources.len() == sources.len()
            && self.sources.iter().zip(sources).all(|(cached, now)| is_same_allocation(cached, now));
        if !same || self.encoded.is_empty() {
            self.encoded = Bytes::from(encode(sources)?);
            self.sources = sources.iter().map(Arc::downgrade).collect();
        }
        Ok(self.encoded.clone())
    }
}

fn is_same_allocation<T: ?Sized>(cached: &Weak<T>, now: &Arc<T>) -> bool {
    std::ptr::addr_eq(Weak::as_ptr(cached), Arc::as_ptr(now))
}
