//! The HTTP door of the real binary under hostile peers: every refusal, their order, smuggling, slowness, crowds.

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
