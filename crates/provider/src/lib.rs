//! Models: what a user names with `--model`, and the clients that speak to them.

mod arrival;
mod book;
pub mod catalog;
mod count;
mod dialect;
mod discover;
mod endpoint;
mod failing;
mod fallback;
mod gate;
mod known;
mod local;
mod openai;
mod patience;
mod prefix;
mod remote;
mod secret;
mod sse;

pub use book::{BookOptions, ModelBook, ModelSettings, ProviderSettings};
pub use discover::{DiscoverOptions, Found, FoundModel, discover};
pub use endpoint::Auth;
pub use known::{MACHINE_WINDOW_TOKENS_DEFAULT, WINDOW_TOKENS_DEFAULT};
pub use local::{LocalFiles, LocalOptions};
pub use secret::{KeySource, Secret};
