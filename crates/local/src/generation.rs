//! Text generation with a loaded model: the request and response types, and how a chat request is planned and run.
//! `engine` computes logits, `chat` renders the prompt, `server` owns sockets and queues.

pub(crate) mod call_detector;
pub(crate) mod grammar;
pub(crate) mod prompt_cache;
pub(crate) mod run;
pub(crate) mod sampler;
pub(crate) mod text_decoder;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::chat::prompt;
use crate::chat::template::{CALL_START_TAG, Template};
use crate::chat::vocabulary::Vocabulary;
use crate::engine::Engine;
use crate::engine::gguf::{Gguf, ModelFileError};
use crate::engine::mmap::map_file;
use crate::engine::native::NativeEngine;
use grammar::GrammarFactory;
use prompt_cache::PromptCache;
use run::{EarlyExit, GenerationRun, RESPONSE_CALLS_MAX};
use sampler::Sampler;

/// Inference engine of a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// The engine of this crate; the settings call it `own`.
    #[default]
    Native,
    /// llama.cpp, if built with the feature `llama-cpp`.
    LlamaCpp,
}

impl EngineKind {
    /// Whether this build contains the engine.
    #[must_use]
    pub fn is_built(self) -> bool {
        self == Self::Native || cfg!(feature = "llama-cpp")
    }
}

/// Load options of a model file.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// Inference engine.
    pub engine: EngineKind,
    /// Number of compute threads; 1 computes on the caller's thread.
    pub threads: usize,
    /// Largest context window; the file's own limit when `None` or larger than it.
    pub window_tokens_max: Option<usize>,
    /// Number of conversations whose prefix stays in the KV cache.
    pub sequences: usize,
}

/// A model in memory; generates one response at a time.
#[derive(Debug)]
pub struct LoadedModel {
    name: String,
    window_tokens: usize,
    vocabulary: Vocabulary,
    template: Template,
    engine: Box<dyn Engine>,
    prompt_cache: PromptCache,
    /// Created by the first request that needs a grammar.
    grammars: Option<GrammarFactory>,
}

/// A chat request: the conversation and the generation parameters.
#[derive(Debug, Clone)]
pub struct Chat {
    /// The conversation, oldest first.
    pub messages: Vec<ChatMessage>,
    /// Tools the model may call.
    pub tools: Vec<ChatTool>,
    /// Whether the model may, must or must not call a tool.
    pub tool_choice: ToolChoice,
    /// JSON schema that the response must satisfy.
    pub schema: Option<serde_json::Value>,
    /// Most tokens of the response; the rest of the context window when `None`.
    pub answer_tokens_max: Option<usize>,
    /// Sampling temperature; 0 is greedy decoding.
    pub temperature: f32,
    /// Nucleus sampling: samples only the likeliest tokens with this total probability; 1 samples all.
    pub top_p: f32,
    /// Seed of the sampler; the same seed samples the same tokens.
    pub seed: u64,
    /// Stop sequences; each ends the response and is not part of it.
    pub stop: Vec<String>,
}

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatMessage {
    /// Author of the message.
    pub role: ChatRole,
    /// Text content.
    pub text: String,
    /// Tool calls of an assistant message.
    pub tool_calls: Vec<ChatToolCall>,
    /// Id of the call whose result a tool message holds.
    pub tool_call_id: Option<String>,
}

/// Author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatRole {
    /// System instructions.
    System,
    /// The user or client.
    User,
    /// The model.
    Assistant,
    /// A tool result.
    Tool,
}

/// A complete and valid tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatToolCall {
    /// Id, unique within its response.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// JSON object that satisfies the tool's schema.
    pub arguments: String,
}

/// A tool definition.
#[derive(Debug, Clone)]
pub struct ChatTool {
    /// Name that calls use.
    pub name: String,
    /// Description for the model.
    pub description: String,
    /// JSON schema of the arguments.
    pub parameters: serde_json::Value,
}

/// Whether the model calls tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    Auto,
    /// The model must call a tool.
    Required,
    /// The model must call this tool.
    Named(String),
    /// The model must not call a tool.
    None,
}

/// Streaming event of a generation.
#[derive(Debug)]
pub enum GenerationEvent<'a> {
    /// Progress of the prompt evaluation.
    PromptProgress {
        /// Tokens evaluated so far, including cached ones.
        tokens: usize,
        /// Tokens of the whole prompt.
        total_tokens: usize,
    },
    /// The next text of the response.
    Text(&'a str),
    /// A complete and valid tool call.
    ToolCall(&'a ChatToolCall),
}

/// Result of a generation: token counts and finish reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GenerationSummary {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens of the prompt that came from the KV cache.
    pub cached_tokens: usize,
    /// Tokens of the response.
    pub answer_tokens: usize,
    /// Why the response ended.
    pub finish_reason: FinishReason,
}

/// Why a response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended its turn or generated a stop sequence.
    Stop,
    /// The model called tools.
    ToolCalls,
    /// The token limit was reached, or the response repeated itself.
    Length,
    /// The callback cancelled the generation.
    Cancelled,
}

/// Failure to load a model file.
#[derive(Debug, thiserror::Error)]
pub enum LoadFault {
    /// The file cannot be opened or read.
    #[error("model file {path} cannot be read: {cause}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        cause: std::io::Error,
    },
    /// This build does not contain the engine.
    #[error("engine llama-cpp is not in this build; build with `cargo build --release --features llama-cpp`")]
    EngineNotBuilt,
    /// The file is not a model that this engine supports.
    #[error("model file {path} cannot be used: {reason}")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why the file was rejected.
        reason: String,
    },
}

/// Failure to generate a response.
#[derive(Debug, thiserror::Error)]
pub enum GenerationFault {
    /// The prompt exceeds the context window.
    #[error(
        "the prompt has {prompt_tokens} tokens, and the model's window holds {window_tokens}; shorten the conversation"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Tokens of the context window.
        window_tokens: usize,
    },
    /// The request is invalid or cannot be fulfilled.
    #[error("{0}")]
    Refused(String),
    /// The engine failed.
    #[error("the model failed: {0}")]
    Failed(String),
}

impl LoadedModel {
    /// Loads the file at `path`.
    ///
    /// # Errors
    /// When the file cannot be read, or is not a model that this engine supports.
    pub fn open(path: &Path, options: &LoadOptions) -> Result<Self, LoadFault> {
        if !options.engine.is_built() {
            return Err(LoadFault::EngineNotBuilt);
        }
        let bytes =
            map_file(path).map_err(|cause| LoadFault::Unreadable { path: path.to_path_buf(), cause })?;
        Self::from_bytes(path, &bytes, options)
            .map_err(|reason| LoadFault::Unusable { path: path.to_path_buf(), reason })
    }

    fn from_bytes(path: &Path, bytes: &[u8], options: &LoadOptions) -> Result<Self, ModelFileError> {
        let file = Gguf::read(bytes)?;
        let vocabulary = Vocabulary::read(&file)?;
        let template = Template::parse(file.text("tokenizer.chat_template"))?;
        let engine = load_engine(path, &file, &vocabulary, options)?;
        let name_from_path = || {
            path.file_stem().map_or_else(|| "model".to_owned(), |stem| stem.to_string_lossy().into_owned())
        };
        let window = engine.window_tokens();
        Ok(Self {
            name: file.text("general.name").map_or_else(name_from_path, str::to_owned),
            window_tokens: options.window_tokens_max.map_or(window, |max| max.clamp(1, window)),
            prompt_cache: PromptCache::new(&*engine),
            vocabulary,
            template,
            engine,
            grammars: None,
        })
    }

    /// The model's name: `general.name` of the file, or the file's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Context window in tokens, including the response.
    #[must_use]
    pub fn window_tokens(&self) -> usize {
        self.window_tokens
    }

    /// Counts the tokens of a plain text.
    #[must_use]
    pub fn count_tokens(&self, text: &str) -> usize {
        self.vocabulary.encode_plain(text).len()
    }

    /// Generates the response to `chat`. `on_event` gets each event and can cancel by returning `Break`. It is called
    /// at least once per token of text or of a call: for a token whose text is held back it gets an empty text. Only
    /// the tags between calls are generated without an event.
    ///
    /// # Errors
    /// When the prompt exceeds the context window, the request cannot be fulfilled, or the engine fails.
    pub fn generate(
        &mut self,
        chat: &Chat,
        on_event: &mut dyn FnMut(GenerationEvent<'_>) -> ControlFlow<()>,
    ) -> Result<GenerationSummary, GenerationFault> {
        let plan = GenerationPlan::from_chat(chat)?;
        let mut text =
            prompt::render(chat, &self.template, &self.vocabulary).map_err(GenerationFault::Refused)?;
        if let GenerationPlan::Calls { .. } = plan {
            text = format!("{text}{CALL_START_TAG}\n");
        }
        let prompt = self.vocabulary.encode_rendered(&text);
        if prompt.is_empty() {
            let text = "the prompt is empty: send at least one message with text";
            return Err(GenerationFault::Refused(text.to_owned()));
        }
        if prompt.len() >= self.window_tokens {
            return Err(GenerationFault::PromptTooLong {
                prompt_tokens: prompt.len(),
                window_tokens: self.window_tokens,
            });
        }
        if plan.needs_grammar() && self.grammars.is_none() {
            self.grammars = Some(GrammarFactory::new(&self.vocabulary).map_err(GenerationFault::Failed)?);
        }
        let conversation = self.prompt_cache.acquire(&mut *self.engine, &prompt);
        let cached_tokens = conversation.len();
        let available = self.window_tokens - prompt.len();
        let mut run = GenerationRun {
            vocabulary: &self.vocabulary,
            conversation,
            on_event,
            sampler: Sampler::new(chat.temperature, chat.top_p, chat.seed),
            window_tokens: self.window_tokens,
            tokens_left: chat.answer_tokens_max.map_or(available, |max| max.min(available)),
            answer_tokens: 0,
            calls: Vec::new(),
            prompt_hash: hash_prompt(&prompt),
            logits: Vec::new(),
        };
        let outcome =
            run.prefill(&prompt).and_then(|()| plan.execute(&mut run, chat, self.grammars.as_ref()));
        let finish_reason = match outcome {
            Ok(finish_reason) => finish_reason,
            Err(EarlyExit::Cancelled) => FinishReason::Cancelled,
            Err(EarlyExit::Length) if run.calls.is_empty() => FinishReason::Length,
            Err(EarlyExit::Length) => FinishReason::ToolCalls,
            Err(EarlyExit::Fault(fault)) => return Err(fault),
        };
        Ok(GenerationSummary {
            prompt_tokens: prompt.len(),
            cached_tokens,
            answer_tokens: run.answer_tokens,
            finish_reason,
        })
    }
}

/// Loads the engine that `options` select.
fn load_engine(
    path: &Path,
    file: &Gguf<'_>,
    vocabulary: &Vocabulary,
    options: &LoadOptions,
) -> Result<Box<dyn Engine>, ModelFileError> {
    let sequences = options.sequences.clamp(1, 64);
    #[cfg(feature = "llama-cpp")]
    if options.engine == EngineKind::LlamaCpp {
        let options = crate::engine::llama_cpp::LlamaCppOptions {
            vocabulary_size: vocabulary.len(),
            threads: options.threads,
            sequences,
            window_tokens_max: options.window_tokens_max,
        };
        return Ok(Box::new(crate::engine::llama_cpp::LlamaCpp::open(path, &options)?));
    }
    #[cfg(not(feature = "llama-cpp"))]
    let _ = path;
    Ok(Box::new(NativeEngine::read(file, vocabulary.len(), options.threads, sequences)?))
}

/// Kind of output to generate.
enum GenerationPlan {
    /// Text only.
    Text,
    /// Text, or calls of these tools.
    TextOrCalls(Vec<ChatTool>),
    /// Calls of these tools, at most `calls_max`.
    Calls { tools: Vec<ChatTool>, calls_max: usize },
    /// JSON that satisfies this schema.
    Schema(serde_json::Value),
    /// JSON that satisfies this schema, or a call of one of these tools.
    SchemaOrCall(serde_json::Value, Vec<ChatTool>),
}

impl GenerationPlan {
    fn from_chat(chat: &Chat) -> Result<Self, GenerationFault> {
        let tools = chat.tools.clone();
        Ok(match (&chat.tool_choice, &chat.schema) {
            (ToolChoice::Required, _) if tools.is_empty() => {
                return Err(GenerationFault::Refused(
                    "tool_choice requires a call, but the request has no tools".to_owned(),
                ));
            }
            (ToolChoice::Required, _) => Self::Calls { tools, calls_max: RESPONSE_CALLS_MAX },
            (ToolChoice::Named(name), _) => {
                let tools: Vec<_> = tools.into_iter().filter(|tool| tool.name == *name).collect();
                if tools.is_empty() {
                    return Err(GenerationFault::Refused(format!(
                        "tool_choice names {name}, which is not one of the request's tools"
                    )));
                }
                Self::Calls { tools, calls_max: 1 }
            }
            (ToolChoice::Auto, Some(schema)) if !tools.is_empty() => {
                Self::SchemaOrCall(schema.clone(), tools)
            }
            (_, Some(schema)) => Self::Schema(schema.clone()),
            (ToolChoice::Auto, None) if !tools.is_empty() => Self::TextOrCalls(tools),
            (ToolChoice::Auto | ToolChoice::None, None) => Self::Text,
        })
    }

    fn needs_grammar(&self) -> bool {
        !matches!(self, Self::Text)
    }

    fn execute(
        &self,
        run: &mut GenerationRun<'_>,
        chat: &Chat,
        grammars: Option<&GrammarFactory>,
    ) -> Result<FinishReason, EarlyExit> {
        let refused = |reason| EarlyExit::Fault(GenerationFault::Refused(reason));
        let Some(grammars) = grammars.filter(|_| self.needs_grammar()) else {
            return run.generate_text(&chat.stop, &[], &|| Err("the request has no tools".to_owned()));
        };
        match self {
            Self::Text => run.generate_text(&chat.stop, &[], &|| Err("the request has no tools".to_owned())),
            Self::TextOrCalls(tools) => run.generate_text(&chat.stop, tools, &|| grammars.calls(tools)),
            Self::Calls { tools, calls_max } => run.generate_calls(&|| grammars.calls(tools), *calls_max),
            Self::Schema(schema) => run.generate_constrained(&mut grammars.schema(schema).map_err(refused)?),
            Self::SchemaOrCall(schema, tools) => {
                let mut matcher = grammars.schema_or_calls(schema, tools).map_err(refused)?;
                run.generate_constrained_or_call(&mut matcher, tools)
            }
        }
    }
}

/// FNV-1a hash of the prompt, one step per token.
fn hash_prompt(prompt: &[u32]) -> u64 {
    prompt
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, token| (hash ^ u64::from(*token)).wrapping_mul(0x0100_0000_01b3))
}
