//! What a loaded model is asked and what it answers: the words of this crate's generation half.
//! The forward pass is in `engine`, the prompt in `chat`; sockets and queues are the server's.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// How a model file is loaded.
#[derive(Debug, Clone)]
pub struct LoadOptions {
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
        let _ = options;
        Err(LoadFault::Unusable {
            path: path.to_path_buf(),
            reason: "the engine is being written".to_owned(),
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
        text.len()
    }

    /// Answers `chat`; `each` gets the pieces as they come and says whether to go on.
    ///
    /// # Errors
    /// When the prompt does not fit, the request cannot be met, or the engine fails.
    pub fn answer(
        &mut self,
        chat: &Chat,
        each: &mut dyn FnMut(Piece<'_>) -> ControlFlow<()>,
    ) -> Result<Answered, AnswerFault> {
        let _ = (chat, each);
        Err(AnswerFault::Failed("the engine is being written".to_owned()))
    }
}
