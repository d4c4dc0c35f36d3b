//! What a loaded model is asked and what it answers: the words of this crate's generation half.
//! The forward pass is in `engine`, the prompt in `chat`; sockets and queues are the server's.

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
use run::{EarlyExit, GenerationRun};
use sampler::Sampler;

/// What computes a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// This crate.
    #[default]
    Native,
    /// llama.cpp, where it is part of the build.
    LlamaCpp,
}

impl EngineKind {
    /// Whether it is part of this build.
    #[must_use]
    pub fn is_built(self) -> bool {
        self == Self::Native || cfg!(feature = "llama-cpp")
    }
}

/// How a model file is loaded.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// What computes it.
    pub engine: EngineKind,
    /// Threads that compute; 1 computes on the caller's thread.
    pub threads: usize,
    /// The longest context; the file's own limit when `None` or larger than it.
    pub window_tokens_max: Option<usize>,
    /// How many conversations keep their computed prefix.
    pub sequences: usize,
}

/// A model in memory, ready to answer one chat at a time.
#[derive(Debug)]
pub struct LoadedModel {
    name: String,
    window_tokens: usize,
    vocabulary: Vocabulary,
    template: Template,
    engine: Box<dyn Engine>,
    prompt_cache: PromptCache,
    /// Made when the first answer needs one.
    grammars: Option<GrammarFactory>,
}

/// One question to a model: the conversation and how to answer it.
#[derive(Debug, Clone)]
pub struct Chat {
    /// The conversation, oldest first.
    pub messages: Vec<ChatMessage>,
    /// Tools the model may call.
    pub tools: Vec<ChatTool>,
    /// Whether it may, must or must not call one.
    pub tool_choice: ToolChoice,
    /// The JSON schema that the answer has to satisfy.
    pub schema: Option<serde_json::Value>,
    /// The most tokens of an answer; what the window leaves when `None`.
    pub answer_tokens_max: Option<usize>,
    /// 0 takes the likeliest token each time.
    pub temperature: f32,
    /// Draw only from the likeliest tokens that together reach this share; 1 draws from all.
    pub top_p: f32,
    /// The same seed draws the same tokens.
    pub seed: u64,
    /// Texts that end the answer; they are not part of it.
    pub stop: Vec<String>,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatMessage {
    /// Who said it.
    pub role: ChatRole,
    /// What was said.
    pub text: String,
    /// The calls an assistant made with it.
    pub tool_calls: Vec<ChatToolCall>,
    /// Which call a tool's message answers.
    pub tool_call_id: Option<String>,
}

/// Who said a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatRole {
    /// The instructions.
    System,
    /// The person or program that asks.
    User,
    /// The model.
    Assistant,
    /// The result of a call.
    Tool,
}

/// A call that a model made, whole and valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatToolCall {
    /// Unique within its answer.
    pub id: String,
    /// The tool.
    pub name: String,
    /// A JSON object that satisfies the tool's schema.
    pub arguments: String,
}

/// A tool as the model sees it.
#[derive(Debug, Clone)]
pub struct ChatTool {
    /// What it is called by.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON schema of its arguments.
    pub parameters: serde_json::Value,
}

/// Whether a model calls a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolChoice {
    /// As the model likes.
    Auto,
    /// It has to call one.
    Required,
    /// It has to call this one.
    Named(String),
    /// It must not.
    None,
}

/// What comes while a model answers.
#[derive(Debug)]
pub enum GenerationEvent<'a> {
    /// The prompt is read so far.
    PromptProgress {
        /// Tokens read, those kept from before included.
        tokens: usize,
        /// Tokens of the whole prompt.
        total_tokens: usize,
    },
    /// The next text of the answer.
    Text(&'a str),
    /// A call, whole and valid.
    ToolCall(&'a ChatToolCall),
}

/// How an answer went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GenerationSummary {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Those of them that did not have to be computed again.
    pub cached_tokens: usize,
    /// Tokens of the answer.
    pub answer_tokens: usize,
    /// Why it ended.
    pub finish_reason: FinishReason,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// The model was done, or said a stop text.
    Stop,
    /// The model called tools.
    ToolCalls,
    /// The limit of tokens was reached.
    Length,
    /// The callback said stop.
    Cancelled,
}

/// Why a model file could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadFault {
    /// The file cannot be opened or read.
    #[error("model file {path} cannot be read: {cause}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The engine is not part of this build.
    #[error(
        "llama.cpp is not part of this program; build it with `cargo build --release --features llama-cpp`"
    )]
    EngineNotBuilt,
    /// The file is no model that this engine runs; the reason names what is wrong.
    #[error("model file {path} cannot be used: {reason}")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// Why a chat could not be answered.
#[derive(Debug, thiserror::Error)]
pub enum GenerationFault {
    /// The prompt does not fit.
    #[error(
        "the prompt has {prompt_tokens} tokens, and the model's window holds {window_tokens}; shorten the conversation"
    )]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Tokens of the window.
        window_tokens: usize,
    },
    /// The request asks for something that cannot be done; the reason names it.
    #[error("{0}")]
    Refused(String),
    /// The engine failed.
    #[error("the model failed: {0}")]
    Failed(String),
}

impl LoadedModel {
    /// Reads the file at `path` into memory.
    ///
    /// # Errors
    /// When the file cannot be read, or is no model that this engine runs.
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
        let from_file = || {
            path.file_stem().map_or_else(|| "model".to_owned(), |stem| stem.to_string_lossy().into_owned())
        };
        let window = engine.window_tokens();
        Ok(Self {
            name: file.text("general.name").map_or_else(from_file, str::to_owned),
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

    /// The longest context it takes, answer included.
    #[must_use]
    pub fn window_tokens(&self) -> usize {
        self.window_tokens
    }

    /// How many tokens `text` is.
    #[must_use]
    pub fn count_tokens(&self, text: &str) -> usize {
        self.vocabulary.encode_plain(text).len()
    }

    /// Answers `chat`; `each` gets the pieces as they come and says whether to go on. It is asked for every
    /// token: a token whose text is held back comes as an empty text.
    ///
    /// # Errors
    /// When the prompt does not fit, the request cannot be met, or the engine fails.
    pub fn generate(
        &mut self,
        chat: &Chat,
        each: &mut dyn FnMut(GenerationEvent<'_>) -> ControlFlow<()>,
    ) -> Result<GenerationSummary, GenerationFault> {
        let plan = GenerationPlan::from_chat(chat)?;
        let mut text =
            prompt::render(chat, &self.template, &self.vocabulary).map_err(GenerationFault::Refused)?;
        if let GenerationPlan::Calls { .. } = plan {
            text = format!("{text}{CALL_START_TAG}\n");
        }
        let prompt = self.vocabulary.encode_rendered(&text);
        if prompt.is_empty() || prompt.len() >= self.window_tokens {
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
        let room = self.window_tokens - prompt.len();
        let mut run = GenerationRun {
            vocabulary: &self.vocabulary,
            conversation,
            on_event: each,
            sampler: Sampler::new(chat.temperature, chat.top_p, chat.seed),
            window_tokens: self.window_tokens,
            tokens_left: chat.answer_tokens_max.map_or(room, |max| max.min(room)),
            answer_tokens: 0,
            calls: Vec::new(),
            prompt_hash: fingerprint(&prompt),
            logits: Vec::new(),
        };
        let ended = run.prefill(&prompt).and_then(|()| plan.execute(&mut run, chat, self.grammars.as_ref()));
        let why = match ended {
            Ok(why) => why,
            Err(EarlyExit::Cancelled) => FinishReason::Cancelled,
            Err(EarlyExit::Length) if run.calls.is_empty() => FinishReason::Length,
            Err(EarlyExit::Length) => FinishReason::ToolCalls,
            Err(EarlyExit::Fault(fault)) => return Err(fault),
        };
        Ok(GenerationSummary {
            prompt_tokens: prompt.len(),
            cached_tokens,
            answer_tokens: run.answer_tokens,
            finish_reason: why,
        })
    }
}

/// The engine that `options` choose, with the weights in memory.
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

/// How an answer is made.
enum GenerationPlan {
    /// Text alone.
    Text,
    /// Text that may turn into calls of these tools.
    TextOrCalls(Vec<ChatTool>),
    /// Calls of these tools, so many at most.
    Calls { tools: Vec<ChatTool>, calls_max: usize },
    /// What this schema wants.
    Schema(serde_json::Value),
    /// What this schema wants, or a call of one of these tools.
    SchemaOrCall(serde_json::Value, Vec<ChatTool>),
}

impl GenerationPlan {
    fn from_chat(chat: &Chat) -> Result<Self, GenerationFault> {
        let tools = chat.tools.clone();
        Ok(match (&chat.tool_choice, &chat.schema) {
            (ToolChoice::Required, _) if tools.is_empty() => {
                return Err(GenerationFault::Refused(
                    "a call is required, but no tool is offered".to_owned(),
                ));
            }
            (ToolChoice::Required, _) => Self::Calls { tools, calls_max: 8 },
            (ToolChoice::Named(name), _) => {
                let tools: Vec<_> = tools.into_iter().filter(|tool| tool.name == *name).collect();
                if tools.is_empty() {
                    return Err(GenerationFault::Refused(format!(
                        "tool {name} is to be called, but is not offered"
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
        let refused = |why| EarlyExit::Fault(GenerationFault::Refused(why));
        let Some(grammars) = grammars.filter(|_| self.needs_grammar()) else {
            return run.generate_text(&chat.stop, &[], &|| Err("no tool is offered".to_owned()));
        };
        match self {
            Self::Text => run.generate_text(&chat.stop, &[], &|| Err("no tool is offered".to_owned())),
            Self::TextOrCalls(tools) => run.generate_text(&chat.stop, tools, &|| grammars.calls(tools)),
            Self::Calls { tools, calls_max: most } => run.generate_calls(&|| grammars.calls(tools), *most),
            Self::Schema(schema) => run.generate_constrained(&mut grammars.schema(schema).map_err(refused)?),
            Self::SchemaOrCall(schema, tools) => {
                let mut matcher = grammars.schema_or_calls(schema, tools).map_err(refused)?;
                run.generate_constrained_or_call(&mut matcher, tools)
            }
        }
    }
}

/// A number that differs between prompts.
fn fingerprint(prompt: &[u32]) -> u64 {
    prompt
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, token| (hash ^ u64::from(*token)).wrapping_mul(0x0100_0000_01b3))
}
