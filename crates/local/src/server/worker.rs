//! The threads that own the models, one for chats and one for embeddings: each takes the next job of its queue, brings the
//! model into memory when it is not there, and survives a model that panics.

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

/// Grammars and templates recurse; the default stack is small for a schema that nests.
const STACK_BYTES: usize = 8 * 1024 * 1024;

/// How far the threads that compute stand back.
const NICE: i32 = 10;

/// Texts between two looks at whether somebody still wants them.
const BATCH_TEXTS: usize = 32;

const CRASH_MESSAGE: &str = "the model crashed on this request; the next request loads it anew";

/// Where jobs of one kind are taken in, and what is known of the model behind it.
pub(super) struct WorkQueue<J> {
    pub(super) jobs: FairQueue<J>,
    is_loaded: AtomicBool,
    /// The model's window; 0 as long as it is not known.
    window_tokens: AtomicUsize,
    is_stopping: AtomicBool,
}

/// The desks that are open.
pub(super) struct WorkQueues {
    pub(super) chats: Option<Arc<WorkQueue<ChatJob>>>,
    pub(super) embeddings: Option<Arc<WorkQueue<EmbedJob>>>,
}

/// A chat and where its answer goes.
pub(super) struct ChatJob {
    pub(super) chat: Chat,
    pub(super) sender: GenerationSender,
    /// Its place among the large ones, if it is large.
    pub(super) _permit: Option<OwnedSemaphorePermit>,
}

/// Texts and where their points go.
pub(super) struct EmbedJob {
    pub(super) texts: Vec<String>,
    pub(super) reply: oneshot::Sender<Result<EmbedOutput, Refusal>>,
    /// Its place among the large ones, if it is large.
    pub(super) _permit: Option<OwnedSemaphorePermit>,
}

/// Texts as points.
#[derive(Debug, Default)]
pub(super) struct EmbedOutput {
    pub(super) embeddings: Vec<Vec<f32>>,
    pub(super) lengths: Vec<TextLength>,
}

/// A job that can be turned away.
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

    /// The model's window, when it has been in memory.
    pub(super) fn window_tokens(&self) -> Option<usize> {
        Some(self.window_tokens.load(Ordering::Relaxed)).filter(|tokens| *tokens > 0)
    }

    /// Turns away who waits, and ends the job under way at its next token.
    pub(super) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        for job in self.jobs.close() {
            job.refuse(Refusal::stopping());
        }
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Does the work with the model, which is loaded when it is not there. After a panic the model is in an unknown state
    /// and is thrown away.
    fn with_model<T: ?Sized, R>(
        &self,
        model: &mut Option<Box<T>>,
        load: &mut Loader<T>,
        work: impl FnOnce(&mut T) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        let worked = catch_unwind(AssertUnwindSafe(|| {
            let model = match &mut *model {
                Some(model) => model,
                none => none.insert(load().map_err(Refusal::failed)?),
            };
            self.is_loaded.store(true, Ordering::Relaxed);
            work(model)
        }));
        worked.unwrap_or_else(|_| {
            tracing::error!("a model panicked and is thrown away");
            self.is_loaded.store(false, Ordering::Relaxed);
            let broken = model.take();
            // What is broken may panic again when it is taken apart.
            let _ = catch_unwind(AssertUnwindSafe(move || drop(broken)));
            Err(Refusal::failed(CRASH_MESSAGE))
        })
    }
}

/// Starts a thread for each engine; each holds a token of `threads` as long as it runs.
pub(super) fn start(
    engines: BackendLoaders,
    options: &ServeOptions,
    threads: &TaskTracker,
) -> io::Result<WorkQueues> {
    let mut workers = WorkQueues { chats: None, embeddings: None };
    if let Some(load) = engines.chat {
        let desk = Arc::new(WorkQueue::new(options.queue_max));
        workers.chats = Some(Arc::clone(&desk));
        spawn("model", options, threads, move || run_chat_worker(&desk, load))?;
    }
    if let Some(load) = engines.embedder {
        let desk = Arc::new(WorkQueue::new(options.queue_max));
        workers.embeddings = Some(Arc::clone(&desk));
        spawn("embedder", options, threads, move || run_embed_worker(&desk, load))?;
    }
    Ok(workers)
}

fn spawn(
    name: &str,
    options: &ServeOptions,
    threads: &TaskTracker,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let token = threads.token();
    let is_nice = options.lowers_priority;
    let run = move || {
        if is_nice {
            lower_priority();
        }
        work();
        drop(token);
    };
    std::thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(run).map(drop)
}

/// On Linux this is a matter of one thread and of those that it starts, so the connections stay quick.
fn lower_priority() {
    let now = rustix::process::getpriority_process(None).unwrap_or(0);
    if let Err(fault) = rustix::process::setpriority_process(None, now.max(NICE)) {
        tracing::warn!(%fault, "the model's thread keeps its priority");
    }
}

fn run_chat_worker(desk: &WorkQueue<ChatJob>, mut load: Loader<dyn Backend>) {
    let mut model = None;
    while let Some(job) = desk.jobs.pop() {
        let ended = desk.with_model(&mut model, &mut load, |brain| {
            desk.window_tokens.store(brain.window_tokens(), Ordering::Relaxed);
            generate(desk, brain, &job)
        });
        job.sender.finish(ended);
    }
}

fn generate(
    desk: &WorkQueue<ChatJob>,
    brain: &mut dyn Backend,
    job: &ChatJob,
) -> Result<GenerationSummary, Refusal> {
    if desk.is_stopping() {
        return Err(Refusal::stopping());
    }
    let answered = brain.generate(&job.chat, &mut |piece| {
        let flow = job.sender.send(&piece);
        if desk.is_stopping() { std::ops::ControlFlow::Break(()) } else { flow }
    })?;
    match answered.finish_reason {
        FinishReason::Cancelled if desk.is_stopping() => Err(Refusal::stopping()),
        // Whoever went away does not read this; whoever did not read fast enough may.
        FinishReason::Cancelled => Err(Refusal::failed("the answer was not read, so it was broken off")),
        _ => Ok(answered),
    }
}

fn run_embed_worker(desk: &WorkQueue<EmbedJob>, mut load: Loader<dyn Embedder>) {
    let mut model = None;
    while let Some(job) = desk.jobs.pop() {
        let embedded = desk.with_model(&mut model, &mut load, |embedder| embed(desk, embedder, &job));
        // Nobody waits any more: then nobody misses it.
        let _ = job.reply.send(embedded);
    }
}

fn embed(
    desk: &WorkQueue<EmbedJob>,
    embedder: &mut dyn Embedder,
    job: &EmbedJob,
) -> Result<EmbedOutput, Refusal> {
    let mut embedded = EmbedOutput::default();
    for texts in job.texts.chunks(BATCH_TEXTS) {
        if desk.is_stopping() || job.is_abandoned() {
            return Err(Refusal::stopping());
        }
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        embedded.embeddings.extend(embedder.embed(&texts)?);
        embedded.lengths.extend(texts.iter().map(|text| embedder.length(text)));
    }
    Ok(embedded)
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
