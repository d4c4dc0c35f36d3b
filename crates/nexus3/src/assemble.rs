//! Builds the agent pool and its dependencies (store, models, tools, workspace, clock) from the configuration: for the
//! daemon, and for commands that open the store without one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent::outside::{Clock, Models, ToolSet, Toolbox};
use agent::permission::FilePath;
use runtime::{ContextOptions, DefaultPrompt, Outside, PoolHandle, PoolOptions, VolatileSuffix};
use store::{OpenFault, SqliteOptions, SqliteStore};
use tools::{LocalWorkspace, ToolDependencies, ToolRegistry};

use crate::Failure;
use crate::config::Config;
use crate::home::{self, Environment};
use crate::model_registry::ModelSource;
use crate::process::{self, CLOCK_FILE_VARIABLE, FAILPOINTS_VARIABLE, SystemEntropy};

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
) -> Result<Arc<SqliteStore>, Failure> {
    let failpoints = if cfg!(debug_assertions) {
        home::environment_variable(environment, FAILPOINTS_VARIABLE)?
    } else {
        None
    };
    let options = SqliteOptions { path: store_path(home), durability: config.durability, failpoints };
    store::open(&options).map_err(|fault| match fault {
        fault @ OpenFault::Locked { .. } => Failure::StoreLocked(fault.to_string()),
        fault => Failure::Run(fault.to_string()),
    })
}

/// Everything a pool needs except its store, so that configuration errors show before the store is opened.
pub(crate) struct Assembly {
    options: PoolOptions,
    models: ModelSource,
    tools: Arc<ToolRegistry>,
    workspace: Arc<LocalWorkspace>,
    clock: Arc<dyn Clock>,
    entropy: Arc<SystemEntropy>,
}

impl Assembly {
    pub(crate) fn prepare(home: &Path, config: &Config, environment: &Environment) -> Result<Self, Failure> {
        let models = ModelSource::open(home, config, environment)?;
        let user_home = home::user_home(environment).and_then(|path| parse_file_path(&path).ok());
        let home_path = parse_file_path(&std::fs::canonicalize(home).unwrap_or_else(|_| home.to_owned()))?;
        let workspace = Arc::new(LocalWorkspace::new(user_home).with_owner_notes(home_path));
        let clock_file = if cfg!(debug_assertions) {
            home::environment_variable(environment, CLOCK_FILE_VARIABLE)?
        } else {
            None
        };
        let (clock, entropy) = (process::open_clock(clock_file), Arc::new(SystemEntropy));
        let tools =
            Arc::new(ToolRegistry::new(ToolDependencies { clock: clock.clone(), entropy: entropy.clone() }));
        let options = pool_options(config, home, &workspace, &tools.snapshot())?;
        Ok(Self { options, models, tools, workspace, clock, entropy })
    }

    /// Opens the pool. It loads only agents with turns that a crash interrupted, and resumes or marks those turns.
    pub(crate) async fn open(self, store: Arc<SqliteStore>) -> Result<PoolHandle, Failure> {
        let Self { options, models, tools, workspace, clock, entropy } = self;
        let models: Arc<dyn Models> = models.into_models().await?;
        let outside = Outside { models, tools, workspace, clock, entropy, store };
        PoolHandle::open(options, outside)
            .await
            .map_err(|fault| Failure::Run(format!("cannot load the stored agents: {fault}")))
    }
}

fn pool_options(
    config: &Config,
    home: &Path,
    workspace: &LocalWorkspace,
    tools: &ToolSet,
) -> Result<PoolOptions, Failure> {
    // Agents must not read the daemon's token, store or configuration.
    let blocked = [parse_file_path(&std::fs::canonicalize(home).unwrap_or_else(|_| home.to_owned()))?];
    let cwd = std::env::current_dir()
        .map_err(|fault| Failure::Run(format!("cannot read the working directory: {fault}")))?;
    Ok(PoolOptions {
        limits: pool_limits(config),
        system_prompt_default: None,
        context: context_options(config),
        presets: config
            .presets(&blocked, workspace, tools)
            .map_err(|fault| Failure::Usage(fault.to_string()))?,
        preset_default: config.default_preset.clone(),
        cwd: parse_file_path(&cwd)?,
        on_restart_default: config.on_restart,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

fn context_options(config: &Config) -> ContextOptions {
    ContextOptions {
        prompt: if config.context.layers { DefaultPrompt::Layers } else { DefaultPrompt::Nothing },
        volatile_suffix: if config.context.tail { VolatileSuffix::On } else { VolatileSuffix::Off },
        operating_system: std::env::consts::OS,
    }
}

fn pool_limits(config: &Config) -> runtime::Limits {
    let limits = &config.limits;
    runtime::Limits {
        agents_max: limits.agents_max,
        live_agents_max: limits.live_agents_max,
        turns_running_max: limits.turns_running_max,
        turns_open_max: limits.turns_running_max + limits.turns_queued_max,
        agent_turns_open_max: limits.agent_queue_max + 1,
        tool_iterations_max: limits.tool_iterations_max.into(),
        model_idle_timeout: Duration::from_millis(limits.model_idle_ms),
        tools_running_max: limits.tools_running_max,
        tool_result_bytes_max: limits.tool_result_bytes_max,
        summary_timeout: Duration::from_millis(config.context.summary_ms),
        output_cache_bytes_max: config.context.results_bytes_max,
        idle_before_sleep: Duration::from_secs(config.idle_sleep_s),
        request_retention: Duration::from_secs(limits.request_retention_s),
    }
}

fn parse_file_path(path: &Path) -> Result<FilePath, Failure> {
    let text = path
        .to_str()
        .ok_or_else(|| Failure::Run(format!("cannot use the path {}: it is not UTF-8", path.display())))?;
    FilePath::resolve(text, &FilePath::root())
        .map_err(|fault| Failure::Run(format!("cannot use the path {text}: {fault}")))
}
