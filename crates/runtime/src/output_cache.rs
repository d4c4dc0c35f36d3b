//! What was cut off results of tools, so that the agent can read the rest: in memory, bounded, the oldest first to go. A
//! result that is gone can be had again by calling the tool again, so nothing of it is kept on disk.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::journal::Serial;
use agent::outside::{CachedResults, ResultChunk};
use agent::{TokenCount, omission_note, truncate_middle};

use crate::handle::Shared;

/// The whole results of all agents.
#[derive(Debug)]
pub(crate) struct OutputCache {
    bytes_max: usize,
    state: Mutex<CacheState>,
}

#[derive(Debug, Default)]
struct CacheState {
    outputs: VecDeque<(Serial, String, Arc<str>)>,
    bytes: usize,
    /// Names are never given twice.
    last_handle: u64,
}

/// What one agent can read.
pub(crate) struct AgentOutputs {
    pub(crate) cache: Arc<OutputCache>,
    pub(crate) agent: Serial,
}

impl OutputCache {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a whole result aside and names it; none when it is longer than everything may be together.
    pub(crate) fn insert(&self, agent: Serial, text: &str) -> Option<String> {
        if text.len() > self.bytes_max {
            return None;
        }
        let mut held = self.state();
        held.last_handle += 1;
        let handle = format!("r{}", held.last_handle);
        held.bytes += text.len();
        held.outputs.push_back((agent, handle.clone(), Arc::from(text)));
        while held.bytes > self.bytes_max {
            let Some((_, _, oldest)) = held.outputs.pop_front() else { break };
            held.bytes -= oldest.len();
        }
        Some(handle)
    }

    /// The agent is gone.
    pub(crate) fn remove_agent(&self, agent: Serial) {
        let mut held = self.state();
        held.outputs.retain(|(owner, ..)| *owner != agent);
        held.bytes = held.outputs.iter().map(|(_, _, text)| text.len()).sum();
    }

    fn find(&self, agent: Serial, handle: &str) -> Option<Arc<str>> {
        let held = self.state();
        let found = held.outputs.iter().find(|(owner, name, _)| *owner == agent && name == handle);
        found.map(|(_, _, text)| Arc::clone(text))
    }
}

impl CachedResults for AgentOutputs {
    fn read(&self, handle: &str, offset: usize, bytes_max: usize) -> Result<ResultChunk, String> {
        let text = self.cache.find(self.agent, handle).ok_or_else(|| {
            let handle: String = handle.chars().take(64).collect();
            format!("there is no result '{handle}' any more; call the tool again, for less at once")
        })?;
        if offset > text.len() {
            return Err(format!("offset {offset} is beyond the end: the result has {} bytes", text.len()));
        }
        let from = text.floor_char_boundary(offset);
        let to = text.floor_char_boundary(from.saturating_add(bytes_max));
        Ok(ResultChunk { text: text[from..to].to_owned(), offset: from, bytes_total: text.len() })
    }
}

/// A result may be so much of the room of all messages.
const RESULT_SHARE_PERCENT: TokenCount = 25;

impl Shared {
    /// What a result may be, in our tokens; zero when the model's window is not known.
    pub(crate) fn result_tokens_max(&self) -> TokenCount {
        let frame = self.fixed_overhead(&self.visible_tools(), self.volatile_suffix_tokens());
        let room = self.published.read().window.size(&frame).message_capacity();
        frame.calibration.to_counted_tokens(room * RESULT_SHARE_PERCENT / 100)
    }

    /// The text, or as much of it as there is room for: then the whole is put aside.
    pub(crate) fn truncate_result(&self, text: String, tokens_max: TokenCount) -> String {
        let count = |text: &str| self.provider.count(text);
        // No token is shorter than a byte.
        if text.len() as TokenCount <= tokens_max || count(&text) <= tokens_max {
            return text;
        }
        let handle = self.pool.upgrade().and_then(|pool| pool.output_cache.insert(self.node.serial, &text));
        truncate_middle(&text, tokens_max, &count, &|offset, bytes| match &handle {
            Some(handle) => {
                format!(
                    "[… {bytes} bytes left out: call result_read with handle {handle}, offset {offset} …]"
                )
            }
            None => omission_note(bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outputs_of(spool: &Arc<OutputCache>, agent: Serial) -> AgentOutputs {
        AgentOutputs { cache: Arc::clone(spool), agent }
    }

    #[test]
    fn an_agent_reads_its_own_results_in_parts() {
        let spool = Arc::new(OutputCache::new(100));
        let handle = spool.insert(1, "äbcdef").expect("there is room");
        let part = outputs_of(&spool, 1).read(&handle, 1, 3).expect("it is there");
        assert_eq!((part.text.as_str(), part.offset, part.bytes_total), ("äb", 0, 7), "no half characters");
        assert_eq!(outputs_of(&spool, 1).read(&handle, 7, 3).expect("its end").text, "");
        assert!(outputs_of(&spool, 1).read(&handle, 8, 3).is_err());
        assert!(outputs_of(&spool, 2).read(&handle, 0, 3).is_err(), "others do not");
        spool.remove_agent(1);
        assert!(outputs_of(&spool, 1).read(&handle, 0, 3).is_err());
        assert_eq!(spool.state().bytes, 0);
    }

    #[test]
    fn the_oldest_go_when_there_is_no_room() {
        let spool = Arc::new(OutputCache::new(10));
        let first = spool.insert(1, "12345").expect("there is room");
        let second = spool.insert(2, "12345").expect("there is room");
        let third = spool.insert(1, "1").expect("there is room");
        assert!(outputs_of(&spool, 1).read(&first, 0, 9).is_err());
        assert!(
            outputs_of(&spool, 2).read(&second, 0, 9).is_ok()
                && outputs_of(&spool, 1).read(&third, 0, 9).is_ok()
        );
        assert_eq!(spool.insert(1, "12345678901"), None, "longer than all together");
    }
}
