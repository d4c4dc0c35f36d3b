//! The tables `[providers.NAME]`, `[models.NAME]`, `[custom_tools.NAME]` and `[secrets.NAME]` of `config.toml`, and their
//! conversion to the settings that the crates `provider` and `tools` take.

mod keys;
mod reader;
pub(crate) mod table_values;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;

use provider::{AuthScheme, KeySource, ModelSettings, ProviderSettings};
use tools::{CustomTool, CustomToolSettings, InputMode, OutputMode};

pub(crate) use self::keys::NamedKey;
pub(crate) use self::reader::parse;
use super::ConfigFault;
use super::settings::Config;
use super::value_kind::SettingValue;

/// The kinds of named tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableKind {
    Providers,
    Models,
    CustomTools,
    Secrets,
}

impl TableKind {
    pub(crate) const ALL: [Self; 4] = [Self::Providers, Self::Models, Self::CustomTools, Self::Secrets];

    pub(crate) fn from_table_name(table: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.table_name() == table)
    }

    pub(crate) fn table_name(self) -> &'static str {
        match self {
            Self::Providers => "providers",
            Self::Models => "models",
            Self::CustomTools => "custom_tools",
            Self::Secrets => "secrets",
        }
    }

    pub(crate) fn description(self) -> &'static str {
        match self {
            Self::Providers => keys::PROVIDERS_DESCRIPTION,
            Self::Models => keys::MODELS_DESCRIPTION,
            Self::CustomTools => keys::CUSTOM_TOOLS_DESCRIPTION,
            Self::Secrets => keys::SECRETS_DESCRIPTION,
        }
    }

    pub(crate) fn keys(self) -> &'static [NamedKey] {
        match self {
            Self::Providers => keys::PROVIDER_KEYS,
            Self::Models => keys::MODEL_KEYS,
            Self::CustomTools => keys::CUSTOM_TOOL_KEYS,
            Self::Secrets => keys::SECRET_KEYS,
        }
    }
}

/// One table, such as `[providers.NAME]`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NamedTable {
    pub(crate) kind: TableKind,
    pub(crate) name: String,
    pub(crate) line: usize,
    /// Its entries, in the order of the key list.
    pub(crate) entries: Vec<NamedEntry>,
}

/// One key of a named table with its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NamedEntry {
    /// Index into the key list of the table's kind.
    pub(crate) key_index: usize,
    pub(crate) value: SettingValue,
    pub(crate) line: usize,
}

impl Config {
    /// Settings of the providers in the file, by provider name.
    pub(crate) fn provider_settings(&self) -> BTreeMap<String, ProviderSettings> {
        let tables = self.named.iter().filter(|table| table.kind == TableKind::Providers);
        tables.map(|table| (table.name.clone(), table.to_provider_settings())).collect()
    }

    /// Settings of the model aliases in the file, by alias.
    pub(crate) fn model_settings(&self) -> BTreeMap<String, ModelSettings> {
        let tables = self.named.iter().filter(|table| table.kind == TableKind::Models);
        tables.map(|table| (table.name.clone(), table.to_model_settings())).collect()
    }

    /// The sources of the secrets in the file, by name.
    pub(crate) fn secret_sources(&self) -> impl Iterator<Item = (&str, SecretSource)> {
        let tables = self.named.iter().filter(|table| table.kind == TableKind::Secrets);
        tables.filter_map(|table| Some((table.name.as_str(), table.to_secret_source()?)))
    }

    /// The custom tools of the file, in its order.
    ///
    /// # Errors
    /// When one uses a secret that the file does not define. The parser has checked the rest.
    pub(crate) fn custom_tools(&self) -> Result<Vec<CustomTool>, ConfigFault> {
        let tables = self.named.iter().filter(|table| table.kind == TableKind::CustomTools);
        let tool = |table: &NamedTable| {
            let fault = |problem: String| {
                let problem = format!("config.toml:{}: {}.{problem}", table.line, table.header_path());
                ConfigFault { problems: vec![problem] }
            };
            let tool = CustomTool::new(&table.to_tool_settings()).map_err(|why| fault(why.to_string()))?;
            let is_defined = |name: &str| self.secret_sources().any(|(known, _)| known == name);
            if let Some(name) = tool.secret_names().find(|name| !is_defined(name)) {
                return Err(fault(format!(
                    "env has ${{secrets.{name}}}, but there is no table [secrets.{name}]"
                )));
            }
            Ok(tool)
        };
        tables.map(tool).collect()
    }
}

/// Where a secret of the file comes from.
pub(crate) enum SecretSource {
    /// A variable of the daemon's environment.
    Variable(String),
    Key(KeySource),
}

impl NamedTable {
    fn to_secret_source(&self) -> Option<SecretSource> {
        let variable = self.text("env").map(SecretSource::Variable);
        let file = || self.text("file").map(|path| KeySource::File(PathBuf::from(path)));
        let command = || self.list("command").map(KeySource::Command);
        variable.or_else(|| file().or_else(command).map(SecretSource::Key))
    }

    /// Dotted path of the table's header.
    pub(crate) fn header_path(&self) -> String {
        format!("{}.{}", self.kind.table_name(), self.name)
    }

    fn value(&self, key: &str) -> Option<&SettingValue> {
        self.entries
            .iter()
            .find(|entry| self.kind.keys()[entry.key_index].name == key)
            .map(|entry| &entry.value)
    }

    fn text(&self, key: &str) -> Option<String> {
        match self.value(key)? {
            SettingValue::Text(text) => Some(text.clone()),
            _ => None,
        }
    }

    fn list(&self, key: &str) -> Option<Vec<String>> {
        match self.value(key)? {
            SettingValue::List(texts) => Some(texts.clone()),
            _ => None,
        }
    }

    fn integer(&self, key: &str) -> Option<u64> {
        match self.value(key)? {
            SettingValue::Integer(count) => Some(*count),
            _ => None,
        }
    }

    fn boolean(&self, key: &str) -> Option<bool> {
        match self.value(key)? {
            SettingValue::Boolean(flag) => Some(*flag),
            _ => None,
        }
    }

    fn to_tool_settings(&self) -> CustomToolSettings {
        let env = match self.value("env") {
            Some(SettingValue::Headers(env)) => env.clone(),
            _ => Vec::new(),
        };
        let input_schema = match self.value("input_schema") {
            Some(SettingValue::RawTable(schema)) => schema.clone(),
            _ => serde_json::Map::new(),
        };
        CustomToolSettings {
            name: self.name.clone(),
            description: self.text("description").unwrap_or_default(),
            command: self.text("command").unwrap_or_default(),
            args_template: self.list("args_template").unwrap_or_default(),
            working_dir: self.text("working_dir"),
            env: env.into_iter().map(|(name, value)| (name, value.expose().to_owned())).collect(),
            timeout_secs: self.integer("timeout_secs"),
            input_schema,
            input_mode: match self.text("input_mode").as_deref() {
                Some("stdin") => InputMode::Stdin,
                Some("env") => InputMode::Env,
                _ => InputMode::Args,
            },
            output_mode: match self.text("output_mode").as_deref() {
                Some("json") => OutputMode::Json,
                _ => OutputMode::Text,
            },
        }
    }

    fn to_provider_settings(&self) -> ProviderSettings {
        let file = self.text("key_file").map(|path| KeySource::File(PathBuf::from(path)));
        let headers = match self.value("headers") {
            Some(SettingValue::Headers(headers)) => headers.clone(),
            _ => Vec::new(),
        };
        ProviderSettings {
            kind: self.text("kind"),
            base_url: self.text("base_url"),
            key_env: self.text("key_env"),
            key: file.or_else(|| self.list("key_command").map(KeySource::Command)),
            auth: self.text("auth").map(|scheme| match scheme.as_str() {
                "api-key" => AuthScheme::ApiKey,
                "x-api-key" => AuthScheme::XApiKey,
                "none" => AuthScheme::None,
                _ => AuthScheme::Bearer,
            }),
            headers,
            ca_file: self.text("ca_file").map(PathBuf::from),
            api_version: self.text("api_version"),
            deployment: self.text("deployment"),
            allow_insecure_http: self.boolean("allow_insecure_http").unwrap_or(false),
            concurrency: self.integer("concurrency"),
            first_byte_ms: self.integer("first_byte_ms"),
            idle_ms: self.integer("idle_ms"),
            tries_max: self.integer("tries_max"),
        }
    }

    fn to_model_settings(&self) -> ModelSettings {
        let extra = match self.value("extra") {
            Some(SettingValue::RawTable(fields)) => fields.clone(),
            _ => serde_json::Map::new(),
        };
        ModelSettings {
            model: self.text("model").unwrap_or_default(),
            window_tokens: self.integer("window_tokens"),
            answer_tokens_max: self.integer("answer_tokens_max"),
            prices: ["price_input", "price_output", "price_cached", "price_cache_written"]
                .map(|key| self.integer(key)),
            images: self.boolean("images"),
            caches_prompt: self.boolean("caches_prompt"),
            extra,
            fallback: self.list("fallback"),
        }
    }
}
