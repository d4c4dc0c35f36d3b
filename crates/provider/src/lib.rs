//! Models: what a user names with `--model`, and the clients that speak to them.

mod anthropic;
mod arrival;
mod book;
pub mod catalog;
mod chat;
mod tokenizer;
mod dialect;
mod discover;
mod endpoint;
mod failing;
mod fallback;
#[cfg(test)]
mod fixtures;
mod fair_queue;
mod known;
mod local;
mod patience;
mod prefix_cache;
mod decode;
mod remote;
mod responses;
mod secret;
mod sse;
mod standing;
mod tape;
mod encode;

pub use book::{BookOptions, ModelBook, ModelSettings, ProviderSettings};
pub use tokenizer::{TokenCounter, TokenCounterFactory};
pub use discover::{DiscoverOptions, Found, FoundModel};
pub use endpoint::AuthScheme;
pub use known::{MACHINE_WINDOW_TOKENS_DEFAULT, WINDOW_TOKENS_DEFAULT};
pub use local::{LocalFiles, LocalOptions};
pub use secret::{KeySource, Secret};
pub use tape::{RecordedModels, ReplayedModels};
