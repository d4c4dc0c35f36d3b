//! `nexus3 model-server`: serves a local model over the OpenAI API. The daemon starts one as a child process when an
//! agent first calls a local model; users can start one too.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use local::server::{Inspector, ModelListener, ServeOptions};
use tokio_util::sync::CancellationToken;
use weights::{ModelDirectory, ModelId};

use super::LocalEngine;
use crate::config::Choice;
use crate::signals::StopSignals;
use crate::{Failure, models, process, runtime_failure};

/// Arguments of `model-server`.
#[derive(Debug, Args)]
#[command(after_help = "Exit code: 0 stopped, 1 failed, 2 wrong usage.

Endpoints: /v1/chat/completions, /v1/embeddings, /v1/models, /health.
The daemon starts this command itself for models named local/ID. The first
request that needs a model loads it.

Examples:
  nexus3 model-server --model smollm2-135m --port 9000
  nexus3 model-server --model ./some.gguf --socket ./model.sock --idle-s 600
  nexus3 model-server --embedder minilm-l6-v2 --port 9001")]
pub(crate) struct ModelServerArgs {
    /// Serve this GGUF file or model id for chat
    #[arg(long, value_name = "FILE|ID", required_unless_present = "embedder")]
    model: Option<String>,
    /// Serve this ONNX file or model id for embeddings
    #[arg(long, value_name = "FILE|ID")]
    embedder: Option<String>,
    /// Name the chat model [default: its id or file name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Listen on this port of 127.0.0.1; 0: any free port
    #[arg(short, long, value_name = "PORT", required_unless_present = "socket")]
    port: Option<u16>,
    /// Listen on this Unix socket instead
    #[arg(long, value_name = "PATH", conflicts_with = "port")]
    socket: Option<PathBuf>,
    /// Use own, or llama-cpp if built in
    #[arg(long, value_name = "ENGINE", default_value = "own", value_parser = parse_engine)]
    engine: LocalEngine,
    /// Compute with N threads [default: CPU cores - 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Limit the context window [default: the model's]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(256..))]
    window: Option<u32>,
    /// Queue at most N requests
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u16).range(1..))]
    queue: u16,
    /// Stop after this many idle seconds [default: never]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    idle_s: Option<u32>,
    /// Stop when standard input closes (parent exited)
    #[arg(long)]
    die_with_stdin: bool,
}

pub(crate) fn run(args: &ModelServerArgs, home: &Path) -> Result<u8, Failure> {
    tracing_subscriber::fmt().with_writer(io::stderr).with_max_level(tracing::Level::INFO).init();
    process::forbid_memory_dumps();
    let directory = ModelDirectory::at(&models::models_directory(home));
    let find =
        |given: &Option<String>| given.as_deref().map(|given| resolve_weights(given, &directory)).transpose();
    let options = ServeOptions {
        model: find(&args.model)?,
        model_name: args
            .name
            .clone()
            .or_else(|| args.model.as_ref().filter(|id| !is_weights_path(id)).cloned()),
        embedder: find(&args.embedder)?,
        engine: args.engine.kind(),
        threads: args.threads.map_or_else(default_threads, usize::from),
        window_tokens_max: args.window.map(|tokens| tokens as usize),
        queue_max: args.queue.into(),
        idle_timeout: args.idle_s.map(|seconds| Duration::from_secs(seconds.into())),
        lowers_priority: true,
        inspector: Some(Arc::new(InstalledModelInspector(directory.clone()))),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|fault| runtime_failure(&fault))?;
    let served = runtime.block_on(serve(args, options));
    // A blocked read of standard input must not keep the process alive.
    runtime.shutdown_background();
    served.map(|()| 0)
}

async fn serve(args: &ModelServerArgs, options: ServeOptions) -> Result<(), Failure> {
    let mut signals = StopSignals::register()?;
    let listener = listen(args)?;
    let mut stdout = io::stdout().lock();
    // A closed standard output is not an error.
    let _ = writeln!(stdout, "Model server: {}", listener.address()).and_then(|()| stdout.flush());
    drop(stdout);
    let stop = CancellationToken::new();
    if args.die_with_stdin {
        let stop = stop.clone();
        tokio::task::spawn_blocking(move || {
            let mut buffer = [0; 256];
            while io::stdin().read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
            stop.cancel();
        });
    }
    let on_signal = stop.clone();
    tokio::spawn(async move {
        signals.next().await;
        on_signal.cancel();
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
    listener.map_err(|(address, fault)| Failure::Run(format!("cannot listen on {address}: {fault}")))
}

/// Parses the name of an engine; fails when the engine is not part of the build.
fn parse_engine(name: &str) -> Result<LocalEngine, String> {
    let index = LocalEngine::NAMES.iter().position(|known| *known == name);
    let Some(engine) = index.and_then(|index| LocalEngine::VALUES.get(index)) else {
        return Err(format!("unknown engine; use one of {}", LocalEngine::NAMES.join(", ")));
    };
    engine.check().map_err(|fault| fault.to_string())?;
    Ok(*engine)
}

fn is_weights_path(given: &str) -> bool {
    given.contains('/') || given.ends_with(".gguf") || given.ends_with(".onnx")
}

fn resolve_weights(given: &str, directory: &ModelDirectory) -> Result<PathBuf, Failure> {
    if is_weights_path(given) {
        return Ok(PathBuf::from(given));
    }
    let id: ModelId = given.parse().map_err(|fault| Failure::Usage(format!("{given}: {fault}")))?;
    let path = directory.find(&id).map(|installed| installed.path);
    path.ok_or_else(|| Failure::Run(format!("model {id} is not downloaded: run nexus3 models pull {id}")))
}

/// Refuses a downloaded model whose file was modified and no longer matches its checksum.
#[derive(Debug)]
struct InstalledModelInspector(ModelDirectory);

impl Inspector for InstalledModelInspector {
    fn inspect(&self, file: &Path) -> Result<(), String> {
        self.0.check(file).map_err(|fault| fault.to_string())
    }
}

/// One thread less than CPU cores, so that the machine stays responsive.
fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().saturating_sub(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_names_round_trip_and_missing_engines_explain_it() {
        for engine in [LocalEngine::Own, LocalEngine::LlamaCpp] {
            match parse_engine(engine.name()) {
                Ok(found) => assert_eq!((found, engine.kind().is_built()), (engine, true)),
                Err(why) => {
                    assert!(!engine.kind().is_built() && why.contains("--features llama-cpp"), "{why}");
                }
            }
        }
        assert!(parse_engine("candle").is_err_and(|why| why.contains("own, llama-cpp")));
    }
}
