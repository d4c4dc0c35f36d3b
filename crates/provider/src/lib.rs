//! Model clients and the registry that resolves the names given with `--model`. Speaks the Anthropic, OpenAI Responses
//! and chat-completions APIs, and starts the embedded model. Turns, budgets and tools are left to the runtime.

mod anthropic;
pub mod catalog;
mod chat;
mod decode;
mod dialect;
mod discover;
mod encode;
mod endpoint;
mod error_class;
mod fair_queue;
mod fallback;
#[cfg(test)]
mod fixtures;
mod known_models;
mod local;
mod prefix_cache;
mod recording;
mod registry;
mod remote;
mod request_progress;
mod response_stream;
mod responses;
mod retry_policy;
mod secret;
mod sse;
mod tokenizer;

pub use discover::{DiscoverOptions, DiscoveredModel, DiscoveredServer};
pub use endpoint::AuthScheme;
pub use known_models::{MACHINE_WINDOW_TOKENS_DEFAULT, WINDOW_TOKENS_DEFAULT};
pub use local::{LocalFiles, LocalOptions};
pub use recording::{RecordingModels, ReplayModels};
pub use registry::{ModelRegistry, ModelSettings, NO_LOCAL_ENGINE, ProviderSettings, RegistryOptions};
pub use secret::{KeySource, Secret};
pub use tokenizer::{TokenCounter, TokenCounterFactory};
