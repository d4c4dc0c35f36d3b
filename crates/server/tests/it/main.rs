//! Tests of the HTTP door in the test process, on loopback, against hostile clients: every refusal and the order of the
//! checks, request smuggling, slow clients. Only the memory, the logs and the limits of a process need a process.

#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking, and so do its helpers")]

mod agent_callers;
mod check_order;
mod connection_reuse;
mod disconnects;
mod fixture;
mod framing;
mod malformed_requests;
mod memory_door;
mod mutations;
mod origins;
mod pipelines;
mod refusals;
mod route_matrix;
mod slow_peers;
mod split_requests;
mod stopping;
mod tokens;
