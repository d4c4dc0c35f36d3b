//! Models that run on this machine: the engine that reads a GGUF file, embeddings, and the server that offers both.

mod chat;
mod engine;
pub mod generation;
