//! Tools for UUIDs.

mod generate;

pub(crate) use generate::Generate;
