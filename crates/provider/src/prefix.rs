//! What was written of a conversation before, kept for each agent.

/// The conversations that are kept.
#[derive(Debug, Default)]
pub(crate) struct PrefixShelf {}
