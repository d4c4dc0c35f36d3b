//! Local models: a GGUF inference engine, an embedding model, and the HTTP server that offers both with OpenAI's API.

mod chat;
pub mod embed;
mod engine;
pub mod generation;
pub mod server;
pub mod token_counter;
