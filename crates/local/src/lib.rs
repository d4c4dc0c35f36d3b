//! Models that run on this machine: the engine that reads a GGUF file, embeddings, and the server that offers both.

pub mod embed;
pub mod generation;
pub mod server;
