//! Makes one model out of what is known of its provider and what the user says about both.

use std::sync::Arc;
use std::time::Duration;

use agent::Prices;
use agent::outside::ModelSpec;

use super::{ModelSettings, NO_WEIGHTS, ProviderSettings, RegistryInner, lock};
use crate::anthropic::Anthropic;
use crate::catalog::{Api, KnownProvider, LOCAL, PROVIDERS, Site, known_provider, ollama_base_url};
use crate::chat::Chat;
use crate::dialect::{Dialect, ModelOptions};
use crate::endpoint::{Endpoint, EndpointOptions};
use crate::fair_queue::QueueLimits;
use crate::known_models::{MACHINE_WINDOW_TOKENS_DEFAULT, WINDOW_TOKENS_DEFAULT, known_traits};
use crate::local::{LocalServer, local_traits};
use crate::remote::{ModelClient, Remote, RemoteModel, RootHeader};
use crate::responses::Responses;
use crate::retry_policy::RetryPolicy;
use crate::secret::KeySource;
use crate::tokenizer::Tokenizer;

const AZURE_VERSION_DEFAULT: &str = "2024-10-21";

impl RegistryInner {
    /// Whether there is a provider of this name.
    pub(super) fn check_provider(&self, provider: &str) -> Result<(), String> {
        let kind = self.options.providers.get(provider).and_then(|said| said.kind.as_deref());
        let is_known = provider == LOCAL || known_provider(kind.unwrap_or(provider)).is_some();
        if is_known { Ok(()) } else { Err(unknown_provider_text(provider)) }
    }

    /// The model, called as the user calls it; else what is missing.
    pub(super) fn build(
        &self,
        called: &str,
        provider: &str,
        model: &str,
        settings: &ModelSettings,
    ) -> Result<Arc<dyn ModelClient>, String> {
        if provider == LOCAL {
            return self.build_local(called, model, settings);
        }
        let nothing = ProviderSettings::default();
        let said = self.options.providers.get(provider).unwrap_or(&nothing);
        let known = known_provider(said.kind.as_deref().unwrap_or(provider))
            .ok_or_else(|| unknown_provider_text(provider))?;
        let endpoint = self.endpoint(provider, known, said)?;
        let traits = override_traits(&self.traits(provider, known, model), settings);
        let path = match known.api {
            Api::AzureChat => {
                let deployment = said.deployment.as_deref().unwrap_or(model);
                vec!["openai".to_owned(), "deployments".to_owned(), deployment.to_owned()]
            }
            _ => Vec::new(),
        };
        let dialect = dialect(known, model);
        let remote = Remote {
            name: called.to_owned(),
            url: endpoint.base_url.join(&path, dialect.path_segments()),
            endpoint,
            dialect,
            options: model_options(model, settings, &traits),
            tokenizer: Tokenizer::for_model(model),
            traits,
            prefix_cache: Arc::clone(&self.prefix_cache),
            root_header: RootHeader::Omit,
        };
        Ok(Arc::new(RemoteModel { inner: Arc::new(remote) }))
    }

    fn build_local(
        &self,
        called: &str,
        id: &str,
        settings: &ModelSettings,
    ) -> Result<Arc<dyn ModelClient>, String> {
        let local = self.options.local.as_ref().ok_or(NO_WEIGHTS)?;
        let file = local.files.find(id).ok_or_else(|| {
            format!("its weights are not here; get them with: nexus3 models pull {id} --yes")
        })?;
        let traits = override_traits(&local_traits(), settings);
        let mut servers = lock(&self.local_servers);
        let server = match servers.get(id) {
            Some(server) => server.clone(),
            None => {
                let server = LocalServer::new(id, file, local).map_err(|fault| fault.to_string())?;
                servers.insert(id.to_owned(), server.clone());
                server
            }
        };
        let options = model_options(id, settings, &traits);
        Ok(Arc::new(server.model(called.to_owned(), options, traits, Arc::clone(&self.prefix_cache))))
    }

    fn traits(&self, provider: &str, known: &KnownProvider, model: &str) -> ModelSpec {
        let found = lock(&self.discovered);
        let found = found.iter().filter(|found| found.provider == provider).flat_map(|found| &found.models);
        let told = found.filter(|found| found.name == model).find_map(|found| found.window_tokens);
        let traits = known_traits(provider, model, WINDOW_TOKENS_DEFAULT);
        let likely = match known.site {
            Site::Cloud => traits.window_tokens,
            // What the model could take is not what its server was set up with.
            Site::Machine => traits.window_tokens.min(MACHINE_WINDOW_TOKENS_DEFAULT),
        };
        ModelSpec { window_tokens: told.unwrap_or(likely), ..traits }
    }

    /// One server's connections and its gate are shared by all its models.
    fn endpoint(
        &self,
        provider: &str,
        known: &KnownProvider,
        said: &ProviderSettings,
    ) -> Result<Arc<Endpoint>, String> {
        let mut endpoints = lock(&self.endpoints);
        if let Some(endpoint) = endpoints.get(provider) {
            return Ok(Arc::clone(endpoint));
        }
        let options = self.endpoint_options(provider, known, said)?;
        let endpoint = Endpoint::new(options).map_err(|fault| fault.to_string())?;
        endpoints.insert(provider.to_owned(), Arc::clone(&endpoint));
        Ok(endpoint)
    }

    fn endpoint_options(
        &self,
        provider: &str,
        known: &KnownProvider,
        said: &ProviderSettings,
    ) -> Result<EndpointOptions, String> {
        let (base_url, base_url_name) = self.base_url(provider, known, said)?;
        let key = self.key_source(provider, known, said)?;
        if key == KeySource::None && known.site == Site::Cloud && base_url == known.base_url {
            return Err(missing_key_text(provider, known, said));
        }
        let query = match known.api {
            Api::AzureChat => {
                let version = said.api_version.as_deref().unwrap_or(AZURE_VERSION_DEFAULT);
                vec![("api-version".to_owned(), version.to_owned())]
            }
            _ => said.api_version.iter().map(|version| ("api-version".to_owned(), version.clone())).collect(),
        };
        Ok(EndpointOptions {
            name: provider.to_owned(),
            base_url,
            base_url_name,
            key,
            auth: said.auth.unwrap_or(known.auth),
            headers: said.headers.clone(),
            query,
            ca_file: said.ca_file.clone(),
            allow_insecure_http: said.allow_insecure_http,
            socket: None,
            retry_policy: retry_policy(known, said),
            queue_limits: queue_limits(said),
        })
    }

    /// Where a known provider is, as far as anybody knows.
    pub(super) fn provider_base_url(&self, provider: &str) -> Option<String> {
        let nothing = ProviderSettings::default();
        let said = self.options.providers.get(provider).unwrap_or(&nothing);
        self.base_url(provider, known_provider(provider)?, said).ok().map(|(base_url, _)| base_url)
    }

    /// The address, and what the user calls it.
    fn base_url(
        &self,
        provider: &str,
        known: &KnownProvider,
        said: &ProviderSettings,
    ) -> Result<(String, String), String> {
        if let Some(base_url) = &said.base_url {
            return Ok((base_url.clone(), format!("providers.{provider}.base_url")));
        }
        // What the environment says of a provider is not said of others of its kind.
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
        said: &ProviderSettings,
    ) -> Result<KeySource, String> {
        if let Some(source) = &said.key {
            return Ok(source.clone());
        }
        let own = said.key_env.iter().map(String::as_str);
        let usual =
            known.key_variables.iter().copied().filter(|_| said.key_env.is_none() && provider == known.name);
        let found = own.chain(usual).find_map(|name| Some((name, self.options.variables.get(name)?)));
        let Some((name, key)) = found else { return Ok(KeySource::None) };
        key.check(name).map_err(|fault| fault.to_string())?;
        Ok(KeySource::Given { name: name.to_owned(), key: key.clone() })
    }
}

fn missing_key_text(provider: &str, known: &KnownProvider, said: &ProviderSettings) -> String {
    match (&said.key_env, known.key_variables.first()) {
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
        "there is no provider {:?}; the known ones are {names}, and others stand in config.toml as [providers.NAME]",
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

fn retry_policy(known: &KnownProvider, said: &ProviderSettings) -> RetryPolicy {
    let usual = match known.site {
        Site::Cloud => RetryPolicy::default(),
        Site::Machine => RetryPolicy::for_machine(),
    };
    let ms = |value: Option<u64>, usual: Duration| value.map_or(usual, Duration::from_millis);
    RetryPolicy {
        first_byte_timeout: ms(said.first_byte_ms, usual.first_byte_timeout),
        idle_timeout: ms(said.idle_ms, usual.idle_timeout),
        tries_max: said.tries_max.and_then(|tries| u32::try_from(tries).ok()).unwrap_or(usual.tries_max),
        ..usual
    }
}

fn queue_limits(said: &ProviderSettings) -> QueueLimits {
    let usual = QueueLimits::default();
    let concurrency = said.concurrency.and_then(|count| usize::try_from(count).ok());
    QueueLimits { concurrency: concurrency.unwrap_or(usual.concurrency), ..usual }
}

fn override_traits(traits: &ModelSpec, settings: &ModelSettings) -> ModelSpec {
    let [input, output, cached, cache_written] = settings.prices;
    let says_price = settings.prices.iter().any(Option::is_some);
    let known = traits.prices.unwrap_or_default();
    let prices = Prices {
        input: input.unwrap_or(known.input),
        output: output.unwrap_or(known.output),
        // What is read from a cache costs no more than what is not, where nobody says.
        cached: cached.or(input).unwrap_or(known.cached),
        cache_written: cache_written.or(input).unwrap_or(known.cache_written),
    };
    ModelSpec {
        window_tokens: settings.window_tokens.unwrap_or(traits.window_tokens),
        answer_tokens_max: settings.answer_tokens_max.or(traits.answer_tokens_max),
        prices: if says_price { Some(prices) } else { traits.prices },
        accepts_images: settings.images.unwrap_or(traits.accepts_images),
        tier: traits.tier,
    }
}

fn model_options(model: &str, settings: &ModelSettings, traits: &ModelSpec) -> ModelOptions {
    ModelOptions {
        name: model.to_owned(),
        answer_tokens_max: settings.answer_tokens_max,
        answer_tokens_limit: traits.answer_tokens_max,
        extra: settings.extra.clone(),
        caches_prompt: settings.caches_prompt.unwrap_or(true),
        takes_images: traits.accepts_images,
    }
}
