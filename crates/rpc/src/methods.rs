//! The handlers, by noun. Each takes and gives protocol types, and speaks to the runtime in between.

pub(crate) mod agents;
pub(crate) mod calls;
mod permissions;
mod sessions;
