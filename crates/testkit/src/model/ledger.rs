//! Which questions the scripted model was asked, how often, and how often an answer went out to its last byte.
//! Texts that tests make unique tell their turns apart, whichever daemon asks.

use std::collections::BTreeMap;

/// A question: the last words of the user, and how often the model has answered since.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Question {
    /// The last user message.
    pub user: String,
    /// Answers of the model behind that message: 0 at first, one more for each round of tools.
    pub round: usize,
}

/// How often things happened to one question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// It was asked.
    pub asked: usize,
    /// Its answer was handed over to the last byte. The peer may have been gone by then.
    pub answered: usize,
}

/// All questions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ledger {
    tallies: BTreeMap<Question, Tally>,
}

impl Ledger {
    /// What is known of a question.
    pub fn of(&self, user: &str, round: usize) -> Tally {
        let question = Question { user: user.to_owned(), round };
        self.tallies.get(&question).copied().unwrap_or_default()
    }

    /// Every question that was asked.
    pub fn all(&self) -> impl Iterator<Item = (&Question, Tally)> {
        self.tallies.iter().map(|(question, tally)| (question, *tally))
    }

    pub(crate) fn ask(&mut self, question: &Question) {
        self.tallies.entry(question.clone()).or_default().asked += 1;
    }

    pub(crate) fn answer(&mut self, question: &Question) {
        self.tallies.entry(question.clone()).or_default().answered += 1;
    }
}
