//! The embedded model server: how the daemon starts it as a child process, and which downloaded models it can serve.

use std::fs::DirBuilder;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agent::TokenCount;
use local::generation::{EngineKind, LoadFault};
use local::token_counter::GgufTokenCounter;
use provider::{LocalFiles, LocalOptions, TokenCounter};
use weights::{ModelDirectory, ModelEntry, ModelKind};

use super::LocalEngine;
use crate::{Failure, models};

/// Idle timeout of the embedded model server.
const LOCAL_IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// Timeout for the embedded model server to start listening; it loads the weights later.
const LOCAL_START_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum length of a Unix socket's path on Linux.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Length of a socket's file name, with the slash before it.
const SOCKET_NAME_BYTES: usize = "/model-0123456789abcdef.sock".len();

impl LocalEngine {
    pub(super) fn kind(self) -> EngineKind {
        match self {
            Self::Own => EngineKind::Native,
            Self::LlamaCpp => EngineKind::LlamaCpp,
        }
    }

    /// The engine's name on the command line and in the configuration.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::LlamaCpp => "llama-cpp",
        }
    }

    /// Fails when the engine is not part of this build.
    pub(super) fn check(self) -> Result<(), LoadFault> {
        if self.kind().is_built() { Ok(()) } else { Err(LoadFault::EngineNotBuilt) }
    }
}

/// Options of the embedded model server, which runs as a child process of this program.
pub(crate) fn options(home: &Path, engine: LocalEngine) -> Result<Option<LocalOptions>, Failure> {
    engine.check().map_err(|why| Failure::Usage(format!("local_engine: {why}")))?;
    let program = std::env::current_exe()
        .map_err(|fault| Failure::Run(format!("cannot find the path of this program: {fault}")))?;
    Ok(Some(LocalOptions {
        program,
        // The child gets no environment, so it cannot find the home by itself.
        args: ["--home", &home.display().to_string(), "model-server", "--engine", engine.name()]
            .map(str::to_owned)
            .to_vec(),
        socket_dir: socket_dir(home)?,
        idle: LOCAL_IDLE_TIMEOUT,
        start_timeout: LOCAL_START_TIMEOUT,
        files: Arc::new(InstalledModels::in_home(home)),
        counter: open_token_counter,
    }))
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
