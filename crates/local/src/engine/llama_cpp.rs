//! The llama.cpp engine, built with the feature `llama-cpp`. llama.cpp's context borrows its model, so both live on a
//! thread of their own, which runs the tasks it is sent and ends when the engine is dropped.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use llama_cpp_2::DecodeError;
use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_backend::LlamaBackend;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::token::LlamaToken;

use super::Engine;
use super::gguf::ModelFileError;

/// Tokens per `llama_decode` call.
const CHUNK_TOKENS: usize = 128;

/// Work for the engine's thread.
type Task = Box<dyn FnOnce(&mut LlamaContext<'_>) + Send>;

/// Load options of the llama.cpp engine.
#[derive(Debug, Clone)]
pub(crate) struct LlamaCppOptions {
    /// Number of tokens in the file's vocabulary; a model with another number is rejected.
    pub(crate) vocabulary_size: usize,
    pub(crate) threads: usize,
    pub(crate) sequences: usize,
    /// Longest sequence; the file's own limit when `None` or larger than it.
    pub(crate) window_tokens_max: Option<usize>,
}

/// Handle to a model that llama.cpp evaluates on its own thread.
#[derive(Debug)]
pub(crate) struct LlamaCpp {
    window_tokens: usize,
    /// Number of cached tokens of each sequence.
    lengths: Vec<usize>,
    tasks: Option<Sender<Task>>,
    thread: Option<JoinHandle<()>>,
}

impl LlamaCpp {
    /// Loads the file at `path`.
    pub(crate) fn open(path: &Path, options: &LlamaCppOptions) -> Result<Self, ModelFileError> {
        check_processor()?;
        let sequences = options.sequences.max(1);
        let (loaded_sender, loaded) = channel();
        let (task_sender, tasks) = channel();
        let (path, options) = (path.to_path_buf(), options.clone());
        let run = move || match run_thread(&path, &options, &loaded_sender, tasks) {
            Ok(()) => {}
            // `open` waits for the fault; sending fails only if it has returned already.
            Err(fault) => drop(loaded_sender.send(Err(fault))),
        };
        let thread = std::thread::Builder::new().name("llama-cpp".to_owned()).spawn(run);
        let thread = thread.map_err(|fault| format!("its thread cannot be started: {fault}"))?;
        let window_tokens = loaded.recv().map_err(|_| "llama.cpp ended while loading it".to_owned())??;
        Ok(Self {
            window_tokens,
            lengths: vec![0; sequences],
            tasks: Some(task_sender),
            thread: Some(thread),
        })
    }

    /// Runs `work` on the engine's thread and waits for its result. A panic there is resumed here.
    fn run_on_thread<R: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut LlamaContext<'_>) -> R + Send + 'static,
    ) -> Result<R, String> {
        let (result_sender, result) = channel();
        let task: Task = Box::new(move |context| drop(result_sender.send(work(context))));
        let is_sent = self.tasks.as_ref().is_some_and(|tasks| tasks.send(task).is_ok());
        if let (true, Ok(result)) = (is_sent, result.recv()) {
            return Ok(result);
        }
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
        Err("llama.cpp has ended".to_owned())
    }

    fn truncate_sequence(&mut self, sequence: usize, length: usize) {
        let id = to_u32(sequence);
        let truncated = self
            .run_on_thread(move |context| context.clear_kv_cache_seq(Some(id), Some(to_u32(length)), None));
        self.lengths[sequence] = if let Ok(Ok(true)) = truncated { length } else { 0 };
        if self.lengths[sequence] < length {
            // llama.cpp cannot truncate every cache, but it can always clear a whole sequence.
            let _ =
                self.run_on_thread(move |context| context.clear_kv_cache_seq(Some(id), None, None).is_ok());
        }
    }

    /// Evaluates one chunk; fills and returns `logits` if given.
    fn decode_chunk(
        &mut self,
        sequence: usize,
        chunk: &[u32],
        logits: Option<Vec<f32>>,
    ) -> Result<Option<Vec<f32>>, String> {
        let (tokens, position) = (chunk.to_vec(), self.lengths[sequence]);
        let work = move |context: &mut LlamaContext<'_>| decode(context, sequence, position, &tokens, logits);
        let decoded = self.run_on_thread(work)?;
        match decoded {
            Ok(_) => self.lengths[sequence] = position + chunk.len(),
            Err(_) => self.truncate_sequence(sequence, position),
        }
        decoded.map_err(|fault| fault.to_string())
    }

    /// Clears all sequences but `sequence`; returns whether that freed any cache space.
    fn clear_other_sequences(&mut self, sequence: usize) -> bool {
        let others: Vec<usize> =
            (0..self.lengths.len()).filter(|other| *other != sequence && self.lengths[*other] > 0).collect();
        others.iter().for_each(|other| self.truncate_sequence(*other, 0));
        !others.is_empty()
    }
}

impl Engine for LlamaCpp {
    fn window_tokens(&self) -> usize {
        self.window_tokens
    }

    fn sequences(&self) -> usize {
        self.lengths.len()
    }

    fn chunk_tokens(&self) -> usize {
        CHUNK_TOKENS
    }

    fn cached_tokens(&self, sequence: usize) -> usize {
        self.lengths[sequence]
    }

    fn truncate(&mut self, sequence: usize, length: usize) {
        if length < self.lengths[sequence] {
            self.truncate_sequence(sequence, length);
        }
    }

    fn copy_prefix(&mut self, from: usize, into: usize, length: usize) {
        if from == into {
            return self.truncate(into, length);
        }
        self.truncate_sequence(into, 0);
        let length = length.min(self.lengths[from]);
        if length == 0 {
            return;
        }
        let (source, target) = (to_u32(from).cast_signed(), to_u32(into).cast_signed());
        let copied = self.run_on_thread(move |context| {
            context.copy_kv_cache_seq(source, target, Some(0), Some(to_u32(length))).is_ok()
        });
        self.lengths[into] = if copied == Ok(true) { length } else { 0 };
    }

    fn eval(
        &mut self,
        sequence: usize,
        tokens: &[u32],
        mut logits: Option<&mut Vec<f32>>,
    ) -> Result<(), String> {
        let mut remaining = tokens;
        while !remaining.is_empty() {
            let (chunk, after) = remaining.split_at(remaining.len().min(CHUNK_TOKENS));
            // Only the last chunk computes logits, into the caller's buffer.
            let mut buffer =
                || logits.as_mut().filter(|_| after.is_empty()).map(|logits| std::mem::take(*logits));
            let decoded = match self.decode_chunk(sequence, chunk, buffer()) {
                // All sequences share the cache space; evicted ones are evaluated again when needed.
                Err(_) if self.clear_other_sequences(sequence) => {
                    self.decode_chunk(sequence, chunk, buffer())
                }
                decoded => decoded,
            };
            if let (Some(filled), Some(logits)) = (decoded?, logits.as_mut()) {
                **logits = filled;
            }
            remaining = after;
        }
        Ok(())
    }
}

impl Drop for LlamaCpp {
    fn drop(&mut self) {
        self.tasks = None;
        // Waits until the thread has freed the model's memory; a panic of the thread no longer matters.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Body of the engine's thread: loads the model, reports its context window, runs tasks until the engine is dropped.
fn run_thread(
    path: &Path,
    options: &LlamaCppOptions,
    loaded_sender: &Sender<Result<usize, ModelFileError>>,
    tasks: Receiver<Task>,
) -> Result<(), ModelFileError> {
    let backend = backend()?;
    let model = LlamaModel::load_from_file(backend, path, &LlamaModelParams::default().with_n_gpu_layers(0))
        .map_err(|fault| format!("llama.cpp cannot load it: {fault}"))?;
    let vocabulary_size = usize::try_from(model.n_vocab()).unwrap_or(0);
    if vocabulary_size != options.vocabulary_size {
        return Err(format!(
            "llama.cpp finds {vocabulary_size} tokens in it, but its vocabulary lists {}",
            options.vocabulary_size
        ));
    }
    let trained = model.n_ctx_train().max(1) as usize;
    let window_tokens = options.window_tokens_max.map_or(trained, |max| max.clamp(1, trained));
    let threads = i32::try_from(options.threads.clamp(1, 256)).unwrap_or(1);
    let params = LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(to_u32(window_tokens)))
        .with_n_seq_max(to_u32(options.sequences.max(1)))
        .with_kv_unified(true)
        .with_n_batch(to_u32(CHUNK_TOKENS))
        .with_n_ubatch(to_u32(CHUNK_TOKENS))
        .with_n_threads(threads)
        .with_n_threads_batch(threads);
    let mut context = model.new_context(backend, params).map_err(|fault| {
        format!("llama.cpp cannot allocate a context window of {window_tokens} tokens: {fault}")
    })?;
    if loaded_sender.send(Ok(window_tokens)).is_ok() {
        tasks.into_iter().for_each(|task| task(&mut context));
    }
    Ok(())
}

fn decode(
    context: &mut LlamaContext<'_>,
    sequence: usize,
    position: usize,
    tokens: &[u32],
    logits: Option<Vec<f32>>,
) -> Result<Option<Vec<f32>>, DecodeError> {
    let mut batch = LlamaBatch::new(tokens.len(), 1);
    let sequence = to_u32(sequence).cast_signed();
    for (at, token) in tokens.iter().enumerate() {
        let is_last = at + 1 == tokens.len();
        let position = to_u32(position + at).cast_signed();
        batch
            .add(LlamaToken::new(token.cast_signed()), position, &[sequence], is_last && logits.is_some())
            .map_err(|_| DecodeError::NTokensZero)?;
    }
    context.decode(&mut batch)?;
    Ok(logits.map(|mut logits| {
        logits.clear();
        logits.extend_from_slice(context.get_logits_ith(batch.n_tokens() - 1));
        logits
    }))
}

/// Returns llama.cpp's backend, which is initialized once per process.
fn backend() -> Result<&'static LlamaBackend, ModelFileError> {
    static BACKEND: OnceLock<Result<LlamaBackend, ModelFileError>> = OnceLock::new();
    let backend = BACKEND.get_or_init(|| {
        let mut backend =
            LlamaBackend::init().map_err(|fault| format!("llama.cpp cannot be initialized: {fault}"))?;
        backend.void_logs();
        Ok(backend)
    });
    backend.as_ref().map_err(ModelFileError::clone)
}

/// Checks the instruction sets that llama.cpp is built for; without them it would end the process with SIGILL.
fn check_processor() -> Result<(), ModelFileError> {
    #[cfg(target_arch = "x86_64")]
    if !(std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("fma")
        && std::arch::is_x86_feature_detected!("f16c"))
    {
        return Err(
            "llama.cpp needs a processor with AVX2, FMA and F16C; use the engine own instead".to_owned()
        );
    }
    Ok(())
}

/// Converts a position, length or count, all of which are far below `u32::MAX`.
fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
