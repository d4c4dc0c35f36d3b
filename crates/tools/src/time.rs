//! Tools for time.

mod get_time;

pub(crate) use get_time::GetTime;
