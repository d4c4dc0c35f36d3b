//! Method handlers, by subject. Each takes and returns protocol types and calls the runtime.

pub(crate) mod agents;
pub(crate) mod approvals;
pub(crate) mod conversation;
mod lifecycle;
mod permissions;
