//! What was cut off results of tools, so that the agent can read the rest: in memory, bounded, the oldest first to go. A
//! result that is gone can be had again by calling the tool again, so nothing of it is kept on disk.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::journal::Serial;
use agent::outside::{ResultPart, Results};
use agent::{TokenCount, cut_middle, left_out};

use crate::handle::Shared;

/// The whole results of all agents.
#[derive(Debug)]
pub(crate) struct Spool {
    bytes_max: usize,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    results: VecDeque<(Serial, String, Arc<str>)>,
    bytes: usize,
    /// Names are never given twice.
    given: u64,
}

/// What one agent can read.
pub(crate) struct ResultsOf {
    pub(crate) spool: Arc<Spool>,
    pub(crate) agent: Serial,
}

impl Spool {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a whole result aside and names it; none when it is longer than everything may be together.
    pub(crate) fn put(&self, agent: Serial, text: &str) -> Option<String> {
        if text.len() > self.bytes_max {
            return None;
        }
        let mut held = self.held();
        held.given += 1;
        let handle = format!("r{}", held.given);
        held.bytes += text.len();
        held.results.push_back((agent, handle.clone(), Arc::from(text)));
        while held.bytes > self.bytes_max {
            let Some((_, _, oldest)) = held.results.pop_front() else { break };
            held.bytes -= oldest.len();
        }
        Some(handle)
    }

    /// The agent is gone.
    pub(crate) fn forget(&self, agent: Serial) {
        let mut held = self.held();
        held.results.retain(|(owner, ..)| *owner != agent);
        held.bytes = held.results.iter().map(|(_, _, text)| text.len()).sum();
    }

    fn find(&self, agent: Serial, handle: &str) -> Option<Arc<str>> {
        let held = self.held();
        let found = held.results.iter().find(|(owner, name, _)| *owner == agent && name == handle);
        found.map(|(_, _, text)| Arc::clone(text))
    }
}

impl Results for ResultsOf {
    fn read(&self, handle: &str, offset: usize, bytes_max: usize) -> Result<ResultPart, String> {
        let text = self.spool.find(self.agent, handle).ok_or_else(|| {
            let handle: String = handle.chars().take(64).collect();
            format!("there is no result '{handle}' any more; call the tool again, for less at once")
        })?;
        if offset > text.len() {
            return Err(format!("offset {offset} is beyond the end: the result has {} bytes", text.len()));
        }
        let from = text.floor_char_boundary(offset);
        let to = text.floor_char_boundary(from.saturating_add(bytes_max));
        Ok(ResultPart { text: text[from..to].to_owned(), offset: from, bytes: text.len() })
    }
}

/// A result may be so much of the room of all messages.
const SHARE_PERCENT: TokenCount = 25;

impl Shared {
    /// What a result may be, in our tokens; zero when the model's window is not known.
    pub(crate) fn result_share(&self) -> TokenCount {
        let frame = self.fixed_overhead(&self.visible_tools(), self.volatile_suffix_tokens());
        let room = self.published.read().window.size(&frame).room();
        frame.gauge.uncorrect(room * SHARE_PERCENT / 100)
    }

    /// The text, or as much of it as there is room for: then the whole is put aside.
    pub(crate) fn cut_result(&self, text: String, tokens_max: TokenCount) -> String {
        let count = |text: &str| self.provider.count(text);
        // No token is shorter than a byte.
        if text.len() as TokenCount <= tokens_max || count(&text) <= tokens_max {
            return text;
        }
        let handle = self.pool.upgrade().and_then(|pool| pool.spool.put(self.node.serial, &text));
        cut_middle(&text, tokens_max, &count, &|offset, bytes| match &handle {
            Some(handle) => {
                format!(
                    "[… {bytes} bytes left out: call result_read with handle {handle}, offset {offset} …]"
                )
            }
            None => left_out(bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(spool: &Arc<Spool>, agent: Serial) -> ResultsOf {
        ResultsOf { spool: Arc::clone(spool), agent }
    }

    #[test]
    fn an_agent_reads_its_own_results_in_parts() {
        let spool = Arc::new(Spool::new(100));
        let handle = spool.put(1, "äbcdef").expect("there is room");
        let part = of(&spool, 1).read(&handle, 1, 3).expect("it is there");
        assert_eq!((part.text.as_str(), part.offset, part.bytes), ("äb", 0, 7), "no half characters");
        assert_eq!(of(&spool, 1).read(&handle, 7, 3).expect("its end").text, "");
        assert!(of(&spool, 1).read(&handle, 8, 3).is_err());
        assert!(of(&spool, 2).read(&handle, 0, 3).is_err(), "others do not");
        spool.forget(1);
        assert!(of(&spool, 1).read(&handle, 0, 3).is_err());
        assert_eq!(spool.held().bytes, 0);
    }

    #[test]
    fn the_oldest_go_when_there_is_no_room() {
        let spool = Arc::new(Spool::new(10));
        let first = spool.put(1, "12345").expect("there is room");
        let second = spool.put(2, "12345").expect("there is room");
        let third = spool.put(1, "1").expect("there is room");
        assert!(of(&spool, 1).read(&first, 0, 9).is_err());
        assert!(of(&spool, 2).read(&second, 0, 9).is_ok() && of(&spool, 1).read(&third, 0, 9).is_ok());
        assert_eq!(spool.put(1, "12345678901"), None, "longer than all together");
    }
}
