//! Builds the model registry from the configuration, the environment and the downloaded models.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent::outside::Models;
use agent::{Fault, KnownSecrets};
use provider::catalog::PROVIDERS;
use provider::{DiscoveredServer, ModelRegistry, RecordingModels, RegistryOptions, ReplayModels, Secret};

use crate::config::Config;
use crate::home::{Environment, environment_variable};
use crate::models::ServerRow;
use crate::{Failure, console_runtime, local_engine};

/// Source of model responses.
pub(crate) enum ModelSource {
    /// Real models, and the file to record their exchanges to.
    Registry { registry: ModelRegistry, record: Option<PathBuf> },
    /// A recording to replay.
    Replay(ReplayModels),
}

impl ModelSource {
    /// Validates the configuration of the models. Calls no model and writes no file.
    pub(crate) fn open(
        home: &Path,
        config: &Config,
        environment: &Environment,
        known_secrets: Arc<KnownSecrets>,
    ) -> Result<Self, Failure> {
        let rooms = config.room_options();
        if let Some(path) = rooms.replay {
            return ReplayModels::open(Path::new(path)).map(Self::Replay).map_err(usage_failure);
        }
        let registry = open_registry(home, config, environment, known_secrets)?;
        Ok(Self::Registry { registry, record: rooms.record.map(PathBuf::from) })
    }

    /// Resolves the default model, once, before the first agent, and returns the models. Without a configured model and
    /// an API key, the default is a model that runs on this machine.
    pub(crate) async fn into_models(self) -> Result<Arc<dyn Models>, Failure> {
        let (registry, record) = match self {
            Self::Replay(models) => return Ok(Arc::new(models)),
            Self::Registry { registry, record } => (registry, record),
        };
        registry.resolve_default().await;
        let Some(path) = record else { return Ok(Arc::new(registry)) };
        let recording = RecordingModels::create(Arc::new(registry), &path).map_err(usage_failure)?;
        Ok(Arc::new(recording))
    }
}

/// Opens the registry of all models: from the configuration, the environment and the home's downloaded models.
pub(crate) fn open_registry(
    home: &Path,
    config: &Config,
    environment: &Environment,
    known_secrets: Arc<KnownSecrets>,
) -> Result<ModelRegistry, Failure> {
    let rooms = config.room_options();
    let options = RegistryOptions {
        default_model: rooms.model.map(str::to_owned),
        fallback: rooms.fallback.to_vec(),
        providers: config.provider_settings(),
        models: config.model_settings(),
        variables: provider_variables(config, environment)?,
        known_secrets,
        local: local_engine::options(home, rooms.local_engine)?,
        ..RegistryOptions::default()
    };
    ModelRegistry::open(options).map_err(usage_failure)
}

fn usage_failure(fault: Fault) -> Failure {
    Failure::Usage(fault.public.into_owned())
}

/// Collects the providers' environment variables. The registry gets no other part of the environment.
fn provider_variables(
    config: &Config,
    environment: &Environment,
) -> Result<HashMap<String, Secret>, Failure> {
    let known =
        PROVIDERS.iter().flat_map(|known| known.key_variables.iter().chain([&known.base_url_variable]));
    let configured = config.provider_settings().into_values().filter_map(|provider| provider.key_env);
    let names = known.map(|name| (*name).to_owned()).chain(configured).filter(|name| !name.is_empty());
    let mut variables = HashMap::new();
    for name in names.collect::<Vec<_>>() {
        if let Some(value) = environment_variable(environment, &name)? {
            variables.insert(name, Secret::new(value));
        }
    }
    Ok(variables)
}

/// Lists the models of the model servers on this machine, each with its server's URL.
pub(crate) fn discover_servers(
    config: &Config,
    environment: &Environment,
) -> Result<Vec<ServerRow>, Failure> {
    let Ok(runtime) = console_runtime() else { return Ok(Vec::new()) };
    let options = RegistryOptions {
        providers: config.provider_settings(),
        variables: provider_variables(config, environment)?,
        ..RegistryOptions::default()
    };
    let registry = ModelRegistry::open(options).map_err(usage_failure)?;
    let servers = runtime.block_on(registry.discover_servers());
    let rows = |server: DiscoveredServer| {
        let DiscoveredServer { provider, base_url, models } = server;
        models.into_iter().map(move |model| (format!("{provider}/{}", model.name), base_url.clone()))
    };
    Ok(servers.into_iter().flat_map(rows).collect())
}
