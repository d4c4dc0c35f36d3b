//! What a loaded model is asked and what it answers: the words of this crate's generation half.
//! The forward pass is in `engine`, the prompt in `chat`; sockets and queues are the server's.

pub(crate) mod grammar;
pub(crate) mod opening;
pub(crate) mod outflow;
pub(crate) mod run;
pub(crate) mod sampler;
pub(crate) mod shelf;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::chat::prompt;
use crate::chat::template::{CALL_BEGINS, Template};
use crate::chat::tokens::Vocabulary;
use crate::engine::Engine;
use crate::engine::gguf::{Gguf, Wrong};
use crate::engine::map::map;
use crate::engine::own::OwnEngine;
use grammar::Grammars;
use run::{Halt, Run};
use sampler::Sampler;
use shelf::Shelf;

/// What computes a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// This crate.
    #[default]
    Own,
    /// llama.cpp, where it is part of the build.
    LlamaCpp,
}

impl EngineKind {
    /// Whether it is part of this build.
    #[must_use]
    pub fn is_built(self) -> bool {
        self == Self::Own || cfg!(feature = "llama-cpp")
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
    pub slots: usize,
}

/// A model in memory, ready to answer one chat at a time.
#[derive(Debug)]
pub struct LoadedModel {
    name: String,
    window_tokens: usize,
    vocabulary: Vocabulary,
    template: Template,
    engine: Box<dyn Engine>,
    shelf: Shelf,
    /// Made when the first answer needs one.
    grammars: Option<Grammars>,
}

/// One question to a model: the conversation and how to answer it.
#[derive(Debug, Clone)]
pub struct Chat {
    /// The conversation, oldest first.
    pub messages: Vec<ChatMessage>,
    /// Tools the model may call.
    pub tools: Vec<OfferedTool>,
    /// Whether it may, must or must not call one.
    pub choice: ToolChoice,
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
    pub calls: Vec<MadeCall>,
    /// Which call a tool's message answers.
    pub call_id: Option<String>,
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
pub struct MadeCall {
    /// Unique within its answer.
    pub id: String,
    /// The tool.
    pub name: String,
    /// A JSON object that satisfies the tool's schema.
    pub arguments: String,
}

/// A tool as the model sees it.
#[derive(Debug, Clone)]
pub struct OfferedTool {
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
pub enum Piece<'a> {
    /// The prompt is read so far.
    Read {
        /// Tokens read, those kept from before included.
        tokens: usize,
        /// Tokens of the whole prompt.
        of: usize,
    },
    /// The next text of the answer.
    Text(&'a str),
    /// A call, whole and valid.
    Call(&'a MadeCall),
}

/// How an answer went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Those of them that did not have to be computed again.
    pub cached_tokens: usize,
    /// Tokens of the answer.
    pub answer_tokens: usize,
    /// Why it ended.
    pub why: EndedBy,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedBy {
    /// The model was done, or said a stop text.
    Finished,
    /// The model called tools.
    Calls,
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
    NotBuilt,
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
pub enum AnswerFault {
    /// The prompt does not fit.
    #[error(
        "the prompt has {prompt_tokens} tokens, and the model's window holds {window_tokens}; shorten the conversation"
    )]
    TooLong {
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
            return Err(LoadFault::NotBuilt);
        }
        let bytes = map(path).map_err(|cause| LoadFault::Unreadable { path: path.to_path_buf(), cause })?;
        Self::read(path, &bytes, options)
            .map_err(|reason| LoadFault::Unusable { path: path.to_path_buf(), reason })
    }

    fn read(path: &Path, bytes: &[u8], options: &LoadOptions) -> Result<Self, Wrong> {
        let file = Gguf::read(bytes)?;
        let vocabulary = Vocabulary::read(&file)?;
        let template = Template::parse(file.text("tokenizer.chat_template"))?;
        let engine = load(path, &file, &vocabulary, options)?;
        let from_file = || {
            path.file_stem().map_or_else(|| "model".to_owned(), |stem| stem.to_string_lossy().into_owned())
        };
        let window = engine.window();
        Ok(Self {
            name: file.text("general.name").map_or_else(from_file, str::to_owned),
            window_tokens: options.window_tokens_max.map_or(window, |max| max.clamp(1, window)),
            shelf: Shelf::new(&*engine),
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
    pub fn count(&self, text: &str) -> usize {
        self.vocabulary.plain(text).len()
    }

    /// Answers `chat`; `each` gets the pieces as they come and says whether to go on. It is asked for every
    /// token: a token whose text is held back comes as an empty text.
    ///
    /// # Errors
    /// When the prompt does not fit, the request cannot be met, or the engine fails.
    pub fn answer(
        &mut self,
        chat: &Chat,
        each: &mut dyn FnMut(Piece<'_>) -> ControlFlow<()>,
    ) -> Result<Answered, AnswerFault> {
        let plan = Plan::of(chat)?;
        let mut text =
            prompt::render(chat, &self.template, &self.vocabulary).map_err(AnswerFault::Refused)?;
        if let Plan::Calls { .. } = plan {
            text = format!("{text}{CALL_BEGINS}\n");
        }
        let prompt = self.vocabulary.rendered(&text);
        if prompt.is_empty() || prompt.len() >= self.window_tokens {
            return Err(AnswerFault::TooLong {
                prompt_tokens: prompt.len(),
                window_tokens: self.window_tokens,
            });
        }
        if plan.needs_grammar() && self.grammars.is_none() {
            self.grammars = Some(Grammars::new(&self.vocabulary).map_err(AnswerFault::Failed)?);
        }
        let conversation = self.shelf.take(&mut *self.engine, &prompt);
        let cached_tokens = conversation.len();
        let room = self.window_tokens - prompt.len();
        let mut run = Run {
            vocabulary: &self.vocabulary,
            conversation,
            each,
            sampler: Sampler::new(chat.temperature, chat.top_p, chat.seed),
            window: self.window_tokens,
            left: chat.answer_tokens_max.map_or(room, |max| max.min(room)),
            answer_tokens: 0,
            calls: Vec::new(),
            mark: fingerprint(&prompt),
            scores: Vec::new(),
        };
        let ended =
            run.read_prompt(&prompt).and_then(|()| plan.carry_out(&mut run, chat, self.grammars.as_ref()));
        let why = match ended {
            Ok(why) => why,
            Err(Halt::Cancelled) => EndedBy::Cancelled,
            Err(Halt::Length) if run.calls.is_empty() => EndedBy::Length,
            Err(Halt::Length) => EndedBy::Calls,
            Err(Halt::Fault(fault)) => return Err(fault),
        };
        Ok(Answered { prompt_tokens: prompt.len(), cached_tokens, answer_tokens: run.answer_tokens, why })
    }
}

/// The engine that `options` choose, with the weights in memory.
fn load(
    path: &Path,
    file: &Gguf<'_>,
    vocabulary: &Vocabulary,
    options: &LoadOptions,
) -> Result<Box<dyn Engine>, Wrong> {
    let sequences = options.slots.clamp(1, 64);
    #[cfg(feature = "llama-cpp")]
    if options.engine == EngineKind::LlamaCpp {
        let wanted = crate::engine::llama_cpp::Wanted {
            vocabulary: vocabulary.len(),
            threads: options.threads,
            sequences,
            window_max: options.window_tokens_max,
        };
        return Ok(Box::new(crate::engine::llama_cpp::LlamaCpp::open(path, &wanted)?));
    }
    #[cfg(not(feature = "llama-cpp"))]
    let _ = path;
    Ok(Box::new(OwnEngine::read(file, vocabulary.len(), options.threads, sequences)?))
}

/// How an answer is made.
enum Plan {
    /// Text alone.
    Text,
    /// Text that may turn into calls of these tools.
    TextOrCalls(Vec<OfferedTool>),
    /// Calls of these tools, so many at most.
    Calls { tools: Vec<OfferedTool>, most: usize },
    /// What this schema wants.
    Schema(serde_json::Value),
    /// What this schema wants, or a call of one of these tools.
    SchemaOrCall(serde_json::Value, Vec<OfferedTool>),
}

impl Plan {
    fn of(chat: &Chat) -> Result<Self, AnswerFault> {
        let tools = chat.tools.clone();
        Ok(match (&chat.choice, &chat.schema) {
            (ToolChoice::Required, _) if tools.is_empty() => {
                return Err(AnswerFault::Refused("a call is required, but no tool is offered".to_owned()));
            }
            (ToolChoice::Required, _) => Self::Calls { tools, most: 8 },
            (ToolChoice::Named(name), _) => {
                let tools: Vec<_> = tools.into_iter().filter(|tool| tool.name == *name).collect();
                if tools.is_empty() {
                    return Err(AnswerFault::Refused(format!(
                        "tool {name} is to be called, but is not offered"
                    )));
                }
                Self::Calls { tools, most: 1 }
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

    fn carry_out(
        &self,
        run: &mut Run<'_>,
        chat: &Chat,
        grammars: Option<&Grammars>,
    ) -> Result<EndedBy, Halt> {
        let refused = |why| Halt::Fault(AnswerFault::Refused(why));
        let Some(grammars) = grammars.filter(|_| self.needs_grammar()) else {
            return run.text(&chat.stop, &[], &|| Err("no tool is offered".to_owned()));
        };
        match self {
            Self::Text => run.text(&chat.stop, &[], &|| Err("no tool is offered".to_owned())),
            Self::TextOrCalls(tools) => run.text(&chat.stop, tools, &|| grammars.calls(tools)),
            Self::Calls { tools, most } => run.calls(&|| grammars.calls(tools), *most),
            Self::Schema(schema) => run.held(&mut grammars.schema(schema).map_err(refused)?),
            Self::SchemaOrCall(schema, tools) => {
                let mut matcher = grammars.schema_or_calls(schema, tools).map_err(refused)?;
                run.held_or_call(&mut matcher, tools)
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
