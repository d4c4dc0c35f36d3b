//! Options of the model registry: the user's settings for providers and models.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use agent::KnownSecrets;

use crate::catalog::PROVIDERS;
use crate::discover::DiscoverOptions;
use crate::endpoint::AuthScheme;
use crate::local::LocalOptions;
use crate::secret::{KeySource, Secret};

/// Options of the model registry.
#[derive(Debug, Clone, Default)]
pub struct RegistryOptions {
    /// Model of agents that name none.
    pub default_model: Option<String>,
    /// Fallbacks of models without their own.
    pub fallback: Vec<String>,
    /// Provider settings by name.
    pub providers: BTreeMap<String, ProviderSettings>,
    /// Model aliases by name.
    pub models: BTreeMap<String, ModelSettings>,
    /// Environment variables named by the catalog or by a provider's `key_env`.
    pub variables: HashMap<String, Secret>,
    /// Gets the keys as they become known.
    pub known_secrets: Arc<KnownSecrets>,
    /// Options of the embedded model; none in a program without a local engine.
    pub local: Option<LocalOptions>,
    /// Options of server discovery on this machine.
    pub discover: DiscoverOptions,
}

/// Parts of the names of headers whose value is a secret.
const SECRET_HEADERS: [&str; 5] = ["auth", "cookie", "key", "secret", "token"];

impl RegistryOptions {
    /// Adds the keys and the secret headers of all providers to the known secrets.
    pub(super) fn add_known_secrets(&self) {
        let configured = self.providers.values().filter_map(|provider| provider.key_env.as_deref());
        let of_catalog = PROVIDERS.iter().flat_map(|known| known.key_variables.iter().copied());
        let from_variables =
            configured.chain(of_catalog).filter_map(|name| self.variables.get(name).cloned());
        let from_settings = self.providers.values().filter_map(|provider| provider.key.as_ref()?.known());
        let is_secret = |name: &str| {
            let name = name.to_ascii_lowercase();
            SECRET_HEADERS.iter().any(|part| name.contains(part))
        };
        let headers = self.providers.values().flat_map(|provider| &provider.headers);
        let from_headers = headers.filter(|(name, _)| is_secret(name)).map(|(_, value)| value.clone());
        for secret in from_variables.chain(from_settings).chain(from_headers) {
            // Without its scheme, as in `Bearer KEY`.
            let value = secret.expose();
            self.known_secrets.add_permanent(value.rsplit(' ').next().unwrap_or(value));
        }
    }
}

/// The user's settings for a provider.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProviderSettings {
    /// Catalog entry that it behaves like; its own name if absent.
    pub kind: Option<String>,
    /// Base URL.
    pub base_url: Option<String>,
    /// Environment variable with the key.
    pub key_env: Option<String>,
    /// Other source of the key.
    pub key: Option<KeySource>,
    /// How the key is sent.
    pub auth: Option<AuthScheme>,
    /// Additional request headers.
    pub headers: Vec<(String, Secret)>,
    /// Certificates to trust in addition to the system's.
    pub ca_file: Option<PathBuf>,
    /// Azure's `api-version`.
    pub api_version: Option<String>,
    /// Azure's deployment, if its name differs from the model's.
    pub deployment: Option<String>,
    /// Whether plain http to other machines is allowed.
    pub allow_insecure_http: bool,
    /// Most requests in flight.
    pub concurrency: Option<u64>,
    /// Time until the response head.
    pub first_byte_ms: Option<u64>,
    /// Time between two chunks of the response.
    pub idle_ms: Option<u64>,
    /// Most attempts of one request.
    pub tries_max: Option<u64>,
}

/// The user's settings for a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelSettings {
    /// Model that the alias stands for, as `provider/name`.
    pub model: String,
    /// Context window in tokens.
    pub window_tokens: Option<u64>,
    /// Most response tokens.
    pub answer_tokens_max: Option<u64>,
    /// Micro-dollars per million tokens: input, output, cache reads, cache writes.
    pub prices: [Option<u64>; 4],
    /// Whether it accepts images.
    pub images: Option<bool>,
    /// Whether cache breakpoints are set in its prompts.
    pub caches_prompt: Option<bool>,
    /// Additional fields of every request body.
    pub extra: serde_json::Map<String, serde_json::Value>,
    /// Its fallbacks; those of the registry if absent.
    pub fallback: Option<Vec<String>>,
}

impl ModelSettings {
    /// Merges these settings over those of the alias they refer to.
    pub(super) fn merged_over(self, base: &Self) -> Self {
        let mut prices = self.prices;
        prices.iter_mut().zip(base.prices).for_each(|(own, base)| *own = own.or(base));
        let mut extra = base.extra.clone();
        extra.extend(self.extra);
        Self {
            model: base.model.clone(),
            window_tokens: self.window_tokens.or(base.window_tokens),
            answer_tokens_max: self.answer_tokens_max.or(base.answer_tokens_max),
            prices,
            images: self.images.or(base.images),
            caches_prompt: self.caches_prompt.or(base.caches_prompt),
            extra,
            fallback: self.fallback.or_else(|| base.fallback.clone()),
        }
    }
}
