//! Models over a real socket, against a server that does what servers do on bad days.

#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking, and so do its helpers")]

mod addresses;
mod answers;
mod connections;
mod cuts;
mod local;
mod patience;
mod refusals;
mod secrets;
mod server;
mod stream;
