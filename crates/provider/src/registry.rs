//! Model registry: resolves aliases, `provider/model` names and bare provider names to model clients. Combines the
//! catalog, the user's settings and the environment variables, which the caller passes in.

mod build;
mod no_default_model;
mod options;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::outside::{Models, Provider};
use agent::{Fault, FaultKind};

use self::no_default_model::NoDefaultModel;
pub use self::options::{ModelSettings, ProviderSettings, RegistryOptions};
use crate::catalog::{LOCAL, PROVIDERS, Site, known_provider};
use crate::discover::{DiscoverOptions, DiscoveredServer, discover};
use crate::endpoint::Endpoint;
use crate::fallback::ModelWithFallbacks;
use crate::local::LocalServer;
use crate::prefix_cache::PrefixCache;
use crate::remote::ModelClient;

/// Longest model name.
const NAME_CHARS_MAX: usize = 200;

/// Example of a model name, for errors.
const NAME_EXAMPLE: &str = "as in openai/gpt-4o-mini";

/// Registry of all models; clones share it.
#[derive(Clone)]
pub struct ModelRegistry {
    inner: Arc<RegistryInner>,
}

pub(crate) struct RegistryInner {
    options: RegistryOptions,
    prefix_cache: Arc<PrefixCache>,
    endpoints: Mutex<HashMap<String, Arc<Endpoint>>>,
    local_servers: Mutex<HashMap<String, LocalServer>>,
    /// Servers found by the last discovery on this machine.
    discovered: Mutex<Vec<DiscoveredServer>>,
}

impl ModelRegistry {
    /// Creates a registry and validates the default model and the names of the fallbacks.
    ///
    /// # Errors
    /// When the default model cannot be built, such as for a missing key, or a fallback's name is invalid.
    pub fn open(options: RegistryOptions) -> Result<Self, Fault> {
        let registry = Self {
            inner: Arc::new(RegistryInner {
                options,
                prefix_cache: Arc::default(),
                endpoints: Mutex::default(),
                local_servers: Mutex::default(),
                discovered: Mutex::default(),
            }),
        };
        registry.inner.options.add_known_secrets();
        if let Some(name) = &registry.inner.options.default_model {
            registry.inner.find(name).map_err(|fault| startup_fault(name, &fault))?;
        }
        let options = &registry.inner.options;
        let of_models = options.models.values().filter_map(|model| model.fallback.as_ref());
        for name in options.fallback.iter().chain(of_models.flatten()) {
            let result = registry.inner.check_name(name);
            result.map_err(|why| {
                Fault::new(FaultKind::Invalid, format!("fallback {:?}: {why}", truncated_name(name)))
            })?;
        }
        Ok(registry)
    }

    /// Resolves the default model and returns whether there is one. Discovers servers on this machine only if no model
    /// is configured and no provider has a key.
    pub async fn resolve_default(&self) -> bool {
        self.inner.resolve_default().await.is_some()
    }

    /// Discovers model servers on this machine and stores them for later lookups.
    pub async fn discover_servers(&self) -> Vec<DiscoveredServer> {
        self.inner.discover_servers().await
    }
}

/// Rewords a lookup fault for the startup of the daemon.
fn startup_fault(name: &str, fault: &Fault) -> Fault {
    let shown = truncated_name(name);
    let why = fault.public.strip_prefix(&format!("Unknown model '{shown}': ")).unwrap_or(&fault.public);
    Fault { public: format!("model {shown:?}: {why}").into(), ..fault.clone() }
}

/// Whether this is a valid model name, without the provider.
pub(crate) fn is_model_name(name: &str) -> bool {
    (1..=NAME_CHARS_MAX).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
}

fn truncated_name(name: &str) -> String {
    name.chars().take(NAME_CHARS_MAX).collect()
}

impl Models for ModelRegistry {
    fn default_model(&self) -> Arc<dyn Provider> {
        match self.inner.choose_default() {
            Some(model) => as_provider(model),
            None => Arc::new(NoDefaultModel::new(Arc::clone(&self.inner))),
        }
    }

    fn find(&self, name: &str) -> Result<Arc<dyn Provider>, Fault> {
        self.inner.find(name).map(as_provider)
    }
}

fn as_provider(model: Arc<dyn ModelClient>) -> Arc<dyn Provider> {
    model
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RegistryInner {
    async fn discover_servers(&self) -> Vec<DiscoveredServer> {
        let DiscoverOptions { providers, timeout } = &self.options.discover;
        let base_urls: Vec<_> =
            providers.iter().filter_map(|name| Some((*name, self.provider_base_url(name)?))).collect();
        let found = discover(&base_urls, *timeout).await;
        lock(&self.discovered).clone_from(&found);
        found
    }

    /// Resolves the default model, with discovery if nothing of higher precedence exists.
    async fn resolve_default(&self) -> Option<Arc<dyn ModelClient>> {
        let is_known = self.options.default_model.is_some()
            || self.choose_by_key().is_some()
            || self.choose_discovered().is_some();
        if !is_known {
            self.discover_servers().await;
        }
        self.choose_default()
    }

    /// Chooses the default model: the configured one, else the first provider with a key, else a discovered server,
    /// else the embedded model.
    fn choose_default(&self) -> Option<Arc<dyn ModelClient>> {
        if let Some(name) = &self.options.default_model {
            return self.find(name).ok();
        }
        self.choose_by_key().or_else(|| self.choose_discovered()).or_else(|| {
            let first = self.options.local.as_ref()?.files.list().into_iter().next()?;
            self.find(&format!("{LOCAL}/{first}")).ok()
        })
    }

    fn choose_by_key(&self) -> Option<Arc<dyn ModelClient>> {
        let keyed =
            PROVIDERS.iter().filter(|known| known.site == Site::Cloud && !known.default_model.is_empty());
        let has_key = |name: &str| self.options.variables.contains_key(name);
        let mut keyed = keyed.filter(|known| known.key_variables.iter().any(|name| has_key(name)));
        keyed.find_map(|known| self.find(known.name).ok())
    }

    fn choose_discovered(&self) -> Option<Arc<dyn ModelClient>> {
        let names: Vec<String> = lock(&self.discovered)
            .iter()
            .filter_map(|found| Some(format!("{}/{}", found.provider, found.first_chat_model()?.name)))
            .collect();
        names.iter().find_map(|name| self.find(name).ok())
    }

    /// Builds a model with its fallbacks.
    fn find(&self, name: &str) -> Result<Arc<dyn ModelClient>, Fault> {
        let first = self.find_without_fallback(name)?;
        let settings = self.resolved_settings(name).map_err(|why| unknown_model_fault(name, &why))?;
        let own = settings.as_ref().and_then(|model| model.fallback.as_ref());
        let fallbacks: Vec<Arc<dyn ModelClient>> = own
            .unwrap_or(&self.options.fallback)
            .iter()
            .filter(|other| *other != name)
            .filter_map(|other| {
                let found = self.find_without_fallback(other);
                found.inspect_err(|fault| tracing::warn!("fallback of {name} skipped: {fault}")).ok()
            })
            .collect();
        if fallbacks.is_empty() { Ok(first) } else { Ok(Arc::new(ModelWithFallbacks::new(first, fallbacks))) }
    }

    fn find_without_fallback(&self, name: &str) -> Result<Arc<dyn ModelClient>, Fault> {
        if let Some(settings) = self.resolved_settings(name).map_err(|why| unknown_model_fault(name, &why))? {
            let split = self.split_name(&settings.model);
            let (provider, model) = split.map_err(|why| {
                unknown_model_fault(name, &format!("it is an alias of {:?}: {why}", settings.model))
            })?;
            return self
                .build(name, &provider, &model, &settings)
                .map_err(|why| unknown_model_fault(name, &why));
        }
        let (provider, model) = self.split_name(name).map_err(|why| unknown_model_fault(name, &why))?;
        let full_name = format!("{provider}/{model}");
        self.build(&full_name, &provider, &model, &ModelSettings::default())
            .map_err(|why| unknown_model_fault(name, &why))
    }

    /// Checks that a name is valid and its provider known. Does not require a key or weights, which may be added later.
    fn check_name(&self, name: &str) -> Result<(), String> {
        let settings = self.resolved_settings(name)?;
        let target = settings.as_ref().map_or(name, |settings| &settings.model);
        // The default model of a provider may be known only after discovery.
        if !target.contains('/') && self.check_provider(target).is_ok() {
            return Ok(());
        }
        let (provider, _) = self.split_name(target)?;
        self.check_provider(&provider)
    }

    /// Returns the settings of an alias, merged over those of the aliases it refers to.
    fn resolved_settings(&self, name: &str) -> Result<Option<ModelSettings>, String> {
        let Some(own) = self.options.models.get(name) else { return Ok(None) };
        let (mut settings, mut names) = (own.clone(), vec![name.to_owned()]);
        while let Some(next) = self.options.models.get(&settings.model) {
            names.push(settings.model.clone());
            if names[..names.len() - 1].contains(&settings.model) {
                return Err(format!("its alias refers to itself: {}", names.join(" -> ")));
            }
            settings = settings.merged_over(next);
        }
        Ok(Some(settings))
    }

    /// Splits a name into provider and model; a bare provider name stands for its default model.
    fn split_name(&self, name: &str) -> Result<(String, String), String> {
        let format_error = || format!("the name must be PROVIDER/NAME, {NAME_EXAMPLE}");
        if let Some((provider, model)) = name.split_once('/') {
            let is_name = is_model_name(model);
            return if is_name { Ok((provider.to_owned(), model.to_owned())) } else { Err(format_error()) };
        }
        if name == LOCAL {
            let local = self.options.local.as_ref().ok_or(NO_LOCAL_ENGINE)?;
            let first = local.files.list().into_iter().next().ok_or(NO_WEIGHTS)?;
            return Ok((LOCAL.to_owned(), first));
        }
        let settings = self.options.providers.get(name);
        let kind = settings.and_then(|settings| settings.kind.as_deref()).unwrap_or(name);
        let Some(known) = known_provider(kind) else { return Err(format_error()) };
        let found = lock(&self.discovered).iter().find(|found| found.provider == name).cloned();
        let found = found.and_then(|found| Some(found.first_chat_model()?.name.clone()));
        let default = Some(known.default_model).filter(|model| !model.is_empty()).map(str::to_owned);
        match default.or(found) {
            Some(model) => Ok((name.to_owned(), model)),
            None => Err(format!("{name} has no default model; name one, as in {name}/MODEL")),
        }
    }
}

/// Advice when the registry has no options of the embedded model.
pub const NO_LOCAL_ENGINE: &str = "this build of nexus3 has no local engine; use a provider or a model server, or build \
                                   nexus3 with the feature `local`";

/// Advice when no embedded model is installed.
const NO_WEIGHTS: &str =
    "no embedded model is installed; get one with: nexus3 models pull smollm2-135m --yes";

fn unknown_model_fault(name: &str, why: &str) -> Fault {
    Fault::new(FaultKind::Invalid, format!("Unknown model '{}': {why}", truncated_name(name)))
}
