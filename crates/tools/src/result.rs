//! Tools for results of other tools.

mod read;

pub(crate) use read::Read;
