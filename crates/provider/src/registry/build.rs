//! Builds a model client from the catalog entry of its provider and the user's settings.

use std::sync::Arc;
use std::time::Duration;

use agent::Prices;
use agent::outside::ModelSpec;

use super::{ModelSettings, NO_LOCAL_ENGINE, ProviderSettings, RegistryInner, lock};
use crate::anthropic::Anthropic;
use crate::catalog::{Api, KnownProvider, LOCAL, PROVIDERS, Site, known_provider, ollama_base_url};
use crate::chat::Chat;
use crate::dialect::{Dialect, ModelOptions};
use crate::endpoint::{Endpoint, EndpointOptions};
use crate::fair_queue::QueueLimits;
use crate::known_models::{MACHINE_WINDOW_TOKENS_DEFAULT, WINDOW_TOKENS_DEFAULT, known_spec};
use crate::local::{LocalServer, default_local_spec};
use crate::remote::{ModelClient, Remote, RemoteModel, RootHeader};
use crate::responses::Responses;
use crate::retry_policy::RetryPolicy;
use crate::secret::KeySource;
use crate::tokenizer::Tokenizer;

const AZURE_VERSION_DEFAULT: &str = "2024-10-21";

impl RegistryInner {
    /// Checks that a provider of this name exists.
    pub(super) fn check_provider(&self, provider: &str) -> Result<(), String> {
        if provider == LOCAL {
            return self.options.local.as_ref().map(|_| ()).ok_or_else(|| NO_LOCAL_ENGINE.to_owned());
        }
        let kind = self
            .options
            .providers
            .get(provider)
            .and_then(|provider_settings| provider_settings.kind.as_deref());
        let is_known = known_provider(kind.unwrap_or(provider)).is_some();
        if is_known { Ok(()) } else { Err(unknown_provider_text(provider)) }
    }

    /// Builds the client of a model under the user's name for it; the error says what is missing.
    pub(super) fn build(
        &self,
        name: &str,
        provider: &str,
        model: &str,
        settings: &ModelSettings,
    ) -> Result<Arc<dyn ModelClient>, String> {
        if provider == LOCAL {
            return self.build_local(name, model, settings);
        }
        let defaults = ProviderSettings::default();
        let provider_settings = self.options.providers.get(provider).unwrap_or(&defaults);
        let known = known_provider(provider_settings.kind.as_deref().unwrap_or(provider))
            .ok_or_else(|| unknown_provider_text(provider))?;
        let endpoint = self.endpoint(provider, known, provider_settings)?;
        let spec = override_spec(&self.default_spec(provider, known, model), settings);
        let path = match known.api {
            Api::AzureChat => {
                let deployment = provider_settings.deployment.as_deref().unwrap_or(model);
                vec!["openai".to_owned(), "deployments".to_owned(), deployment.to_owned()]
            }
            _ => Vec::new(),
        };
        let dialect = dialect(known, model);
        let remote = Remote {
            name: name.to_owned(),
            url: endpoint.base_url.join(&path, dialect.path_segments()),
            endpoint,
            dialect,
            options: model_options(model, settings, &spec),
            tokenizer: Tokenizer::for_model(model),
            spec,
            prefix_cache: Arc::clone(&self.prefix_cache),
            root_header: RootHeader::Omit,
        };
        Ok(Arc::new(RemoteModel { inner: Arc::new(remote) }))
    }

    fn build_local(
        &self,
        name: &str,
        id: &str,
        settings: &ModelSettings,
    ) -> Result<Arc<dyn ModelClient>, String> {
        let local = self.options.local.as_ref().ok_or(NO_LOCAL_ENGINE)?;
        let file = local.files.find(id).ok_or_else(|| {
            format!("its weights are not installed; get them with: nexus3 models pull {id} --yes")
        })?;
        let spec = override_spec(&default_local_spec(), settings);
        let mut servers = lock(&self.local_servers);
        let server = match servers.get(id) {
            Some(server) => server.clone(),
            None => {
                let server = LocalServer::new(id, file, local).map_err(|fault| fault.to_string())?;
                servers.insert(id.to_owned(), server.clone());
                server
            }
        };
        let options = model_options(id, settings, &spec);
        Ok(Arc::new(server.model(name.to_owned(), options, spec, Arc::clone(&self.prefix_cache))))
    }

    /// Returns the properties of a model before the user's settings. The window is the one that the server reported to
    /// discovery, if any.
    fn default_spec(&self, provider: &str, known: &KnownProvider, model: &str) -> ModelSpec {
        let found = lock(&self.discovered);
        let found = found.iter().filter(|found| found.provider == provider).flat_map(|found| &found.models);
        let reported = found.filter(|found| found.name == model).find_map(|found| found.window_tokens);
        let spec = known_spec(provider, model, WINDOW_TOKENS_DEFAULT);
        let assumed = match known.site {
            Site::Cloud => spec.window_tokens,
            // Such servers are often configured with a smaller window than the model supports.
            Site::Machine => spec.window_tokens.min(MACHINE_WINDOW_TOKENS_DEFAULT),
        };
        ModelSpec { window_tokens: reported.unwrap_or(assumed), ..spec }
    }

    /// Returns the endpoint of a provider. All its models share one endpoint: connections, queue and circuit breaker.
    fn endpoint(
        &self,
        provider: &str,
        known: &KnownProvider,
        provider_settings: &ProviderSettings,
    ) -> Result<Arc<Endpoint>, String> {
        let mut endpoints = lock(&self.endpoints);
        if let Some(endpoint) = endpoints.get(provider) {
            return Ok(Arc::clone(endpoint));
        }
        let options = self.endpoint_options(provider, known, provider_settings)?;
        let endpoint = Endpoint::new(options).map_err(|fault| fault.to_string())?;
        endpoints.insert(provider.to_owned(), Arc::clone(&endpoint));
        Ok(endpoint)
    }

    fn endpoint_options(
        &self,
        provider: &str,
        known: &KnownProvider,
        provider_settings: &ProviderSettings,
    ) -> Result<EndpointOptions, String> {
        let (base_url, base_url_name) = self.base_url(provider, known, provider_settings)?;
        let key = self.key_source(provider, known, provider_settings)?;
        if key == KeySource::None && known.site == Site::Cloud && base_url == known.base_url {
            return Err(missing_key_text(provider, known, provider_settings));
        }
        let query = match known.api {
            Api::AzureChat => {
                let version = provider_settings.api_version.as_deref().unwrap_or(AZURE_VERSION_DEFAULT);
                vec![("api-version".to_owned(), version.to_owned())]
            }
            _ => provider_settings
                .api_version
                .iter()
                .map(|version| ("api-version".to_owned(), version.clone()))
                .collect(),
        };
        Ok(EndpointOptions {
            name: provider.to_owned(),
            base_url,
            base_url_name,
            key,
            auth: provider_settings.auth.unwrap_or(known.auth),
            known_secrets: Arc::clone(&self.options.known_secrets),
            headers: provider_settings.headers.clone(),
            query,
            ca_file: provider_settings.ca_file.clone(),
            allow_insecure_http: provider_settings.allow_insecure_http,
            socket: None,
            retry_policy: retry_policy(known, provider_settings),
            queue_limits: queue_limits(provider_settings),
        })
    }

    /// Returns the base URL of a known provider, if it has one.
    pub(super) fn provider_base_url(&self, provider: &str) -> Option<String> {
        let defaults = ProviderSettings::default();
        let provider_settings = self.options.providers.get(provider).unwrap_or(&defaults);
        self.base_url(provider, known_provider(provider)?, provider_settings)
            .ok()
            .map(|(base_url, _)| base_url)
    }

    /// Returns the base URL and the name of its setting or variable, for errors.
    fn base_url(
        &self,
        provider: &str,
        known: &KnownProvider,
        provider_settings: &ProviderSettings,
    ) -> Result<(String, String), String> {
        if let Some(base_url) = &provider_settings.base_url {
            return Ok((base_url.clone(), format!("providers.{provider}.base_url")));
        }
        // The variables apply to the catalog's provider itself, not to others of the same kind.
        let is_itself = provider == known.name;
        let variable = known.base_url_variable;
        if let Some(value) = self.options.variables.get(variable).filter(|_| is_itself) {
            let value = value.expose();
            let base_url = if variable == "OLLAMA_HOST" { ollama_base_url(value) } else { value.to_owned() };
            return Ok((base_url, variable.to_owned()));
        }
        if known.base_url.is_empty() {
            return Err(format!("set {variable}, or providers.{provider}.base_url in config.toml"));
        }
        Ok((known.base_url.to_owned(), format!("the address of {provider}")))
    }

    fn key_source(
        &self,
        provider: &str,
        known: &KnownProvider,
        provider_settings: &ProviderSettings,
    ) -> Result<KeySource, String> {
        if let Some(source) = &provider_settings.key {
            return Ok(source.clone());
        }
        let own = provider_settings.key_env.iter().map(String::as_str);
        let defaults = known
            .key_variables
            .iter()
            .copied()
            .filter(|_| provider_settings.key_env.is_none() && provider == known.name);
        let found = own.chain(defaults).find_map(|name| Some((name, self.options.variables.get(name)?)));
        let Some((name, key)) = found else { return Ok(KeySource::None) };
        key.check(name).map_err(|fault| fault.to_string())?;
        Ok(KeySource::Given { name: name.to_owned(), key: key.clone() })
    }
}

fn missing_key_text(provider: &str, known: &KnownProvider, provider_settings: &ProviderSettings) -> String {
    match (&provider_settings.key_env, known.key_variables.first()) {
        (Some(variable), _) => format!("set {variable} in the daemon's environment"),
        (None, Some(variable)) if provider == known.name => format!(
            "start the daemon with {variable} in its environment, or with {} for a server that needs no key",
            known.base_url_variable
        ),
        _ => format!("set providers.{provider}.key_env, key_file or key_command in config.toml"),
    }
}

fn unknown_provider_text(provider: &str) -> String {
    let names: Vec<&str> = PROVIDERS.iter().map(|known| known.name).chain([LOCAL]).collect();
    let names = names.join(", ");
    format!(
        "there is no provider {:?}; the known ones are {names}; define others in config.toml as [providers.NAME]",
        super::truncated_name(provider)
    )
}

fn dialect(known: &KnownProvider, model: &str) -> Arc<dyn Dialect> {
    match known.api {
        Api::AzureChat | Api::OpenAiChat => Arc::new(Chat::OPENAI.for_model(known, model)),
        Api::CompatibleChat => Arc::new(Chat::COMPATIBLE.for_model(known, model)),
        Api::Responses => Arc::new(Responses),
        Api::Anthropic => Arc::new(Anthropic),
    }
}

fn retry_policy(known: &KnownProvider, provider_settings: &ProviderSettings) -> RetryPolicy {
    let defaults = match known.site {
        Site::Cloud => RetryPolicy::default(),
        Site::Machine => RetryPolicy::for_machine(),
    };
    let ms = |value: Option<u64>, defaults: Duration| value.map_or(defaults, Duration::from_millis);
    RetryPolicy {
        first_byte_timeout: ms(provider_settings.first_byte_ms, defaults.first_byte_timeout),
        idle_timeout: ms(provider_settings.idle_ms, defaults.idle_timeout),
        tries_max: provider_settings
            .tries_max
            .and_then(|tries| u32::try_from(tries).ok())
            .unwrap_or(defaults.tries_max),
        ..defaults
    }
}

fn queue_limits(provider_settings: &ProviderSettings) -> QueueLimits {
    let defaults = QueueLimits::default();
    let concurrency = provider_settings.concurrency.and_then(|count| usize::try_from(count).ok());
    QueueLimits { concurrency: concurrency.unwrap_or(defaults.concurrency), ..defaults }
}

fn override_spec(spec: &ModelSpec, settings: &ModelSettings) -> ModelSpec {
    let [input, output, cached, cache_written] = settings.prices;
    let has_price_settings = settings.prices.iter().any(Option::is_some);
    let known = spec.prices.unwrap_or_default();
    let prices = Prices {
        input: input.unwrap_or(known.input),
        output: output.unwrap_or(known.output),
        // Without a price of its own, cached input costs as much as uncached input.
        cached: cached.or(input).unwrap_or(known.cached),
        cache_written: cache_written.or(input).unwrap_or(known.cache_written),
    };
    ModelSpec {
        window_tokens: settings.window_tokens.unwrap_or(spec.window_tokens),
        answer_tokens_max: settings.answer_tokens_max.or(spec.answer_tokens_max),
        prices: if has_price_settings { Some(prices) } else { spec.prices },
        accepts_images: settings.images.unwrap_or(spec.accepts_images),
        tier: spec.tier,
    }
}

fn model_options(model: &str, settings: &ModelSettings, spec: &ModelSpec) -> ModelOptions {
    ModelOptions {
        name: model.to_owned(),
        answer_tokens_max: settings.answer_tokens_max,
        supported_answer_tokens_max: spec.answer_tokens_max,
        extra: settings.extra.clone(),
        caches_prompt: settings.caches_prompt.unwrap_or(true),
        accepts_images: spec.accepts_images,
    }
}
