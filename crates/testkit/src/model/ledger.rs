//! Which questions the scripted model was asked, how often, and how often an answer went out to its last byte.
//! Texts that tests make unique tell their turns apart, whichever daemon asks.

use std::collections::BTreeMap;

/// A question: the last words of the user, and how often the model has answered since.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RoundKey {
    /// The last user message.
    pub user: String,
    /// Answers of the model behind that message: 0 at first, one more for each round of tools.
    pub round: usize,
}

/// How often things happened to one question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallCounts {
    /// It was asked.
    pub requests: usize,
    /// Its answer was handed over to the last byte. The peer may have been gone by then.
    pub responses: usize,
}

/// All questions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ledger {
    counts_by_round: BTreeMap<RoundKey, CallCounts>,
}

impl Ledger {
    /// What is known of a question.
    pub fn counts(&self, user: &str, round: usize) -> CallCounts {
        let question = RoundKey { user: user.to_owned(), round };
        self.counts_by_round.get(&question).copied().unwrap_or_default()
    }

    /// Every question that was asked.
    pub fn iter(&self) -> impl Iterator<Item = (&RoundKey, CallCounts)> {
        self.counts_by_round.iter().map(|(question, tally)| (question, *tally))
    }

    pub(crate) fn record_request(&mut self, question: &RoundKey) {
        self.counts_by_round.entry(question.clone()).or_default().requests += 1;
    }

    pub(crate) fn record_response(&mut self, question: &RoundKey) {
        self.counts_by_round.entry(question.clone()).or_default().responses += 1;
    }
}
