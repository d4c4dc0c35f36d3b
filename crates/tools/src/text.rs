//! Tools for text as it is.

mod echo;

pub(crate) use echo::Echo;
