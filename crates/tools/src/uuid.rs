//! UUID tools.

mod generate;

pub(crate) use generate::Generate;
