//! Worker threads, one for chats and one for embeddings. Each owns its model, runs the jobs of its queue, loads the
//! model on demand, and survives a panic of the model.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio_util::task::TaskTracker;

use super::ServeOptions;
use super::backend::{Backend, BackendLoaders, Loader};
use super::generation_channel::GenerationSender;
use super::queue::{FairQueue, QueuedJob};
use super::refusal::Refusal;
use crate::embed::{Embedder, TextLength};
use crate::generation::{Chat, FinishReason, GenerationSummary};

/// Stack of a worker thread. Grammars and templates recurse; the default is too small for deeply nested schemas.
const STACK_BYTES: usize = 8 * 1024 * 1024;

/// Nice value of low-priority worker threads.
const NICE: i32 = 10;

/// Texts to embed between two checks for cancellation.
const BATCH_TEXTS: usize = 32;

const CRASH_MESSAGE: &str = "the model crashed on this request; the next request loads it again";

/// Job queue of one model, with the model's state.
pub(super) struct WorkQueue<J> {
    pub(super) jobs: FairQueue<J>,
    is_loaded: AtomicBool,
    /// The model's context window; 0 until it has been loaded.
    window_tokens: AtomicUsize,
    is_stopping: AtomicBool,
}

/// Queues of the models that are served.
pub(super) struct WorkQueues {
    pub(super) chats: Option<Arc<WorkQueue<ChatJob>>>,
    pub(super) embeddings: Option<Arc<WorkQueue<EmbedJob>>>,
}

/// A chat request and the sender for its response.
pub(super) struct ChatJob {
    pub(super) chat: Chat,
    pub(super) sender: GenerationSender,
    /// Permit of a large request body.
    pub(super) _permit: Option<OwnedSemaphorePermit>,
}

/// An embedding request and the sender for its response.
pub(super) struct EmbedJob {
    pub(super) texts: Vec<String>,
    pub(super) reply: oneshot::Sender<Result<EmbedOutput, Refusal>>,
    /// Permit of a large request body.
    pub(super) _permit: Option<OwnedSemaphorePermit>,
}

/// Embeddings of a request's texts.
#[derive(Debug, Default)]
pub(super) struct EmbedOutput {
    pub(super) embeddings: Vec<Vec<f32>>,
    pub(super) lengths: Vec<TextLength>,
}

/// A job that can be rejected.
pub(super) trait Job: QueuedJob {
    fn refuse(self, refusal: Refusal);
}

impl<J: Job> WorkQueue<J> {
    fn new(queue_max: usize) -> Self {
        Self {
            jobs: FairQueue::new(queue_max),
            is_loaded: AtomicBool::new(false),
            window_tokens: AtomicUsize::new(0),
            is_stopping: AtomicBool::new(false),
        }
    }

    pub(super) fn is_loaded(&self) -> bool {
        self.is_loaded.load(Ordering::Relaxed)
    }

    /// The model's context window, once it has been loaded.
    pub(super) fn window_tokens(&self) -> Option<usize> {
        Some(self.window_tokens.load(Ordering::Relaxed)).filter(|tokens| *tokens > 0)
    }

    /// Rejects queued jobs and cancels the running job at its next token.
    pub(super) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        for job in self.jobs.close() {
            job.refuse(Refusal::stopping());
        }
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Runs `work` with the model, loading it if necessary. After a panic the model's state is unknown, so it is
    /// dropped.
    fn with_model<T: ?Sized, R>(
        &self,
        model: &mut Option<Box<T>>,
        load: &mut Loader<T>,
        work: impl FnOnce(&mut T) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        let result = catch_unwind(AssertUnwindSafe(|| {
            let model = match &mut *model {
                Some(model) => model,
                none => none.insert(load().map_err(Refusal::failed)?),
            };
            self.is_loaded.store(true, Ordering::Relaxed);
            work(model)
        }));
        result.unwrap_or_else(|_| {
            tracing::error!("model panicked and was unloaded; the next request loads it again");
            self.is_loaded.store(false, Ordering::Relaxed);
            let panicked = model.take();
            // Dropping it may panic again.
            let _ = catch_unwind(AssertUnwindSafe(move || drop(panicked)));
            Err(Refusal::failed(CRASH_MESSAGE))
        })
    }
}

/// Starts a worker thread per model; each holds a token of `threads` while it runs.
pub(super) fn start(
    loaders: BackendLoaders,
    options: &ServeOptions,
    threads: &TaskTracker,
) -> io::Result<WorkQueues> {
    let mut queues = WorkQueues { chats: None, embeddings: None };
    if let Some(load) = loaders.chat {
        let queue = Arc::new(WorkQueue::new(options.queue_max));
        queues.chats = Some(Arc::clone(&queue));
        spawn("model", options, threads, move || run_chat_worker(&queue, load))?;
    }
    if let Some(load) = loaders.embedder {
        let queue = Arc::new(WorkQueue::new(options.queue_max));
        queues.embeddings = Some(Arc::clone(&queue));
        spawn("embedder", options, threads, move || run_embed_worker(&queue, load))?;
    }
    Ok(queues)
}

fn spawn(
    name: &str,
    options: &ServeOptions,
    threads: &TaskTracker,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let token = threads.token();
    let lowers_priority = options.lowers_priority;
    let run = move || {
        if lowers_priority {
            lower_priority();
        }
        work();
        drop(token);
    };
    std::thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(run).map(drop)
}

/// Lowers the priority of the calling thread. On Linux this affects only the thread and those it spawns, so connections
/// stay responsive.
fn lower_priority() {
    let current = rustix::process::getpriority_process(None).unwrap_or(0);
    if let Err(fault) = rustix::process::setpriority_process(None, current.max(NICE)) {
        tracing::warn!(%fault, "cannot lower the priority of the model's thread");
    }
}

fn run_chat_worker(queue: &WorkQueue<ChatJob>, mut load: Loader<dyn Backend>) {
    let mut model = None;
    while let Some(job) = queue.jobs.pop() {
        let outcome = queue.with_model(&mut model, &mut load, |backend| {
            queue.window_tokens.store(backend.window_tokens(), Ordering::Relaxed);
            generate(queue, backend, &job)
        });
        job.sender.finish(outcome);
    }
}

fn generate(
    queue: &WorkQueue<ChatJob>,
    backend: &mut dyn Backend,
    job: &ChatJob,
) -> Result<GenerationSummary, Refusal> {
    if queue.is_stopping() {
        return Err(Refusal::stopping());
    }
    let summary = backend.generate(&job.chat, &mut |event| {
        let flow = job.sender.send(&event);
        if queue.is_stopping() { std::ops::ControlFlow::Break(()) } else { flow }
    })?;
    match summary.finish_reason {
        FinishReason::Cancelled if queue.is_stopping() => Err(Refusal::stopping()),
        // A client that disconnected never sees this; one that reads too slowly may.
        FinishReason::Cancelled => Err(Refusal::failed("cancelled: the client did not read the response")),
        _ => Ok(summary),
    }
}

fn run_embed_worker(queue: &WorkQueue<EmbedJob>, mut load: Loader<dyn Embedder>) {
    let mut model = None;
    while let Some(job) = queue.jobs.pop() {
        let output = queue.with_model(&mut model, &mut load, |embedder| embed(queue, embedder, &job));
        // Fails only if the client has disconnected.
        let _ = job.reply.send(output);
    }
}

fn embed(
    queue: &WorkQueue<EmbedJob>,
    embedder: &mut dyn Embedder,
    job: &EmbedJob,
) -> Result<EmbedOutput, Refusal> {
    let mut output = EmbedOutput::default();
    for texts in job.texts.chunks(BATCH_TEXTS) {
        if queue.is_stopping() || job.is_abandoned() {
            return Err(Refusal::stopping());
        }
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        output.embeddings.extend(embedder.embed(&texts)?);
        output.lengths.extend(texts.iter().map(|text| embedder.length(text)));
    }
    Ok(output)
}

impl QueuedJob for ChatJob {
    fn is_abandoned(&self) -> bool {
        self.sender.is_closed()
    }
}

impl Job for ChatJob {
    fn refuse(self, refusal: Refusal) {
        self.sender.finish(Err(refusal));
    }
}

impl QueuedJob for EmbedJob {
    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }
}

impl Job for EmbedJob {
    fn refuse(self, refusal: Refusal) {
        let _ = self.reply.send(Err(refusal));
    }
}
