//! Settings end to end: how file, environment and flags configure a daemon or stop its start.

mod layers;
mod models;
mod presets;
mod refusals;
