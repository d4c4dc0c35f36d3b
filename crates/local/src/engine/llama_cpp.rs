//! llama.cpp behind the words that all engines have; part of the build with the feature `llama-cpp`. Its context borrows
//! its model, so both live on a thread of their own, which does what it is sent and ends with the engine.

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
use super::gguf::Wrong;

/// Tokens read at once.
const CHUNK: usize = 128;

type Work = Box<dyn FnOnce(&mut LlamaContext<'_>) + Send>;

/// How a model is loaded.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// Tokens of the vocabulary, as the file says.
    pub(crate) vocabulary: usize,
    pub(crate) threads: usize,
    pub(crate) sequences: usize,
    /// The longest sequence; the file's own limit when `None` or larger than it.
    pub(crate) window_max: Option<usize>,
}

/// A model that llama.cpp computes.
#[derive(Debug)]
pub(crate) struct LlamaCpp {
    window: usize,
    /// How long each sequence is.
    lengths: Vec<usize>,
    work: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
}

impl LlamaCpp {
    /// Loads the file at `path`.
    pub(crate) fn open(path: &Path, wanted: &Wanted) -> Result<Self, Wrong> {
        check_processor()?;
        let sequences = wanted.sequences.max(1);
        let (started, start) = channel();
        let (work, works) = channel();
        let (path, wanted) = (path.to_path_buf(), wanted.clone());
        let live = move || match live(&path, &wanted, &started, works) {
            Ok(()) => {}
            // Whoever waits for the start hears it; there is nobody else.
            Err(wrong) => drop(started.send(Err(wrong))),
        };
        let thread = std::thread::Builder::new().name("llama-cpp".to_owned()).spawn(live);
        let thread = thread.map_err(|fault| format!("its thread cannot be started: {fault}"))?;
        let window = start.recv().map_err(|_| "llama.cpp ended while it was loaded".to_owned())??;
        Ok(Self { window, lengths: vec![0; sequences], work: Some(work), thread: Some(thread) })
    }

    /// Has `work` done by the thread. A panic there is one here.
    fn with<R: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut LlamaContext<'_>) -> R + Send + 'static,
    ) -> Result<R, String> {
        let (done, result) = channel();
        // Nobody waits for the result of work whose sender has gone.
        let work: Work = Box::new(move |context| drop(done.send(work(context))));
        let sent = self.work.as_ref().is_some_and(|thread| thread.send(work).is_ok());
        if let (true, Ok(result)) = (sent, result.recv()) {
            return Ok(result);
        }
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
        Err("llama.cpp has ended".to_owned())
    }

    fn forget(&mut self, sequence: usize, from: usize) {
        let id = narrow(sequence);
        let cut = self.with(move |context| context.clear_kv_cache_seq(Some(id), Some(narrow(from)), None));
        self.lengths[sequence] = if let Ok(Ok(true)) = cut { from } else { 0 };
        if self.lengths[sequence] < from {
            // What cannot be cut is thrown away as a whole, which always works.
            let _ = self.with(move |context| context.clear_kv_cache_seq(Some(id), None, None).is_ok());
        }
    }

    /// Reads one chunk; gives its scores when they are wanted.
    fn read(
        &mut self,
        sequence: usize,
        chunk: &[u32],
        scores: Option<Vec<f32>>,
    ) -> Result<Option<Vec<f32>>, String> {
        let (tokens, from) = (chunk.to_vec(), self.lengths[sequence]);
        let read = move |context: &mut LlamaContext<'_>| decode(context, sequence, from, &tokens, scores);
        let read = self.with(read)?;
        match read {
            Ok(_) => self.lengths[sequence] = from + chunk.len(),
            Err(_) => self.forget(sequence, from),
        }
        read.map_err(|fault| fault.to_string())
    }

    fn forget_others(&mut self, sequence: usize) -> bool {
        let others: Vec<usize> =
            (0..self.lengths.len()).filter(|other| *other != sequence && self.lengths[*other] > 0).collect();
        others.iter().for_each(|other| self.forget(*other, 0));
        !others.is_empty()
    }
}

impl Engine for LlamaCpp {
    fn window(&self) -> usize {
        self.window
    }

    fn sequences(&self) -> usize {
        self.lengths.len()
    }

    fn chunk(&self) -> usize {
        CHUNK
    }

    fn kept(&self, sequence: usize) -> usize {
        self.lengths[sequence]
    }

    fn truncate(&mut self, sequence: usize, length: usize) {
        if length < self.lengths[sequence] {
            self.forget(sequence, length);
        }
    }

    fn copy(&mut self, from: usize, into: usize, length: usize) {
        if from == into {
            return self.truncate(into, length);
        }
        self.forget(into, 0);
        let length = length.min(self.lengths[from]);
        if length == 0 {
            return;
        }
        let (source, target) = (narrow(from).cast_signed(), narrow(into).cast_signed());
        let copied = self.with(move |context| {
            context.copy_kv_cache_seq(source, target, Some(0), Some(narrow(length))).is_ok()
        });
        self.lengths[into] = if copied == Ok(true) { length } else { 0 };
    }

    fn eval(
        &mut self,
        sequence: usize,
        tokens: &[u32],
        mut scores: Option<&mut Vec<f32>>,
    ) -> Result<(), String> {
        let mut rest = tokens;
        while !rest.is_empty() {
            let (chunk, behind) = rest.split_at(rest.len().min(CHUNK));
            let mut room = || scores.as_mut().filter(|_| behind.is_empty()).map(|room| std::mem::take(*room));
            let read = match self.read(sequence, chunk, room()) {
                // All sequences share the room; the others are computed again when they are needed.
                Err(_) if self.forget_others(sequence) => self.read(sequence, chunk, room()),
                read => read,
            };
            if let (Some(filled), Some(scores)) = (read?, scores.as_mut()) {
                **scores = filled;
            }
            rest = behind;
        }
        Ok(())
    }
}

impl Drop for LlamaCpp {
    fn drop(&mut self) {
        self.work = None;
        // The memory is back when the thread has ended; how it ended matters to nobody any more.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The life of the thread: loads the model, says how long its window is, works until nobody can send any more.
fn live(
    path: &Path,
    wanted: &Wanted,
    started: &Sender<Result<usize, Wrong>>,
    works: Receiver<Work>,
) -> Result<(), Wrong> {
    let backend = backend()?;
    let model = LlamaModel::load_from_file(backend, path, &LlamaModelParams::default().with_n_gpu_layers(0))
        .map_err(|fault| format!("llama.cpp does not load it: {fault}"))?;
    let vocabulary = usize::try_from(model.n_vocab()).unwrap_or(0);
    if vocabulary != wanted.vocabulary {
        return Err(format!(
            "llama.cpp finds {vocabulary} tokens in it, and its list has {}",
            wanted.vocabulary
        ));
    }
    let trained = model.n_ctx_train().max(1) as usize;
    let window = wanted.window_max.map_or(trained, |max| max.clamp(1, trained));
    let threads = i32::try_from(wanted.threads.clamp(1, 256)).unwrap_or(1);
    let params = LlamaContextParams::default()
        .with_n_ctx(NonZeroU32::new(narrow(window)))
        .with_n_seq_max(narrow(wanted.sequences.max(1)))
        .with_kv_unified(true)
        .with_n_batch(narrow(CHUNK))
        .with_n_ubatch(narrow(CHUNK))
        .with_n_threads(threads)
        .with_n_threads_batch(threads);
    let mut context = model
        .new_context(backend, params)
        .map_err(|fault| format!("llama.cpp has no room for its window of {window} tokens: {fault}"))?;
    if started.send(Ok(window)).is_ok() {
        works.into_iter().for_each(|work| work(&mut context));
    }
    Ok(())
}

fn decode(
    context: &mut LlamaContext<'_>,
    sequence: usize,
    from: usize,
    tokens: &[u32],
    scores: Option<Vec<f32>>,
) -> Result<Option<Vec<f32>>, DecodeError> {
    let mut batch = LlamaBatch::new(tokens.len(), 1);
    let sequence = narrow(sequence).cast_signed();
    for (at, token) in tokens.iter().enumerate() {
        let is_last = at + 1 == tokens.len();
        let position = narrow(from + at).cast_signed();
        batch
            .add(LlamaToken::new(token.cast_signed()), position, &[sequence], is_last && scores.is_some())
            .map_err(|_| DecodeError::NTokensZero)?;
    }
    context.decode(&mut batch)?;
    Ok(scores.map(|mut scores| {
        scores.clear();
        scores.extend_from_slice(context.get_logits_ith(batch.n_tokens() - 1));
        scores
    }))
}

/// What llama.cpp prepares once per process.
fn backend() -> Result<&'static LlamaBackend, Wrong> {
    static BACKEND: OnceLock<Result<LlamaBackend, Wrong>> = OnceLock::new();
    let ready = BACKEND.get_or_init(|| {
        let mut backend =
            LlamaBackend::init().map_err(|fault| format!("llama.cpp does not start: {fault}"))?;
        backend.void_logs();
        Ok(backend)
    });
    ready.as_ref().map_err(Wrong::clone)
}

/// It is built for such processors, and would end the process on another one.
fn check_processor() -> Result<(), Wrong> {
    #[cfg(target_arch = "x86_64")]
    if !(std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("fma")
        && std::arch::is_x86_feature_detected!("f16c"))
    {
        return Err(
            "llama.cpp needs a processor with AVX2, FMA and F16C; the own engine runs without".to_owned()
        );
    }
    Ok(())
}

/// Positions and lengths are far below this.
fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
