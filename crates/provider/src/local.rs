//! The embedded model: a child process of the same program that speaks chat completions on a Unix socket. Started at the
//! first question, one at a time, again after a crash. A crash before the answer began is asked past, one in the middle of
//! it costs the turn. How it answers is left to the room `local`.

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

/// What the embedded model is taken to hold.
const WINDOW_TOKENS_DEFAULT: TokenCount = 8_192;

/// Questions at the child at once; it lets the trees take turns itself.
const CONCURRENCY: usize = 16;

/// A small machine reads a long prompt for minutes; it says that it is alive meanwhile.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(600);
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// The weights that are on this machine.
pub trait LocalFiles: Send + Sync {
    /// The file of a model, by its id.
    fn find(&self, id: &str) -> Option<PathBuf>;

    /// The ids of all there are; the one to use when none is named comes first.
    fn list(&self) -> Vec<String>;
}

/// How the child is started: `PROGRAM ARGS --model FILE --socket PATH --idle-s N --die-with-stdin`. Its standard input is a
/// pipe that is never written to: when it ends, so has the daemon, and the child has to end too.
#[derive(Clone)]
pub struct LocalOptions {
    /// The program; usually this one.
    pub program: PathBuf,
    /// Its first words, such as `model-server`.
    pub args: Vec<String>,
    /// A folder that nobody else can look into, for the sockets.
    pub socket_dir: PathBuf,
    /// How long the child stays without a question.
    pub idle: Duration,
    /// How long it may take until it answers at all.
    pub start_timeout: Duration,
    /// The weights.
    pub files: Arc<dyn LocalFiles>,
    /// How the tokens of a model are counted, from its file.
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

/// The child of one file and the way to it, shared by all who ask for it by whatever name.
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
            base_url_name: "the address of the embedded model".to_owned(),
            auth: AuthScheme::None,
            socket: Some(socket.clone()),
            // Who is asked again is decided here: a new child, and not one that fell over before.
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

    /// The model by the name that the user chose.
    pub(crate) fn model(
        &self,
        name: String,
        options: ModelOptions,
        traits: ModelSpec,
        shelf: Arc<PrefixCache>,
    ) -> LocalModel {
        let dialect = Chat::COMPATIBLE;
        let remote = Remote {
            name,
            url: self.endpoint.base_url.join(&[], dialect.path_segments()),
            endpoint: Arc::clone(&self.endpoint),
            dialect: Arc::new(dialect),
            options,
            traits,
            tokenizer: self.tokenizer.clone(),
            prefix_cache: shelf,
            root_header: RootHeader::Send,
        };
        LocalModel { child: Arc::clone(&self.child), remote: RemoteModel { inner: Arc::new(remote) } }
    }
}

/// What an embedded model is like when the user says nothing about it.
pub(crate) fn local_traits() -> ModelSpec {
    ModelSpec { tier: ModelTier::Small, ..ModelSpec::with_window(WINDOW_TOKENS_DEFAULT) }
}

/// The path of a Unix socket is short, an id may not be.
fn short_hash(id: &str) -> u64 {
    id.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

impl LocalModel {
    /// Asks until the answer begins. A child that is found dead before that is started again, and asked once more.
    async fn start_with_restart(
        self,
        request: ModelRequest,
        teller: ProgressSender,
        behind: HasFallback,
    ) -> Result<ModelStream, ModelError> {
        let (start, failing) = match self.start_once(request.clone(), &teller, behind).await? {
            (_, Ok(stream)) => return Ok(stream),
            (start, Err(failing)) => (start, failing),
        };
        if failing.class != ErrorClass::Unavailable {
            return Err(failing);
        }
        if self.child.wait_for_exit(start).await.is_none() {
            return Err(self.with_server_message(failing));
        }
        tracing::warn!(model = self.remote.model(), "the embedded model is started again: {}", failing.fault);
        let (start, begun) = self.start_once(request, &teller, behind).await?;
        match begun {
            Err(failing) if failing.class == ErrorClass::Unavailable => {
                let Some(end) = self.child.wait_for_exit(start).await else { return Err(failing) };
                let fault = self.child.fault(&format!("it ended twice before it answered ({end})"));
                Err(ModelError::new(ErrorClass::Refused, fault))
            }
            begun => begun,
        }
    }

    /// What a child says that cannot answer, in its own words.
    fn with_server_message(&self, failing: ModelError) -> ModelError {
        let body = failing.fault.public.split_once(": ").map(|(_, body)| body);
        let body = body.and_then(|body| serde_json::from_str::<serde_json::Value>(body).ok());
        let why = body.as_ref().and_then(|body| body["error"]["message"].as_str());
        match why {
            Some(why) => ModelError::new(failing.class, self.child.fault(why.trim_end_matches('.'))),
            None => failing,
        }
    }

    /// Which child was asked, and what came of it.
    async fn start_once(
        &self,
        request: ModelRequest,
        teller: &ProgressSender,
        behind: HasFallback,
    ) -> Result<(Generation, Result<ModelStream, ModelError>), ModelError> {
        teller.mark_waiting();
        let start = self.child.ensure_running().await;
        let start = start.map_err(|fault| ModelError::new(ErrorClass::Refused, fault))?;
        teller.mark_sent();
        let begun = self.remote.start(request, teller.clone(), behind).await;
        Ok((start, begun.map(|stream| self.annotate_crash(start, stream))))
    }

    /// The stream of an answer, whose fault says so when it was cut because the child has ended.
    fn annotate_crash(&self, start: Generation, stream: ModelStream) -> ModelStream {
        let child = Arc::clone(&self.child);
        Box::pin(stream.then(move |item| {
            let child = Arc::clone(&child);
            async move {
                let Err(fault) = item else { return item };
                Err(match child.wait_for_exit(start).await {
                    Some(end) => {
                        let why = format!("it ended in the middle of its answer ({end})");
                        child.fault(&why).caused_by(fault.public)
                    }
                    None => fault,
                })
            }
        }))
    }
}

impl ModelClient for LocalModel {
    fn start(&self, request: ModelRequest, teller: ProgressSender, behind: HasFallback) -> ResponseFuture {
        Box::pin(self.clone().start_with_restart(request, teller, behind))
    }
}

impl Provider for LocalModel {
    fn call(&self, request: ModelRequest) -> ModelStream {
        stream_with_progress(|teller| self.start(request, teller, HasFallback::No))
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
