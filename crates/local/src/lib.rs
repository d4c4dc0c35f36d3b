//! Models that run on this machine: the engine that reads a GGUF file, embeddings, and the server that offers both.

mod chat;
pub mod embed;
mod engine;
pub mod generation;
pub mod server;
pub mod token_counter;
