//! Settings from end to end: what the file, the environment and the flags do to a daemon that starts, or does not.

mod layers;
mod models;
mod presets;
mod refusals;
