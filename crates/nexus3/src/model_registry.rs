//! Builds the model registry from the configuration, the environment and the downloaded models.

use std::collections::HashMap;
use std::fs::DirBuilder;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent::outside::Models;
use agent::{Fault, TokenCount};
use local::generation::{EngineKind, LoadFault};
use local::token_counter::GgufTokenCounter;
use provider::catalog::PROVIDERS;
use provider::{
    DiscoveredServer, LocalFiles, LocalOptions, ModelRegistry, RecordingModels, RegistryOptions,
    ReplayModels, Secret, TokenCounter,
};
use weights::{ModelDirectory, ModelEntry, ModelKind};

use crate::config::Config;
use crate::home::{Environment, environment_variable};
use crate::model_server::engine_name;
use crate::models::{self, ServerRow};
use crate::{Failure, console_runtime};

/// Idle timeout of the embedded model server.
const LOCAL_IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// Timeout for the embedded model server to start listening; it loads the weights later.
const LOCAL_START_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum length of a Unix socket's path on Linux.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Length of a socket's file name, with the slash before it.
const SOCKET_NAME_BYTES: usize = "/model-0123456789abcdef.sock".len();

/// Source of model responses.
pub(crate) enum ModelSource {
    /// Real models, and the file to record their exchanges to.
    Registry { registry: ModelRegistry, record: Option<PathBuf> },
    /// A recording to replay.
    Replay(ReplayModels),
}

impl ModelSource {
    /// Validates the configuration of the models. Calls no model and writes no file.
    pub(crate) fn open(home: &Path, config: &Config, environment: &Environment) -> Result<Self, Failure> {
        let rooms = config.room_options();
        if let Some(path) = rooms.replay {
            return ReplayModels::open(Path::new(path)).map(Self::Replay).map_err(usage_failure);
        }
        let registry = open_registry(home, config, environment)?;
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
) -> Result<ModelRegistry, Failure> {
    let rooms = config.room_options();
    let options = RegistryOptions {
        default_model: rooms.model.map(str::to_owned),
        fallback: rooms.fallback.to_vec(),
        providers: config.provider_settings(),
        models: config.model_settings(),
        variables: provider_variables(config, environment)?,
        local: Some(local_options(home, rooms.local_engine)?),
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

/// Options of the embedded model server, which runs as a child process of this program.
fn local_options(home: &Path, engine: EngineKind) -> Result<LocalOptions, Failure> {
    if !engine.is_built() {
        return Err(Failure::Usage(format!("local_engine: {}", LoadFault::EngineNotBuilt)));
    }
    let program = std::env::current_exe()
        .map_err(|fault| Failure::Run(format!("cannot find the path of this program: {fault}")))?;
    Ok(LocalOptions {
        program,
        // The child gets no environment, so it cannot find the home by itself.
        args: ["--home", &home.display().to_string(), "model-server", "--engine", engine_name(engine)]
            .map(str::to_owned)
            .to_vec(),
        socket_dir: socket_dir(home)?,
        idle: LOCAL_IDLE_TIMEOUT,
        start_timeout: LOCAL_START_TIMEOUT,
        files: Arc::new(InstalledModels::in_home(home)),
        counter: open_token_counter,
    })
}

/// Directory for sockets: the home or, when its path is too long, a private directory in the system's temporary one.
fn socket_dir(home: &Path) -> Result<PathBuf, Failure> {
    let fits = |directory: &Path| directory.as_os_str().len() + SOCKET_NAME_BYTES <= SOCKET_PATH_BYTES_MAX;
    if fits(home) {
        return Ok(home.to_owned());
    }
    let user = rustix::process::geteuid().as_raw();
    let mut hasher = DefaultHasher::new();
    std::path::absolute(home).unwrap_or_else(|_| home.to_owned()).hash(&mut hasher);
    let directory = std::env::temp_dir().join(format!("nexus3-{user}-{:016x}", hasher.finish()));
    let failure = |why: &str| {
        let (home, directory) = (home.display(), directory.display());
        Failure::Run(format!(
            "cannot create a socket: the path of {home} is too long, and {directory} {why}; choose a home with a \
             shorter path"
        ))
    };
    if !fits(&directory) {
        return Err(failure("is too long as well"));
    }
    match DirBuilder::new().mode(0o700).create(&directory) {
        Err(fault) if fault.kind() != ErrorKind::AlreadyExists => {
            return Err(failure(&format!("cannot be created ({fault})")));
        }
        _ => {}
    }
    // Another user may have created the directory first.
    let metadata = std::fs::symlink_metadata(&directory)
        .map_err(|fault| failure(&format!("cannot be read ({fault})")))?;
    if !metadata.is_dir() || metadata.uid() != user || metadata.mode() & 0o077 != 0 {
        return Err(failure("belongs to another user or is accessible to others"));
    }
    Ok(directory)
}

/// Opens a token counter with the tokenizer of a local model.
fn open_token_counter(file: &Path) -> Result<TokenCounter, String> {
    let counter = GgufTokenCounter::open(file).map_err(|fault| fault.to_string())?;
    Ok(Box::new(move |text| counter.count_tokens(text) as TokenCount))
}

/// The downloaded models of a home.
#[derive(Debug)]
struct InstalledModels {
    model_directory: ModelDirectory,
}

impl InstalledModels {
    fn in_home(home: &Path) -> Self {
        Self { model_directory: ModelDirectory::at(&models::models_directory(home)) }
    }
}

impl LocalFiles for InstalledModels {
    fn find(&self, id: &str) -> Option<PathBuf> {
        let installed = self.model_directory.find(&id.parse().ok()?)?;
        (installed.kind == ModelKind::Chat).then_some(installed.path)
    }

    /// Lists the chat models, largest first: a user who downloaded a larger model wants to use it.
    fn list(&self) -> Vec<String> {
        let chat_model = |entry| match entry {
            ModelEntry::Ready(model) if model.kind == ModelKind::Chat => Some((model.bytes, model.id)),
            _ => None,
        };
        let mut models: Vec<_> =
            self.model_directory.list().unwrap_or_default().into_iter().filter_map(chat_model).collect();
        models.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        models.into_iter().map(|(_, id)| id.to_string()).collect()
    }
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
