//! The HTTP door of the real binary under hostile peers: every refusal, their order, smuggling, slowness, crowds.

mod ask;
mod crawl;
mod crowds;
mod descriptors;
mod framing;
mod leaving_peers;
mod malformed;
mod mutations;
mod order;
mod origins;
mod pipelines;
mod refusals;
mod reuse;
mod secrets;
mod slow_peers;
mod sockets;
mod splits;
mod support;
mod tokens;
