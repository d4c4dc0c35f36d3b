//! The embedded model: a child process of the same program that serves chat completions on a Unix socket. Started at
//! the first request and restarted after a crash. A crash before the response began is retried once; one in the middle
//! of a response fails the turn. Inference is left to the crate `local`.

mod child;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent::outside::{ModelRequest, ModelSpec, ModelStream, ModelTier, Provider};
use agent::{Fault, TokenCount};
use futures_util::StreamExt;

use self::child::{Child, Generation};
use crate::catalog::LOCAL;
use crate::chat::Chat;
use crate::dialect::{Dialect as _, ModelOptions};
use crate::endpoint::{AuthScheme, Endpoint, EndpointOptions};
use crate::error_class::{ErrorClass, ModelError};
use crate::fair_queue::QueueLimits;
use crate::prefix_cache::PrefixCache;
use crate::remote::{ModelClient, Remote, RemoteModel, RootHeader};
use crate::request_progress::{ProgressSender, ResponseFuture, stream_with_progress};
use crate::retry_policy::{HasFallback, RetryPolicy};
use crate::tokenizer::{TokenCounterFactory, Tokenizer};

/// Context window assumed for the embedded model.
const LOCAL_WINDOW_TOKENS_DEFAULT: TokenCount = 8_192;

/// Most requests in flight at the child, which schedules the agent trees fairly itself.
const CONCURRENCY: usize = 16;

/// Timeouts of the child's response: a small machine processes a long prompt for minutes, and the child sends
/// keep-alive comments meanwhile.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(600);
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// Weights installed on this machine.
pub trait LocalFiles: Send + Sync {
    /// Returns the file of a model by its id.
    fn find(&self, id: &str) -> Option<PathBuf>;

    /// Returns the ids of all installed models, the default one first.
    fn list(&self) -> Vec<String>;
}

/// Options of the model server child, started as `PROGRAM ARGS --model FILE --socket PATH --idle-s N --die-with-stdin`.
/// Its standard input is a pipe that is never written to: EOF means that the daemon has exited, and the child must
/// exit.
#[derive(Clone)]
pub struct LocalOptions {
    /// Program to run, usually this one.
    pub program: PathBuf,
    /// Its first arguments, such as `model-server`.
    pub args: Vec<String>,
    /// Directory for the sockets, accessible only to the owner.
    pub socket_dir: PathBuf,
    /// Idle time after which the child exits.
    pub idle: Duration,
    /// Timeout until the child is healthy.
    pub start_timeout: Duration,
    /// Installed weights.
    pub files: Arc<dyn LocalFiles>,
    /// Creates a token counter from a model file.
    pub counter: TokenCounterFactory,
}

impl std::fmt::Debug for LocalOptions {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { program, args, socket_dir, .. } = self;
        out.debug_struct("LocalOptions")
            .field("program", program)
            .field("args", args)
            .field("socket_dir", socket_dir)
            .finish_non_exhaustive()
    }
}

/// One embedded model; clones share its child.
#[derive(Clone)]
pub(crate) struct LocalModel {
    child: Arc<Child>,
    remote: RemoteModel,
}

/// Child process and endpoint of one model file, shared by all aliases of the model.
#[derive(Clone)]
pub(crate) struct LocalServer {
    child: Arc<Child>,
    endpoint: Arc<Endpoint>,
    tokenizer: Tokenizer,
}

impl LocalServer {
    pub(crate) fn new(id: &str, file: PathBuf, options: &LocalOptions) -> Result<Self, Fault> {
        let socket = options.socket_dir.join(format!("model-{:x}.sock", short_hash(id)));
        let endpoint = Endpoint::new(EndpointOptions {
            name: LOCAL.to_owned(),
            base_url: "http://localhost/v1".to_owned(),
            base_url_name: "the base URL of the embedded model".to_owned(),
            auth: AuthScheme::None,
            socket: Some(socket.clone()),
            // Retries are decided in this file: a retry needs a new child after a crash.
            retry_policy: RetryPolicy {
                first_byte_timeout: FIRST_BYTE_TIMEOUT,
                idle_timeout: IDLE_TIMEOUT,
                total_timeout: FIRST_BYTE_TIMEOUT,
                tries_max: 1,
                ..RetryPolicy::default()
            },
            queue_limits: QueueLimits { concurrency: CONCURRENCY, ..QueueLimits::default() },
            ..EndpointOptions::default()
        })?;
        let tokenizer = Tokenizer::from_file(file.clone(), options.counter);
        let child = Arc::new(Child::new(id, file, socket, options, Arc::clone(&endpoint)));
        Ok(Self { child, endpoint, tokenizer })
    }

    /// Returns a model client under the user's name for it.
    pub(crate) fn model(
        &self,
        name: String,
        options: ModelOptions,
        spec: ModelSpec,
        cache: Arc<PrefixCache>,
    ) -> LocalModel {
        let dialect = Chat::COMPATIBLE;
        let remote = Remote {
            name,
            url: self.endpoint.base_url.join(&[], dialect.path_segments()),
            endpoint: Arc::clone(&self.endpoint),
            dialect: Arc::new(dialect),
            options,
            spec,
            tokenizer: self.tokenizer.clone(),
            prefix_cache: cache,
            root_header: RootHeader::Send,
        };
        LocalModel { child: Arc::clone(&self.child), remote: RemoteModel { inner: Arc::new(remote) } }
    }
}

/// Default properties of an embedded model.
pub(crate) fn default_local_spec() -> ModelSpec {
    ModelSpec { tier: ModelTier::Small, ..ModelSpec::with_window(LOCAL_WINDOW_TOKENS_DEFAULT) }
}

/// Hashes an id for the socket name, because the path of a Unix socket is limited to about 100 bytes.
fn short_hash(id: &str) -> u64 {
    id.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

impl LocalModel {
    /// Sends the request until the response begins. If the child exits before that, restarts it and retries once.
    async fn start_with_restart(
        self,
        request: ModelRequest,
        progress: ProgressSender,
        has_fallback: HasFallback,
    ) -> Result<ModelStream, ModelError> {
        let (generation, error) = match self.start_once(request.clone(), &progress, has_fallback).await? {
            (_, Ok(stream)) => return Ok(stream),
            (generation, Err(error)) => (generation, error),
        };
        if error.class != ErrorClass::Unavailable {
            return Err(error);
        }
        if self.child.wait_for_exit(generation).await.is_none() {
            return Err(self.with_server_message(error));
        }
        tracing::warn!(model = self.remote.model(), "restarting the embedded model: {}", error.fault);
        let (generation, started) = self.start_once(request, &progress, has_fallback).await?;
        match started {
            Err(error) if error.class == ErrorClass::Unavailable => {
                let Some(exit) = self.child.wait_for_exit(generation).await else { return Err(error) };
                let fault = self.child.fault(&format!("it exited twice before its response ({exit})"));
                Err(ModelError::new(ErrorClass::Refused, fault))
            }
            started => started,
        }
    }

    /// Replaces the error by the message of the child's error response, if there is one.
    fn with_server_message(&self, error: ModelError) -> ModelError {
        let body = error.fault.public.split_once(": ").map(|(_, body)| body);
        let body = body.and_then(|body| serde_json::from_str::<serde_json::Value>(body).ok());
        let why = body.as_ref().and_then(|body| body["error"]["message"].as_str());
        match why {
            Some(why) => ModelError::new(error.class, self.child.fault(why.trim_end_matches('.'))),
            None => error,
        }
    }

    /// Starts the child if needed and sends the request once; returns the child's generation and the result.
    async fn start_once(
        &self,
        request: ModelRequest,
        progress: &ProgressSender,
        has_fallback: HasFallback,
    ) -> Result<(Generation, Result<ModelStream, ModelError>), ModelError> {
        progress.mark_waiting();
        let generation = self.child.ensure_running().await;
        let generation = generation.map_err(|fault| ModelError::new(ErrorClass::Refused, fault))?;
        progress.mark_sent();
        let started = self.remote.start(request, progress.clone(), has_fallback).await;
        Ok((generation, started.map(|stream| self.annotate_crash(generation, stream))))
    }

    /// Replaces a fault in the stream by the child's exit status if the child has exited.
    fn annotate_crash(&self, generation: Generation, stream: ModelStream) -> ModelStream {
        let child = Arc::clone(&self.child);
        Box::pin(stream.then(move |item| {
            let child = Arc::clone(&child);
            async move {
                let Err(fault) = item else { return item };
                Err(match child.wait_for_exit(generation).await {
                    Some(exit) => {
                        let why = format!("it exited in the middle of its response ({exit})");
                        child.fault(&why).caused_by(fault.public)
                    }
                    None => fault,
                })
            }
        }))
    }
}

impl ModelClient for LocalModel {
    fn start(
        &self,
        request: ModelRequest,
        progress: ProgressSender,
        has_fallback: HasFallback,
    ) -> ResponseFuture {
        Box::pin(self.clone().start_with_restart(request, progress, has_fallback))
    }
}

impl Provider for LocalModel {
    fn call(&self, request: ModelRequest) -> ModelStream {
        stream_with_progress(|progress| self.start(request, progress, HasFallback::No))
    }

    fn model(&self) -> Option<&str> {
        self.remote.model()
    }

    fn spec(&self) -> &ModelSpec {
        self.remote.spec()
    }

    fn count(&self, text: &str) -> TokenCount {
        self.remote.count(text)
    }
}
