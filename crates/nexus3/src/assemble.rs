//! Builds the agent pool and its dependencies (store, models, tools, workspace, clock) from the configuration: for the
//! daemon, and for commands that open the store without one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agent::KnownSecrets;
use agent::outside::{Clock, Models, Store, ToolSet, Toolbox};
use agent::permission::FilePath;
use runtime::{Outside, PoolHandle, PoolOptions};
use store::{Maintenance, OpenFault, SqliteOptions, StoreOptions};
use tools::{CommandRunner, LocalWorkspace, NetworkClient, ToolDependencies, ToolRegistry};

use crate::Failure;
use crate::commands::command_runner;
use crate::config::Config;
use crate::home::{self, Environment};
use crate::model_registry::ModelSource;
use crate::process::{self, CLOCK_FILE_VARIABLE, FAILPOINTS_VARIABLE, SystemEntropy};
use crate::secrets::{self, ConfiguredSecrets};

/// Name of the store's file in the home.
const STORE_FILE: &str = "nexus3.db";

/// Path of the home's store.
pub(crate) fn store_path(home: &Path) -> PathBuf {
    home.join(STORE_FILE)
}

/// Opens the home's store and locks it for this process.
pub(crate) fn open_store(
    home: &Path,
    config: &Config,
    environment: &Environment,
) -> Result<Arc<dyn Store>, Failure> {
    let failpoints = if cfg!(debug_assertions) {
        home::environment_variable(environment, FAILPOINTS_VARIABLE)?
    } else {
        None
    };
    let options =
        SqliteOptions { path: store_path(home), durability: config.room_options().durability, failpoints };
    store::open(&StoreOptions::Sqlite(options)).map_err(|fault| match fault {
        OpenFault::Locked(why) => Failure::StoreLocked(why),
        OpenFault::Refused(why) => Failure::Run(why),
    })
}

/// Returns the maintenance of the store in a file.
pub(crate) fn store_maintenance(path: &Path) -> Result<Box<dyn Maintenance>, Failure> {
    store::maintenance(&StoreOptions::sqlite(path)).map_err(|fault| Failure::Run(fault.to_string()))
}

/// Everything a pool needs except its store, so that configuration errors show before the store is opened.
pub(crate) struct Assembly {
    options: PoolOptions,
    models: ModelSource,
    tools: Arc<ToolRegistry>,
    commands: Arc<CommandRunner>,
    network: Arc<NetworkClient>,
    workspace: Arc<LocalWorkspace>,
    clock: Arc<dyn Clock>,
    entropy: Arc<SystemEntropy>,
}

impl Assembly {
    pub(crate) async fn prepare(
        home: &Path,
        config: &Config,
        environment: &Environment,
    ) -> Result<Self, Failure> {
        let known_secrets = Arc::new(KnownSecrets::default());
        let secrets = secrets::read(config, environment, &known_secrets).await?;
        let models = ModelSource::open(home, config, environment, Arc::clone(&known_secrets))?;
        let user_home = home::user_home(environment).and_then(|path| parse_file_path(&path).ok());
        let home_path = parse_file_path(&std::fs::canonicalize(home).unwrap_or_else(|_| home.to_owned()))?;
        let workspace = LocalWorkspace::new(user_home).with_owner_notes(home_path);
        let workspace = Arc::new(workspace.with_entropy(Arc::new(SystemEntropy)));
        let clock_file = if cfg!(debug_assertions) {
            home::environment_variable(environment, CLOCK_FILE_VARIABLE)?
        } else {
            None
        };
        let (clock, entropy) = (process::open_clock(clock_file), Arc::new(SystemEntropy));
        let commands = Arc::new(command_runner(config, environment));
        let network = Arc::new(NetworkClient::default());
        let dependencies = ToolDependencies {
            clock: clock.clone(),
            entropy: entropy.clone(),
            commands: Arc::clone(&commands),
            network: Arc::clone(&network),
        };
        let tools = Arc::new(tool_registry(config, dependencies, &secrets)?);
        let options =
            PoolOptions { known_secrets, ..pool_options(config, home, &workspace, &tools.snapshot())? };
        Ok(Self { options, models, tools, commands, network, workspace, clock, entropy })
    }

    /// Adds a secret that tool results must not show.
    pub(crate) fn add_known_secret(&self, value: &str) {
        self.options.known_secrets.add_permanent(value);
    }

    /// The runner of commands, to test its sandbox.
    pub(crate) fn commands(&self) -> Arc<CommandRunner> {
        Arc::clone(&self.commands)
    }

    /// Forbids tools to connect to the daemon itself.
    pub(crate) fn set_own_port(&self, port: u16) {
        self.network.set_own_port(port);
    }

    /// Opens the pool. It loads only agents with turns that a crash interrupted, and resumes or marks those turns.
    pub(crate) async fn open(self, store: Arc<dyn Store>) -> Result<PoolHandle, Failure> {
        let Self { options, models, tools, commands: _, network: _, workspace, clock, entropy } = self;
        let models: Arc<dyn Models> = models.into_models().await?;
        let outside = Outside { models, tools, workspace, clock, entropy, store };
        PoolHandle::open(options, outside).await.map_err(|fault| {
            let why = fault.cause.as_deref().unwrap_or(&fault.public);
            Failure::Run(format!("cannot load the stored agents: {why}; run nexus3 check"))
        })
    }
}

/// Builds the built-in tools and the custom ones of the configuration.
pub(crate) fn tool_registry(
    config: &Config,
    dependencies: ToolDependencies,
    secrets: &ConfiguredSecrets,
) -> Result<ToolRegistry, Failure> {
    let commands = Arc::clone(&dependencies.commands);
    let registry = ToolRegistry::new(dependencies);
    for tool in config.custom_tools().map_err(|fault| Failure::Usage(fault.to_string()))? {
        let built = tool.build(Arc::clone(&commands), secrets);
        registry.add(built).map_err(|taken| Failure::Usage(format!("custom_tools: {taken}")))?;
    }
    Ok(registry)
}

fn pool_options(
    config: &Config,
    home: &Path,
    workspace: &LocalWorkspace,
    tools: &ToolSet,
) -> Result<PoolOptions, Failure> {
    let blocked = blocked_paths(home)?;
    let cwd = std::env::current_dir()
        .map_err(|fault| Failure::Run(format!("cannot read the working directory: {fault}")))?;
    let rooms = config.room_options();
    Ok(PoolOptions {
        limits: rooms.runtime_limits,
        system_prompt_default: None,
        context: rooms.context,
        presets: config
            .presets(&blocked, workspace, tools)
            .map_err(|fault| Failure::Usage(fault.to_string()))?,
        preset_default: rooms.default_preset.to_owned(),
        cwd: parse_file_path(&cwd)?,
        on_restart_default: rooms.on_restart,
        approval_default: rooms.approval_default,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..PoolOptions::default()
    })
}

/// The paths that are closed to all agents: the daemon's token, store and configuration.
pub(crate) fn blocked_paths(home: &Path) -> Result<[FilePath; 1], Failure> {
    Ok([parse_file_path(&std::fs::canonicalize(home).unwrap_or_else(|_| home.to_owned()))?])
}

pub(crate) fn parse_file_path(path: &Path) -> Result<FilePath, Failure> {
    let text = path
        .to_str()
        .ok_or_else(|| Failure::Run(format!("cannot use the path {}: it is not UTF-8", path.display())))?;
    FilePath::resolve(text, &FilePath::root())
        .map_err(|fault| Failure::Run(format!("cannot use the path {text}: {fault}")))
}
