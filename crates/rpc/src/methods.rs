//! The handlers, by noun. Each takes and gives protocol types, and speaks to the runtime in between.

pub(crate) mod agents;
pub(crate) mod conversation;
mod lifecycle;
mod permissions;
