//! What was written of a conversation before, kept for each agent, so that a question costs what is new in it and not
//! what is old. Bounded in bytes; who was asked longest ago goes first. How things are written is left to the dialects.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use agent::journal::Serial;
use agent::outside::{Requester, ModelRequest};
use agent::{AgentId, Fault, Lineage, Message, ToolSpec};
use bytes::Bytes;

use crate::dialect::ModelOptions;

/// The most bytes that are kept of all conversations.
const SHELF_BYTES_MAX: usize = 64 * 1024 * 1024;

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
pub(crate) type WriteMessage<'a> = &'a dyn Fn(&[Arc<Message>], &Message, &mut Vec<u8>) -> Result<(), Fault>;

/// The conversations that are kept.
#[derive(Debug)]
pub(crate) struct PrefixShelf {
    bytes_max: usize,
    places: Mutex<Places>,
}

#[derive(Debug, Default)]
struct Places {
    prefixes: HashMap<PrefixKey, (u64, Prefix)>,
    /// By when they were put here, oldest first.
    order: BTreeMap<u64, PrefixKey>,
    bytes: usize,
    clock: u64,
}

impl Default for PrefixShelf {
    fn default() -> Self {
        Self::of_bytes(SHELF_BYTES_MAX)
    }
}

impl PrefixShelf {
    /// An empty shelf for so many bytes.
    pub(crate) fn of_bytes(bytes_max: usize) -> Self {
        Self { bytes_max, places: Mutex::default() }
    }

    /// Takes what is kept of a conversation, for as long as a question is written; none is an empty one.
    pub(crate) fn take(&self, key: &PrefixKey) -> Prefix {
        self.places().take(key).unwrap_or_default()
    }

    /// Puts it back. Nobody's conversation is not kept: nothing would ever be found again by its key.
    pub(crate) fn put(&self, key: PrefixKey, prefix: Prefix) {
        if key.agent.is_none() || prefix.cost() > CONVERSATION_BYTES_MAX.min(self.bytes_max) {
            return;
        }
        let mut places = self.places();
        places.take(&key);
        places.clock += 1;
        let now = places.clock;
        places.bytes += prefix.cost();
        places.order.insert(now, key.clone());
        places.prefixes.insert(key, (now, prefix));
        while places.bytes > self.bytes_max {
            let Some((_, oldest)) = places.order.pop_first() else { return };
            places.take(&oldest);
        }
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        // Nothing is left half done where a panic could strike.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Places {
    fn take(&mut self, key: &PrefixKey) -> Option<Prefix> {
        let (put_at, prefix) = self.prefixes.remove(key)?;
        self.order.remove(&put_at);
        self.bytes -= prefix.cost();
        Some(prefix)
    }
}

/// A conversation as it was written.
#[derive(Debug, Default)]
pub(crate) struct Prefix {
    /// The messages that are in the blocks. Weak: their texts may go, and no other message can take their address.
    messages: Vec<Weak<Message>>,
    lineage: Option<Lineage>,
    /// Where each message ends, counted over all blocks.
    ends: Vec<usize>,
    blocks: Vec<Bytes>,
    tools: Kept<ToolSpec>,
    system: Kept<str>,
}

impl Prefix {
    /// Brings the messages up to date: those that are there already are not written again.
    pub(crate) fn follow(&mut self, request: &ModelRequest, write: WriteMessage<'_>) -> Result<(), Fault> {
        let messages = &request.messages;
        self.cut(self.known(request));
        self.lineage.clone_from(&request.lineage);
        let start = self.bytes();
        let mut fresh = Vec::new();
        for (place, message) in messages.iter().enumerate().skip(self.messages.len()) {
            write(&messages[..place], message, &mut fresh)?;
            self.messages.push(Arc::downgrade(message));
            self.ends.push(start + fresh.len());
        }
        self.push(fresh);
        Ok(())
    }

    /// How many of the messages are those that were written before.
    fn known(&self, request: &ModelRequest) -> usize {
        let messages = &request.messages;
        let is_same_at = |place: usize| {
            let (kept, now) = (self.messages.get(place), messages.get(place));
            kept.zip(now).is_some_and(|(kept, now)| is_same(kept, now))
        };
        // Two that went on in different ways from the same list differ at their last.
        let grew = request.lineage.is_some() && request.lineage == self.lineage;
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
        self.tools.follow(tools, write)
    }

    /// The system prompt, written only if it is another than before.
    pub(crate) fn system(
        &mut self,
        system: &Arc<str>,
        write: impl FnOnce(&str) -> Result<Vec<u8>, Fault>,
    ) -> Result<Bytes, Fault> {
        self.system.follow(std::slice::from_ref(system), |_| write(system))
    }

    /// Where a message ends; 0 where there is none.
    pub(crate) fn end_of(&self, place: usize) -> usize {
        self.ends.get(place).copied().unwrap_or_default()
    }

    /// Where the last message ends.
    pub(crate) fn bytes(&self) -> usize {
        self.ends.last().copied().unwrap_or_default()
    }

    /// The pieces of the messages with something put in between, in the order of the places. Nothing is copied.
    pub(crate) fn pieces(&self, inserts: &[(usize, Bytes)], out: &mut Vec<Bytes>) {
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
    fn cut(&mut self, count: usize) {
        if count == self.messages.len() {
            return;
        }
        self.messages.truncate(count);
        self.ends.truncate(count);
        let mut left = self.bytes();
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
    fn push(&mut self, fresh: Vec<u8>) {
        if fresh.is_empty() {
            return;
        }
        match self.blocks.last_mut().filter(|last| last.len() < BLOCK_BYTES) {
            Some(last) => *last = Bytes::from([last, fresh.as_slice()].concat()),
            None => {
                self.join();
                self.blocks.push(Bytes::from(fresh));
            }
        }
    }

    /// Makes one of the last two blocks for as long as the last is at least half of the one before it.
    fn join(&mut self) {
        while let [.., before, last] = self.blocks.as_slice()
            && last.len() * 2 >= before.len()
        {
            let both = [before.as_ref(), last].concat();
            self.blocks.truncate(self.blocks.len() - 2);
            self.blocks.push(Bytes::from(both));
        }
    }

    fn cost(&self) -> usize {
        let messages = self.messages.len() * MESSAGE_OVERHEAD_BYTES;
        self.bytes() + messages + self.tools.written.len() + self.system.written.len()
    }
}

/// Something that was written, and what it was written from.
#[derive(Debug)]
struct Kept<T: ?Sized> {
    sources: Vec<Weak<T>>,
    written: Bytes,
}

impl<T: ?Sized> Default for Kept<T> {
    fn default() -> Self {
        Self { sources: Vec::new(), written: Bytes::new() }
    }
}

impl<T: ?Sized> Kept<T> {
    fn follow(
        &mut self,
        sources: &[Arc<T>],
        write: impl FnOnce(&[Arc<T>]) -> Result<Vec<u8>, Fault>,
    ) -> Result<Bytes, Fault> {
        let same = self.sources.len() == sources.len()
            && self.sources.iter().zip(sources).all(|(kept, now)| is_same(kept, now));
        if !same || self.written.is_empty() {
            self.written = Bytes::from(write(sources)?);
            self.sources = sources.iter().map(Arc::downgrade).collect();
        }
        Ok(self.written.clone())
    }
}

fn is_same<T: ?Sized>(kept: &Weak<T>, now: &Arc<T>) -> bool {
    std::ptr::addr_eq(Weak::as_ptr(kept), Arc::as_ptr(now))
}
