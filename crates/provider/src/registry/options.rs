//! What the user says about providers and models.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use crate::discover::DiscoverOptions;
use crate::endpoint::AuthScheme;
use crate::local::LocalOptions;
use crate::secret::{KeySource, Secret};

/// What a book of models is made of.
#[derive(Debug, Clone, Default)]
pub struct RegistryOptions {
    /// The model of agents that name none.
    pub default_model: Option<String>,
    /// Models to ask when another fails.
    pub fallback: Vec<String>,
    /// Providers by name, as far as the user says something about them.
    pub providers: BTreeMap<String, ProviderSettings>,
    /// Aliases.
    pub models: BTreeMap<String, ModelSettings>,
    /// The variables of the environment that the catalog names, and those that providers are told to take their key from.
    pub variables: HashMap<String, Secret>,
    /// The embedded model.
    pub local: Option<LocalOptions>,
    /// Which servers on this machine are looked for.
    pub discover: DiscoverOptions,
}

/// What the user says about a provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProviderSettings {
    /// The known provider that it is like; its own name when left out.
    pub kind: Option<String>,
    /// Where it is.
    pub base_url: Option<String>,
    /// The variable with its key.
    pub key_env: Option<String>,
    /// Where else its key comes from.
    pub key: Option<KeySource>,
    /// How its key travels.
    pub auth: Option<AuthScheme>,
    /// Headers beside those that the API wants.
    pub headers: Vec<(String, Secret)>,
    /// Certificates to trust beside the system's.
    pub ca_file: Option<PathBuf>,
    /// Azure's `api-version`.
    pub api_version: Option<String>,
    /// Azure's deployment, where it is not called as the model.
    pub deployment: Option<String>,
    /// Takes plain http to other machines.
    pub allow_insecure_http: bool,
    /// Questions at once.
    pub concurrency: Option<u64>,
    /// Until the head of an answer.
    pub first_byte_ms: Option<u64>,
    /// Between two pieces of it.
    pub idle_ms: Option<u64>,
    /// Most tries of one question.
    pub tries_max: Option<u64>,
}

/// What the user says about a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelSettings {
    /// What it is, as `provider/name`.
    pub model: String,
    /// How many tokens it can take.
    pub window_tokens: Option<u64>,
    /// The most tokens of an answer.
    pub answer_tokens_max: Option<u64>,
    /// Millionths of a dollar for a million tokens: read, written, read from and written to its cache.
    pub prices: [Option<u64>; 4],
    /// Whether it can look at images.
    pub images: Option<bool>,
    /// Whether its prompt is marked for the provider's cache.
    pub caches_prompt: Option<bool>,
    /// Fields that are put into every question.
    pub extra: serde_json::Map<String, serde_json::Value>,
    /// Models to ask when it fails; those for all models when left out.
    pub fallback: Option<Vec<String>>,
}

impl ModelSettings {
    /// What this says, and the other where it says nothing.
    pub(super) fn merged_over(self, other: &Self) -> Self {
        let mut prices = self.prices;
        prices.iter_mut().zip(other.prices).for_each(|(own, other)| *own = own.or(other));
        let mut extra = other.extra.clone();
        extra.extend(self.extra);
        Self {
            model: other.model.clone(),
            window_tokens: self.window_tokens.or(other.window_tokens),
            answer_tokens_max: self.answer_tokens_max.or(other.answer_tokens_max),
            prices,
            images: self.images.or(other.images),
            caches_prompt: self.caches_prompt.or(other.caches_prompt),
            extra,
            fallback: self.fallback.or_else(|| other.fallback.clone()),
        }
    }
}
