//! Tests of the binary's HTTP server against hostile clients: every refusal and the order of checks, request smuggling,
//! slow clients, many connections.

mod check_order;
mod connection_reuse;
mod descriptor_exhaustion;
mod disconnects;
mod framing;
mod kernel_sockets;
mod malformed_requests;
mod many_connections;
mod mutations;
mod origins;
mod pipelines;
mod refusals;
mod request_builder;
mod route_matrix;
mod secrets;
mod slow_peers;
mod split_requests;
mod support;
mod tokens;
