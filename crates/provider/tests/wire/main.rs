//! Models over a real socket, against a server that does what servers do on bad days.

#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking, and so do its helpers")]

mod addresses;
mod connections;
mod cuts;
mod harness;
mod local;
mod refusals;
mod responses;
mod retry;
mod secrets;
mod server;
