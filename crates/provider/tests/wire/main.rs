//! Tests of model clients over real sockets, against a scripted HTTP server that misbehaves.

#![expect(clippy::expect_used, clippy::panic, reason = "tests and their helpers fail by panicking")]

mod addresses;
mod connections;
mod cuts;
mod harness;
mod local;
mod refusals;
mod responses;
mod retry;
mod secrets;
