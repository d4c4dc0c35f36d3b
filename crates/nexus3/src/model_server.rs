//! `nexus3 model-server`: a local model behind OpenAI's protocol. The daemon starts one as its child when an agent first
//! asks a local model; a person can start one too.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use local::generation::{EngineKind, LoadFault};
use local::server::{Inspector, ModelListener, ServeOptions};
use tokio_util::sync::CancellationToken;
use weights::{ModelDirectory, ModelId};

use crate::config::Choice;
use crate::signals::StopSignals;
use crate::{Failure, models, process};

/// Serves a local model with OpenAI's protocol: /v1/chat/completions, /v1/embeddings, /v1/models and /health.
#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 stopped, 1 failed, 2 wrong usage.

The daemon starts this by itself for models named local/ID. The weights are read by the first request that needs them.

Examples:
  nexus3 model-server --model smollm2-135m --port 9000
  nexus3 model-server --model ./some.gguf --embedder minilm-l6-v2 --socket ./model.sock --idle-s 600")]
pub(crate) struct ModelServerArgs {
    /// The model that answers chats: a GGUF file, or the id of one that was pulled
    #[arg(long, value_name = "FILE|ID", required_unless_present = "embedder")]
    model: Option<String>,
    /// The model that makes embeddings: an ONNX file, or the id of one that was pulled
    #[arg(long, value_name = "FILE|ID")]
    embedder: Option<String>,
    /// What the chat model is called [default: its id, or its file's name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Listen on this port of 127.0.0.1; 0 takes any free one
    #[arg(short, long, value_name = "PORT", required_unless_present = "socket")]
    port: Option<u16>,
    /// Listen on a Unix socket instead
    #[arg(long, value_name = "PATH", conflicts_with = "port")]
    socket: Option<PathBuf>,
    /// What computes the chat model: own, or llama-cpp in a program that was built with it
    #[arg(long, value_name = "ENGINE", default_value = "own", value_parser = parse_engine)]
    engine: EngineKind,
    /// Threads that compute [default: one less than there are cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// The longest context in tokens [default: the model's own]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(256..))]
    window: Option<u32>,
    /// Requests that may wait
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u16).range(1..))]
    queue: u16,
    /// Stop after this many seconds without a request [default: never]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    idle_s: Option<u32>,
    /// Stop when standard input ends: so a child ends with whoever started it
    #[arg(long)]
    die_with_stdin: bool,
}

pub(crate) fn run(args: &ModelServerArgs, home: &Path) -> Result<u8, Failure> {
    tracing_subscriber::fmt().with_writer(io::stderr).with_max_level(tracing::Level::INFO).init();
    process::forbid_memory_dumps();
    let shelf = ModelDirectory::at(&models::models_directory(home));
    let find =
        |given: &Option<String>| given.as_deref().map(|given| resolve_weights(given, &shelf)).transpose();
    let options = ServeOptions {
        model: find(&args.model)?,
        model_name: args
            .name
            .clone()
            .or_else(|| args.model.as_ref().filter(|id| !is_weights_path(id)).cloned()),
        embedder: find(&args.embedder)?,
        engine: args.engine,
        threads: args.threads.map_or_else(default_threads, usize::from),
        window_tokens_max: args.window.map(|tokens| tokens as usize),
        queue_max: args.queue.into(),
        idle_timeout: args.idle_s.map(|seconds| Duration::from_secs(seconds.into())),
        lowers_priority: true,
        inspector: Some(Arc::new(PulledWeightsInspector(shelf.clone()))),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|fault| Failure::Run(format!("cannot start: {fault}")))?;
    let served = runtime.block_on(serve(args, options));
    // A read of standard input that never ends must not keep the process.
    runtime.shutdown_background();
    served.map(|()| 0)
}

async fn serve(args: &ModelServerArgs, options: ServeOptions) -> Result<(), Failure> {
    let mut signals = StopSignals::register()
        .map_err(|fault| Failure::Run(format!("cannot watch for signals: {fault}")))?;
    let listener = listen(args)?;
    let mut stdout = io::stdout().lock();
    // Nobody has to listen.
    let _ = writeln!(stdout, "Model server: {}", listener.address()).and_then(|()| stdout.flush());
    drop(stdout);
    let stop = CancellationToken::new();
    if args.die_with_stdin {
        let orphaned = stop.clone();
        tokio::task::spawn_blocking(move || {
            let mut rest = [0; 256];
            while io::stdin().read(&mut rest).is_ok_and(|bytes| bytes > 0) {}
            orphaned.cancel();
        });
    }
    let asked = stop.clone();
    tokio::spawn(async move {
        signals.next().await;
        asked.cancel();
    });
    local::server::serve(listener, options, stop).await.map_err(|fault| Failure::Run(fault.to_string()))
}

fn listen(args: &ModelServerArgs) -> Result<ModelListener, Failure> {
    let listener = match &args.socket {
        Some(path) => ModelListener::unix(path).map_err(|fault| (path.display().to_string(), fault)),
        None => {
            let port = args.port.unwrap_or(0);
            ModelListener::tcp(port).map_err(|fault| (format!("127.0.0.1:{port}"), fault))
        }
    };
    listener.map_err(|(place, fault)| Failure::Run(format!("cannot listen on {place}: {fault}")))
}

/// The engine of this name, when it is part of the build.
fn parse_engine(word: &str) -> Result<EngineKind, String> {
    let place = EngineKind::NAMES.iter().position(|known| *known == word);
    let Some(engine) = place.and_then(|place| EngineKind::VALUES.get(place)) else {
        return Err(format!("use one of {}", EngineKind::NAMES.join(", ")));
    };
    if engine.is_built() { Ok(*engine) } else { Err(LoadFault::EngineNotBuilt.to_string()) }
}

/// The name of an engine.
pub(crate) fn engine_name(engine: EngineKind) -> &'static str {
    let place = EngineKind::VALUES.iter().position(|known| *known == engine);
    place.and_then(|place| EngineKind::NAMES.get(place)).copied().unwrap_or("own")
}

fn is_weights_path(given: &str) -> bool {
    given.contains('/') || given.ends_with(".gguf") || given.ends_with(".onnx")
}

fn resolve_weights(given: &str, shelf: &ModelDirectory) -> Result<PathBuf, Failure> {
    if is_weights_path(given) {
        return Ok(PathBuf::from(given));
    }
    let id: ModelId = given.parse().map_err(|fault| Failure::Usage(format!("{given}: {fault}")))?;
    let found = shelf.find(&id).map(|pulled| pulled.path);
    found.ok_or_else(|| Failure::Run(format!("{id} is not here: nexus3 models pull {id}")))
}

/// Weights that were pulled are used as they were pulled, or not at all.
#[derive(Debug)]
struct PulledWeightsInspector(ModelDirectory);

impl Inspector for PulledWeightsInspector {
    fn inspect(&self, file: &Path) -> Result<(), String> {
        self.0.check(file).map_err(|fault| fault.to_string())
    }
}

/// The machine has other things to do, too.
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_has_a_name_and_a_missing_one_says_how_to_build_it() {
        for kind in [EngineKind::Native, EngineKind::LlamaCpp] {
            match parse_engine(engine_name(kind)) {
                Ok(found) => assert_eq!((found, kind.is_built()), (kind, true)),
                Err(why) => assert!(!kind.is_built() && why.contains("--features llama-cpp"), "{why}"),
            }
        }
        assert!(parse_engine("candle").is_err_and(|why| why.contains("own, llama-cpp")));
    }
}
