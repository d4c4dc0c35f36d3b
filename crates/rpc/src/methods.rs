//! The handlers, by noun. Each takes and gives protocol types, and speaks to the runtime in between.

mod agents;
mod calls;
mod rights;
