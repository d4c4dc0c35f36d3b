//! Counts of requests and complete responses per round of the scripted model.
//! Tests use unique texts, so that the last user message identifies a turn, whichever daemon sent it.

use std::collections::BTreeMap;

/// A round of a turn: the last user message, and the number of model responses since.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RoundKey {
    /// The last user message.
    pub user: String,
    /// Model responses after that message: 0 for the first call, one more for each round of tool calls.
    pub round: usize,
}

/// Counts of one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallCounts {
    /// Requests received.
    pub requests: usize,
    /// Responses sent to the last byte. The peer may have disconnected by then.
    pub responses: usize,
}

/// Counts of all rounds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ledger {
    counts_by_round: BTreeMap<RoundKey, CallCounts>,
}

impl Ledger {
    /// The counts of one round.
    pub fn counts(&self, user: &str, round: usize) -> CallCounts {
        let round_key = RoundKey { user: user.to_owned(), round };
        self.counts_by_round.get(&round_key).copied().unwrap_or_default()
    }

    /// The counts of every round that was requested.
    pub fn iter(&self) -> impl Iterator<Item = (&RoundKey, CallCounts)> {
        self.counts_by_round.iter().map(|(round_key, counts)| (round_key, *counts))
    }

    pub(crate) fn record_request(&mut self, round_key: &RoundKey) {
        self.counts_by_round.entry(round_key.clone()).or_default().requests += 1;
    }

    pub(crate) fn record_response(&mut self, round_key: &RoundKey) {
        self.counts_by_round.entry(round_key.clone()).or_default().responses += 1;
    }
}
