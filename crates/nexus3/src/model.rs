//! Which models there are: puts the book of models together from the configuration and the environment.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use provider::catalog::PROVIDERS;
use provider::{BookOptions, DiscoverOptions, Found, LocalFiles, LocalOptions, ModelBook, Secret, discover};
use weights::{Kind, Shelf, Shelved};

use crate::config::Config;
use crate::home::{Environment, variable};
use crate::models::{self, FoundServer};
use crate::{Failure, console_runtime};

/// How long the embedded model stays without a question.
const LOCAL_IDLE: Duration = Duration::from_secs(300);

/// How long it may take until it answers at all; its weights are read later.
const LOCAL_START: Duration = Duration::from_secs(30);

/// The models of a daemon.
pub(crate) fn open(
    home: &Path,
    config: &Config,
    environment: &Environment,
    files: Arc<dyn LocalFiles>,
) -> Result<ModelBook, Failure> {
    let options = BookOptions {
        usual: config.model.clone(),
        fallback: config.fallback.clone(),
        providers: config.providers(),
        models: config.models(),
        variables: variables(config, environment)?,
        local: local(home, files)?,
        ..BookOptions::default()
    };
    ModelBook::open(options).map_err(|fault| Failure::Usage(fault.to_string()))
}

/// The variables that providers are known by; nothing else of the environment is handed on.
fn variables(config: &Config, environment: &Environment) -> Result<HashMap<String, Secret>, Failure> {
    let known =
        PROVIDERS.iter().flat_map(|known| known.key_variables.iter().chain([&known.base_url_variable]));
    let own = config.providers().into_values().filter_map(|provider| provider.key_env);
    let names = known.map(|name| (*name).to_owned()).chain(own).filter(|name| !name.is_empty());
    let mut found = HashMap::new();
    for name in names.collect::<Vec<_>>() {
        if let Some(value) = variable(environment, &name)? {
            found.insert(name, Secret::new(value));
        }
    }
    Ok(found)
}

/// The embedded model runs in a child of this very program.
fn local(home: &Path, files: Arc<dyn LocalFiles>) -> Result<Option<LocalOptions>, Failure> {
    let program = std::env::current_exe()
        .map_err(|fault| Failure::Run(format!("cannot find the program itself: {fault}")))?;
    Ok(Some(LocalOptions {
        program,
        args: vec!["model-server".to_owned()],
        socket_dir: home.to_owned(),
        idle: LOCAL_IDLE,
        start_timeout: LOCAL_START,
        files,
    }))
}

/// The weights in a home.
#[derive(Debug)]
pub(crate) struct WeightsHere {
    shelf: Shelf,
}

impl WeightsHere {
    pub(crate) fn in_home(home: &Path) -> Arc<Self> {
        Arc::new(Self { shelf: Shelf::at(&models::folder(home)) })
    }
}

impl LocalFiles for WeightsHere {
    fn find(&self, id: &str) -> Option<PathBuf> {
        let pulled = self.shelf.find(&id.parse().ok()?)?;
        (pulled.kind == Kind::Chat).then_some(pulled.path)
    }

    /// Whoever pulled a larger one wants it.
    fn all(&self) -> Vec<String> {
        let ready = |shelved| match shelved {
            Shelved::Ready(pulled) if pulled.kind == Kind::Chat => Some((pulled.bytes, pulled.id)),
            _ => None,
        };
        let mut found: Vec<_> = self.shelf.list().unwrap_or_default().into_iter().filter_map(ready).collect();
        found.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        found.into_iter().map(|(_, id)| id.to_string()).collect()
    }
}

/// The models of servers that were found on this machine, each with where it is.
pub(crate) fn found_servers() -> Vec<FoundServer> {
    let Ok(runtime) = console_runtime() else { return Vec::new() };
    let found = runtime.block_on(discover(&DiscoverOptions::default()));
    let named = |found: Found| {
        let Found { provider, base_url, models } = found;
        models.into_iter().map(move |model| (format!("{provider}/{}", model.name), base_url.clone()))
    };
    found.into_iter().flat_map(named).collect()
}
