//! In-memory cache of full tool results, from which an agent can read the part that was truncated. Bounded; evicts the
//! oldest first. Not persisted: the agent can call the tool again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::journal::Serial;
use agent::outside::{CachedResults, ResultChunk};
use agent::{TokenCount, omission_note, truncate_middle};

use crate::handle::Shared;

/// Full tool results of all agents.
#[derive(Debug)]
pub(crate) struct OutputCache {
    bytes_max: usize,
    state: Mutex<CacheState>,
}

#[derive(Debug, Default)]
struct CacheState {
    outputs: VecDeque<(Serial, String, Arc<str>)>,
    bytes: usize,
    /// Handles are never reused.
    last_handle: u64,
}

/// Read access to one agent's results.
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

    /// Caches a full result and returns its handle; `None` when it exceeds the cache size.
    pub(crate) fn insert(&self, agent: Serial, text: &str) -> Option<String> {
        if text.len() > self.bytes_max {
            return None;
        }
        let mut state = self.state();
        state.last_handle += 1;
        let handle = format!("r{}", state.last_handle);
        state.bytes += text.len();
        state.outputs.push_back((agent, handle.clone(), Arc::from(text)));
        while state.bytes > self.bytes_max {
            let Some((_, _, oldest)) = state.outputs.pop_front() else { break };
            state.bytes -= oldest.len();
        }
        Some(handle)
    }

    /// Evicts the results of a destroyed agent.
    pub(crate) fn remove_agent(&self, agent: Serial) {
        let mut state = self.state();
        state.outputs.retain(|(owner, ..)| *owner != agent);
        state.bytes = state.outputs.iter().map(|(_, _, text)| text.len()).sum();
    }

    fn find(&self, agent: Serial, handle: &str) -> Option<Arc<str>> {
        let state = self.state();
        let found = state.outputs.iter().find(|(owner, name, _)| *owner == agent && name == handle);
        found.map(|(_, _, text)| Arc::clone(text))
    }
}

impl CachedResults for AgentOutputs {
    fn read(&self, handle: &str, offset: usize, bytes_max: usize) -> Result<ResultChunk, String> {
        let text = self.cache.find(self.agent, handle).ok_or_else(|| {
            let handle: String = handle.chars().take(64).collect();
            format!("result '{handle}' is no longer cached: call the tool again and request less output")
        })?;
        if offset > text.len() {
            return Err(format!("offset {offset} is beyond the end: the result has {} bytes", text.len()));
        }
        let from = text.floor_char_boundary(offset);
        let to = text.floor_char_boundary(from.saturating_add(bytes_max));
        Ok(ResultChunk { text: text[from..to].to_owned(), offset: from, bytes_total: text.len() })
    }
}

/// Maximum share of one result in the message capacity of the window.
const RESULT_SHARE_PERCENT: TokenCount = 25;

impl Shared {
    /// Returns the maximum size of one result in locally counted tokens; zero when the model's window size is unknown.
    pub(crate) fn result_tokens_max(&self) -> TokenCount {
        let overhead = self.fixed_overhead(&self.visible_tools(), self.volatile_suffix_tokens());
        let capacity = self.published.read().window.size(&overhead).message_capacity();
        overhead.calibration.to_counted_tokens(capacity * RESULT_SHARE_PERCENT / 100)
    }

    /// Truncates a result to `tokens_max`; caches the full text if it does.
    pub(crate) fn truncate_result(&self, text: String, tokens_max: TokenCount) -> String {
        let count = |text: &str| self.provider.count(text);
        // A token has at least one byte.
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

    fn outputs_of(cache: &Arc<OutputCache>, agent: Serial) -> AgentOutputs {
        AgentOutputs { cache: Arc::clone(cache), agent }
    }

    #[test]
    fn agent_reads_only_its_own_results_in_chunks() {
        let cache = Arc::new(OutputCache::new(100));
        let handle = cache.insert(1, "äbcdef").expect("fits");
        let chunk = outputs_of(&cache, 1).read(&handle, 1, 3).expect("cached");
        assert_eq!(
            (chunk.text.as_str(), chunk.offset, chunk.bytes_total),
            ("äb", 0, 7),
            "cut at a character boundary"
        );
        assert_eq!(outputs_of(&cache, 1).read(&handle, 7, 3).expect("at the end").text, "");
        assert!(outputs_of(&cache, 1).read(&handle, 8, 3).is_err());
        assert!(outputs_of(&cache, 2).read(&handle, 0, 3).is_err(), "another agent's result");
        cache.remove_agent(1);
        assert!(outputs_of(&cache, 1).read(&handle, 0, 3).is_err());
        assert_eq!(cache.state().bytes, 0);
    }

    #[test]
    fn full_cache_evicts_the_oldest_result() {
        let cache = Arc::new(OutputCache::new(10));
        let first = cache.insert(1, "12345").expect("fits");
        let second = cache.insert(2, "12345").expect("fits");
        let third = cache.insert(1, "1").expect("fits");
        assert!(outputs_of(&cache, 1).read(&first, 0, 9).is_err());
        assert!(
            outputs_of(&cache, 2).read(&second, 0, 9).is_ok()
                && outputs_of(&cache, 1).read(&third, 0, 9).is_ok()
        );
        assert_eq!(cache.insert(1, "12345678901"), None, "larger than the cache");
    }
}
