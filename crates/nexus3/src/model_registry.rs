//! Which models there are: puts the book of models together from the configuration and the environment.

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

/// How long the embedded model stays without a question.
const LOCAL_IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// How long it may take until it answers at all; its weights are read later.
const LOCAL_START_TIMEOUT: Duration = Duration::from_secs(30);

/// What the system takes for the path of a socket, and what its name takes of it with the stroke before it.
const SOCKET_PATH_BYTES_MAX: usize = 107;
const SOCKET_NAME_BYTES: usize = "/model-0123456789abcdef.sock".len();

/// Where answers come from.
pub(crate) enum ModelSource {
    /// Models, and the file that keeps what they say.
    Registry { registry: ModelRegistry, record: Option<PathBuf> },
    /// A recording.
    Replay(ReplayModels),
}

impl ModelSource {
    /// What can be wrong with it is known here; nothing is asked and nothing is written.
    pub(crate) fn open(home: &Path, config: &Config, environment: &Environment) -> Result<Self, Failure> {
        if let Some(path) = &config.replay {
            return ReplayModels::open(Path::new(path)).map(Self::Replay).map_err(usage_failure);
        }
        let book = open_registry(home, config, environment)?;
        Ok(Self::Registry { registry: book, record: config.record.as_ref().map(PathBuf::from) })
    }

    /// Where no model is chosen and no key is set, one that runs on this machine is taken; it is looked for once, before
    /// the first agent.
    pub(crate) async fn into_models(self) -> Result<Arc<dyn Models>, Failure> {
        let (book, record) = match self {
            Self::Replay(models) => return Ok(Arc::new(models)),
            Self::Registry { registry: book, record } => (book, record),
        };
        book.resolve_default().await;
        let Some(path) = record else { return Ok(Arc::new(book)) };
        let recorded = RecordingModels::create(Arc::new(book), &path).map_err(usage_failure)?;
        Ok(Arc::new(recorded))
    }
}

/// All models by name, from the configuration, the environment and the weights in the home.
pub(crate) fn open_registry(
    home: &Path,
    config: &Config,
    environment: &Environment,
) -> Result<ModelRegistry, Failure> {
    let options = RegistryOptions {
        default_model: config.model.clone(),
        fallback: config.fallback.clone(),
        providers: config.provider_settings(),
        models: config.model_settings(),
        variables: provider_variables(config, environment)?,
        local: Some(local_options(home, config.local_engine)?),
        ..RegistryOptions::default()
    };
    ModelRegistry::open(options).map_err(usage_failure)
}

fn usage_failure(fault: Fault) -> Failure {
    Failure::Usage(fault.public.into_owned())
}

/// The variables that providers are known by; nothing else of the environment is handed on.
fn provider_variables(
    config: &Config,
    environment: &Environment,
) -> Result<HashMap<String, Secret>, Failure> {
    let known =
        PROVIDERS.iter().flat_map(|known| known.key_variables.iter().chain([&known.base_url_variable]));
    let own = config.provider_settings().into_values().filter_map(|provider| provider.key_env);
    let names = known.map(|name| (*name).to_owned()).chain(own).filter(|name| !name.is_empty());
    let mut found = HashMap::new();
    for name in names.collect::<Vec<_>>() {
        if let Some(value) = environment_variable(environment, &name)? {
            found.insert(name, Secret::new(value));
        }
    }
    Ok(found)
}

/// The embedded model runs in a child of this very program.
fn local_options(home: &Path, engine: EngineKind) -> Result<LocalOptions, Failure> {
    if !engine.is_built() {
        return Err(Failure::Usage(format!("local_engine: {}", LoadFault::EngineNotBuilt)));
    }
    let program = std::env::current_exe()
        .map_err(|fault| Failure::Run(format!("cannot find the program itself: {fault}")))?;
    Ok(LocalOptions {
        program,
        // It gets no environment to find a home in.
        args: ["--home", &home.display().to_string(), "model-server", "--engine", engine_name(engine)]
            .map(str::to_owned)
            .to_vec(),
        socket_dir: socket_dir(home)?,
        idle: LOCAL_IDLE_TIMEOUT,
        start_timeout: LOCAL_START_TIMEOUT,
        files: Arc::new(InstalledWeights::in_home(home)),
        counter: open_token_counter,
    })
}

/// Where sockets can be: in the home, or in a folder of our own beside other programs' when its path is too long for that.
fn socket_dir(home: &Path) -> Result<PathBuf, Failure> {
    let fits = |folder: &Path| folder.as_os_str().len() + SOCKET_NAME_BYTES <= SOCKET_PATH_BYTES_MAX;
    if fits(home) {
        return Ok(home.to_owned());
    }
    let user = rustix::process::geteuid().as_raw();
    let mut hasher = DefaultHasher::new();
    std::path::absolute(home).unwrap_or_else(|_| home.to_owned()).hash(&mut hasher);
    let folder = std::env::temp_dir().join(format!("nexus3-{user}-{:016x}", hasher.finish()));
    let unfit = |why: &str| {
        let (home, folder) = (home.display(), folder.display());
        Failure::Run(format!(
            "the path of {home} is too long for sockets, and {folder} {why}; choose a shorter home"
        ))
    };
    if !fits(&folder) {
        return Err(unfit("is too"));
    }
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(fault) if fault.kind() != ErrorKind::AlreadyExists => {
            return Err(unfit(&format!("cannot be made ({fault})")));
        }
        _ => {}
    }
    // Somebody else may have been there first.
    let found = std::fs::symlink_metadata(&folder).map_err(|fault| unfit(&fault.to_string()))?;
    if !found.is_dir() || found.uid() != user || found.mode() & 0o077 != 0 {
        return Err(unfit("belongs to somebody else, or is open to others"));
    }
    Ok(folder)
}

/// The embedded model counts by its own tokenizer, here too.
fn open_token_counter(file: &Path) -> Result<TokenCounter, String> {
    let counter = GgufTokenCounter::open(file).map_err(|fault| fault.to_string())?;
    Ok(Box::new(move |text| counter.count_tokens(text) as TokenCount))
}

/// The weights in a home.
#[derive(Debug)]
struct InstalledWeights {
    model_directory: ModelDirectory,
}

impl InstalledWeights {
    fn in_home(home: &Path) -> Self {
        Self { model_directory: ModelDirectory::at(&models::models_directory(home)) }
    }
}

impl LocalFiles for InstalledWeights {
    fn find(&self, id: &str) -> Option<PathBuf> {
        let pulled = self.model_directory.find(&id.parse().ok()?)?;
        (pulled.kind == ModelKind::Chat).then_some(pulled.path)
    }

    /// Whoever pulled a larger one wants it.
    fn list(&self) -> Vec<String> {
        let ready = |shelved| match shelved {
            ModelEntry::Ready(pulled) if pulled.kind == ModelKind::Chat => Some((pulled.bytes, pulled.id)),
            _ => None,
        };
        let mut found: Vec<_> =
            self.model_directory.list().unwrap_or_default().into_iter().filter_map(ready).collect();
        found.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        found.into_iter().map(|(_, id)| id.to_string()).collect()
    }
}

/// The models of servers that were found on this machine, each with where it is.
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
    let book = ModelRegistry::open(options).map_err(usage_failure)?;
    let found = runtime.block_on(book.discover_servers());
    let named = |found: DiscoveredServer| {
        let DiscoveredServer { provider, base_url, models } = found;
        models.into_iter().map(move |model| (format!("{provider}/{}", model.name), base_url.clone()))
    };
    Ok(found.into_iter().flat_map(named).collect())
}
