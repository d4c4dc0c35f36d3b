//! The most recent deltas, bounded in bytes. Channels reference them; a subscriber that comes too late has lagged.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{Delta, DeltaKind};

/// Size of all deltas that subscribers can still read.
pub(super) const DELTA_WINDOW_BYTES_MAX: usize = 8 << 20;

/// Text of one delta. Deltas are not persisted, so that a stream has to buffer an encoded delta until it is written.
pub(super) const DELTA_TEXT_BYTES_MAX: usize = 4096;

/// Size of a delta without its text.
const FIXED_BYTES: usize = 256;

/// The most recent deltas.
#[derive(Default)]
pub(super) struct DeltaWindow {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    deltas: VecDeque<Arc<Delta>>,
    bytes: usize,
}

impl DeltaWindow {
    /// Adds a delta and evicts the oldest ones beyond the limit. The reference is valid until eviction.
    pub(super) fn push(&self, delta: Delta) -> Weak<Delta> {
        let delta = Arc::new(delta);
        let reference = Arc::downgrade(&delta);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.bytes += size(&delta);
        state.deltas.push_back(delta);
        while state.bytes > DELTA_WINDOW_BYTES_MAX {
            let Some(oldest) = state.deltas.pop_front() else { break };
            state.bytes -= size(&oldest);
        }
        reference
    }

    pub(super) fn clear(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = State::default();
    }
}

fn size(delta: &Delta) -> usize {
    let call_id_bytes = match &delta.kind {
        DeltaKind::ToolOutput { call_id, .. } => call_id.len(),
        DeltaKind::Text | DeltaKind::Reasoning => 0,
    };
    FIXED_BYTES + call_id_bytes + delta.text.len()
}

/// Splits a delta into deltas of limited size, between characters.
pub(super) fn split(mut delta: Delta) -> impl Iterator<Item = Delta> {
    let text = std::mem::take(&mut delta.text);
    let mut start = 0;
    std::iter::from_fn(move || {
        let rest = text.get(start..).filter(|rest| !rest.is_empty())?;
        let piece = &rest[..rest.floor_char_boundary(DELTA_TEXT_BYTES_MAX)];
        start += piece.len();
        Some(Delta { text: piece.to_owned(), ..delta.clone() })
    })
}
