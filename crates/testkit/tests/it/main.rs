//! The testkit's own tests, over real sockets and processes.

#![expect(clippy::expect_used, reason = "a test fails by panicking, and so do its helpers")]

mod event_streams;
mod model_apis;
mod model_errors;
mod model_ledger;
mod model_responses;
mod model_waits;
mod processes;
mod raw_connections;
mod restarts;
mod support;
