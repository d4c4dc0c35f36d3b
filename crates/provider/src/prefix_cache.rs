//! What was written of a conversation before, kept for each agent, so that a question costs what is new in it and not
//! what is old. Bounded in bytes; who was asked longest ago goes first. How things are written is left to the dialects.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use agent::journal::Serial;
use agent::outside::{ModelRequest, Requester};
use agent::{AgentId, Fault, HistoryVersion, Message, ToolSpec};
use bytes::Bytes;

use crate::dialect::ModelOptions;

/// The most bytes that are kept of all conversations.
const CACHE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The most bytes that are kept of one conversation; a longer one is written anew for each question.
const CONVERSATION_BYTES_MAX: usize = 8 * 1024 * 1024;

/// A block that has grown to this is not copied at every message to put more behind it. Two of them become one when
/// the next begins, two of those become one again, and so on: a conversation is a few blocks, whose bytes were copied a
/// few times.
const BLOCK_BYTES: usize = 16 * 1024;

/// What a message costs the shelf beside what was written for it: its place, and its husk while it is looked at weakly.
const MESSAGE_OVERHEAD_BYTES: usize = 256;

/// Whose conversation it is, in which words, for which model: two servers may call theirs the same, and only one of them
/// takes images.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PrefixKey {
    agent: Option<AgentId>,
    root: Serial,
    dialect: &'static str,
    model: String,
    takes_images: bool,
}

impl PrefixKey {
    pub(crate) fn new(asker: &Requester, dialect: &'static str, model: &ModelOptions) -> Self {
        let takes_images = model.takes_images;
        Self {
            agent: asker.agent.clone(),
            root: asker.root,
            dialect,
            model: model.name.clone(),
            takes_images,
        }
    }
}

/// Writes one message behind those before it. What it writes may depend on these and on nothing else.
pub(crate) type EncodeMessage<'a> = &'a dyn Fn(&[Arc<Message>], &Message, &mut Vec<u8>) -> Result<(), Fault>;

/// The conversations that are kept.
#[derive(Debug)]
pub(crate) struct PrefixCache {
    bytes_max: usize,
    entries: Mutex<CacheEntries>,
}

#[derive(Debug, Default)]
struct CacheEntries {
    prefixes: HashMap<PrefixKey, (u64, Prefix)>,
    /// By when they were put here, oldest first.
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
    /// An empty shelf for so many bytes.
    pub(crate) fn with_capacity(bytes_max: usize) -> Self {
        Self { bytes_max, entries: Mutex::default() }
    }

    /// Takes what is kept of a conversation, for as long as a question is written; none is an empty one.
    pub(crate) fn take(&self, key: &PrefixKey) -> Prefix {
        self.lock_entries().take(key).unwrap_or_default()
    }

    /// Puts it back. Nobody's conversation is not kept: nothing would ever be found again by its key.
    pub(crate) fn put(&self, key: PrefixKey, prefix: Prefix) {
        if key.agent.is_none() || prefix.cost_bytes() > CONVERSATION_BYTES_MAX.min(self.bytes_max) {
            return;
        }
        let mut places = self.lock_entries();
        places.take(&key);
        places.ticks += 1;
        let now = places.ticks;
        places.bytes += prefix.cost_bytes();
        places.order.insert(now, key.clone());
        places.prefixes.insert(key, (now, prefix));
        while places.bytes > self.bytes_max {
            let Some((_, oldest)) = places.order.pop_first() else { return };
            places.take(&oldest);
        }
    }

    fn lock_entries(&self) -> MutexGuard<'_, CacheEntries> {
        // Nothing is left half done where a panic could strike.
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

/// A conversation as it was written.
#[derive(Debug, Default)]
pub(crate) struct Prefix {
    /// The messages that are in the blocks. Weak: their texts may go, and no other message can take their address.
    messages: Vec<Weak<Message>>,
    history_version: Option<HistoryVersion>,
    /// Where each message ends, counted over all blocks.
    ends: Vec<usize>,
    blocks: Vec<Bytes>,
    tools: CachedEncoding<ToolSpec>,
    system: CachedEncoding<str>,
}

impl Prefix {
    /// Brings the messages up to date: those that are there already are not written again.
    pub(crate) fn update(&mut self, request: &ModelRequest, write: EncodeMessage<'_>) -> Result<(), Fault> {
        let messages = &request.messages;
        self.truncate(self.count_unchanged(request));
        self.history_version.clone_from(&request.history_version);
        let start = self.len_bytes();
        let mut fresh = Vec::new();
        for (place, message) in messages.iter().enumerate().skip(self.messages.len()) {
            write(&messages[..place], message, &mut fresh)?;
            self.messages.push(Arc::downgrade(message));
            self.ends.push(start + fresh.len());
        }
        self.append(fresh);
        Ok(())
    }

    /// How many of the messages are those that were written before.
    fn count_unchanged(&self, request: &ModelRequest) -> usize {
        let messages = &request.messages;
        let is_same_at = |place: usize| {
            let (kept, now) = (self.messages.get(place), messages.get(place));
            kept.zip(now).is_some_and(|(kept, now)| is_same_allocation(kept, now))
        };
        // Two that went on in different ways from the same list differ at their last.
        let grew = request.history_version.is_some() && request.history_version == self.history_version;
        if grew && self.messages.len().checked_sub(1).is_some_and(is_same_at) {
            return self.messages.len();
        }
        (0..).take_while(|place| is_same_at(*place)).count()
    }

    /// The tools, written only if they are others than before.
    pub(crate) fn tools(
        &mut self,
        tools: &[Arc<ToolSpec>],
        write: impl FnOnce(&[Arc<ToolSpec>]) -> Result<Vec<u8>, Fault>,
    ) -> Result<Bytes, Fault> {
        self.tools.update(tools, write)
    }

    /// The system prompt, written only if it is another than before.
    pub(crate) fn system(
        &mut self,
        system: &Arc<str>,
        write: impl FnOnce(&str) -> Result<Vec<u8>, Fault>,
    ) -> Result<Bytes, Fault> {
        self.system.update(std::slice::from_ref(system), |_| write(system))
    }

    /// Where a message ends; 0 where there is none.
    pub(crate) fn end_offset(&self, place: usize) -> usize {
        self.ends.get(place).copied().unwrap_or_default()
    }

    /// Where the last message ends.
    pub(crate) fn len_bytes(&self) -> usize {
        self.ends.last().copied().unwrap_or_default()
    }

    /// The pieces of the messages with something put in between, in the order of the places. Nothing is copied.
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

    /// Leaves only the first messages.
    fn truncate(&mut self, count: usize) {
        if count == self.messages.len() {
            return;
        }
        self.messages.truncate(count);
        self.ends.truncate(count);
        let mut left = self.len_bytes();
        self.blocks.retain_mut(|block| {
            let part = left.min(block.len());
            left -= part;
            // What is cut off must not stay in memory for the rest of it.
            if part < block.len() {
                *block = Bytes::copy_from_slice(&block[..part]);
            }
            part > 0
        });
    }

    /// Adds a block, or makes the last one longer: there are never so many that listing them would count.
    fn append(&mut self, fresh: Vec<u8>) {
        if fresh.is_empty() {
            return;
        }
        match self.blocks.last_mut().filter(|last| last.len() < BLOCK_BYTES) {
            Some(last) => *last = Bytes::from([last, fresh.as_slice()].concat()),
            None => {
                self.merge_blocks();
                self.blocks.push(Bytes::from(fresh));
            }
        }
    }

    /// Makes one of the last two blocks for as long as the last is at least half of the one before it.
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

/// Something that was written, and what it was written from.
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
        write: impl FnOnce(&[Arc<T>]) -> Result<Vec<u8>, Fault>,
    ) -> Result<Bytes, Fault> {
        let same = self.sources.len() == sources.len()
            && self.sources.iter().zip(sources).all(|(kept, now)| is_same_allocation(kept, now));
        if !same || self.encoded.is_empty() {
            self.encoded = Bytes::from(write(sources)?);
            self.sources = sources.iter().map(Arc::downgrade).collect();
        }
        Ok(self.encoded.clone())
    }
}

fn is_same_allocation<T: ?Sized>(kept: &Weak<T>, now: &Arc<T>) -> bool {
    std::ptr::addr_eq(Weak::as_ptr(kept), Arc::as_ptr(now))
}
