//! Text tools.

mod echo;

pub(crate) use echo::Echo;
