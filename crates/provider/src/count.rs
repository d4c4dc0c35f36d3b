//! How many tokens a text is for a model: by its own tokenizer where that is known, else an estimate.

use agent::TokenCount;

/// A model's way to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tokenizer {
    /// Not known: four characters are about one token.
    Estimate,
}

impl Tokenizer {
    pub(crate) fn of_model(_name: &str) -> Self {
        Self::Estimate
    }

    pub(crate) fn count(self, text: &str) -> TokenCount {
        estimate(text)
    }
}

/// Four characters are about one token; a text that is there at all costs at least one.
fn estimate(text: &str) -> TokenCount {
    match text.chars().count() as TokenCount {
        0 => 0,
        characters => (characters / 4).max(1),
    }
}
