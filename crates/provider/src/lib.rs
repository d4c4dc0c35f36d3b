//! Models: what a user names with `--model`, and the clients that speak to them.

mod anthropic;
mod response_stream;
mod registry;
pub mod catalog;
mod chat;
mod tokenizer;
mod dialect;
mod discover;
mod endpoint;
mod error_class;
mod fallback;
#[cfg(test)]
mod fixtures;
mod fair_queue;
mod known_models;
mod local;
mod retry_policy;
mod prefix_cache;
mod decode;
mod remote;
mod responses;
mod secret;
mod sse;
mod request_progress;
mod tape;
mod encode;

pub use registry::{RegistryOptions, ModelRegistry, ModelSettings, ProviderSettings};
pub use tokenizer::{TokenCounter, TokenCounterFactory};
pub use discover::{DiscoverOptions, DiscoveredServer, DiscoveredModel};
pub use endpoint::AuthScheme;
pub use known_models::{MACHINE_WINDOW_TOKENS_DEFAULT, WINDOW_TOKENS_DEFAULT};
pub use local::{LocalFiles, LocalOptions};
pub use secret::{KeySource, Secret};
pub use tape::{RecordedModels, ReplayedModels};
