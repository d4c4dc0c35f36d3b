//! Tools for results of earlier tool calls.

mod read;

pub(crate) use read::Read;
