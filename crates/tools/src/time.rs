//! Time tools.

mod get_time;

pub(crate) use get_time::GetTime;
