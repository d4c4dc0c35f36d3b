//! The tables `[providers.NAME]` and `[models.NAME]` of the file: which keys they have, and what they say. What a provider
//! or a model is, is decided in the room `provider`.

mod keys;
mod reader;
pub(crate) mod tables;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;

use provider::{AuthScheme, KeySource, ModelSettings, ProviderSettings};

pub(crate) use self::keys::NamedKey;
pub(crate) use self::reader::read;
use super::kind::Value;
use super::settings::Config;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spec {
    Providers,
    Models,
}

impl Spec {
    pub(crate) const ALL: [Self; 2] = [Self::Providers, Self::Models];

    pub(crate) fn of(table: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|spec| spec.table() == table)
    }

    pub(crate) fn table(self) -> &'static str {
        match self {
            Self::Providers => "providers",
            Self::Models => "models",
        }
    }

    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Providers => keys::PROVIDERS_ABOUT,
            Self::Models => keys::MODELS_ABOUT,
        }
    }

    pub(crate) fn keys(self) -> &'static [NamedKey] {
        match self {
            Self::Providers => keys::PROVIDERS,
            Self::Models => keys::MODELS,
        }
    }
}

/// One table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NamedTable {
    pub(crate) spec: Spec,
    pub(crate) name: String,
    pub(crate) line: usize,
    /// What it says, in the order of the keys.
    pub(crate) entries: Vec<NamedEntry>,
}

/// One key of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NamedEntry {
    /// Its place in the list of keys.
    pub(crate) key: usize,
    pub(crate) value: Value,
    pub(crate) line: usize,
}

impl Config {
    /// What is said about providers.
    pub(crate) fn providers(&self) -> BTreeMap<String, ProviderSettings> {
        let tables = self.named.iter().filter(|table| table.spec == Spec::Providers);
        tables.map(|table| (table.name.clone(), table.provider())).collect()
    }

    /// The aliases.
    pub(crate) fn models(&self) -> BTreeMap<String, ModelSettings> {
        let tables = self.named.iter().filter(|table| table.spec == Spec::Models);
        tables.map(|table| (table.name.clone(), table.model())).collect()
    }
}

impl NamedTable {
    /// Its header.
    pub(crate) fn path(&self) -> String {
        format!("{}.{}", self.spec.table(), self.name)
    }

    fn value(&self, key: &str) -> Option<&Value> {
        self.entries.iter().find(|entry| self.spec.keys()[entry.key].name == key).map(|entry| &entry.value)
    }

    fn text(&self, key: &str) -> Option<String> {
        match self.value(key)? {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        }
    }

    fn texts(&self, key: &str) -> Option<Vec<String>> {
        match self.value(key)? {
            Value::Texts(texts) => Some(texts.clone()),
            _ => None,
        }
    }

    fn count(&self, key: &str) -> Option<u64> {
        match self.value(key)? {
            Value::Count(count) => Some(*count),
            _ => None,
        }
    }

    fn flag(&self, key: &str) -> Option<bool> {
        match self.value(key)? {
            Value::Flag(flag) => Some(*flag),
            _ => None,
        }
    }

    fn provider(&self) -> ProviderSettings {
        let file = self.text("key_file").map(|path| KeySource::File(PathBuf::from(path)));
        let headers = match self.value("headers") {
            Some(Value::Headers(headers)) => headers.clone(),
            _ => Vec::new(),
        };
        ProviderSettings {
            kind: self.text("kind"),
            base_url: self.text("base_url"),
            key_env: self.text("key_env"),
            key: file.or_else(|| self.texts("key_command").map(KeySource::Command)),
            auth: self.text("auth").map(|word| match word.as_str() {
                "api-key" => AuthScheme::ApiKey,
                "x-api-key" => AuthScheme::XApiKey,
                "none" => AuthScheme::None,
                _ => AuthScheme::Bearer,
            }),
            headers,
            ca_file: self.text("ca_file").map(PathBuf::from),
            api_version: self.text("api_version"),
            deployment: self.text("deployment"),
            allow_insecure_http: self.flag("allow_insecure_http").unwrap_or(false),
            concurrency: self.count("concurrency"),
            first_byte_ms: self.count("first_byte_ms"),
            idle_ms: self.count("idle_ms"),
            tries_max: self.count("tries_max"),
        }
    }

    fn model(&self) -> ModelSettings {
        let extra = match self.value("extra") {
            Some(Value::Fields(fields)) => fields.clone(),
            _ => serde_json::Map::new(),
        };
        ModelSettings {
            model: self.text("model").unwrap_or_default(),
            window_tokens: self.count("window_tokens"),
            answer_tokens_max: self.count("answer_tokens_max"),
            prices: ["price_input", "price_output", "price_cached", "price_cache_written"]
                .map(|key| self.count(key)),
            images: self.flag("images"),
            caches_prompt: self.flag("caches_prompt"),
            extra,
            fallback: self.texts("fallback"),
        }
    }
}
