//! The outside as an agent sees it. Other rooms implement these traits; tests use doubles.

use std::pin::Pin;
use std::sync::Arc;

use futures_core::Stream;

use crate::{Fault, Message, TokenCount, ToolCall, Usage};

/// What a model is asked.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// The system prompt.
    pub system: Option<Arc<str>>,
    /// The conversation, oldest first.
    pub messages: Vec<Arc<Message>>,
}

/// What a model sends back, piece by piece. A stream that ends before `Done` was cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelEvent {
    /// More text of the answer.
    Text(String),
    /// A whole tool call; half a call is never handed on.
    ToolCall(ToolCall),
    /// What the request used.
    Usage(Usage),
    /// The answer is complete.
    Done,
}

/// A model's answer on its way. Dropping it ends the request at once.
pub type ModelStream = Pin<Box<dyn Stream<Item = Result<ModelEvent, Fault>> + Send>>;

/// A model.
pub trait Provider: Send + Sync {
    /// Asks; nothing happens until the stream is polled.
    fn ask(&self, request: ModelRequest) -> ModelStream;

    /// The model's name, as the user chose it.
    fn model(&self) -> Option<&str>;

    /// How many tokens the model can take.
    fn window_tokens(&self) -> TokenCount;
}

/// A point in time: microseconds since 1970, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub i64);

/// Tells the time.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Moment;
}

/// Gives random bytes that nobody can guess.
pub trait Entropy: Send + Sync {
    /// Fills `bytes`.
    ///
    /// # Errors
    /// When the operating system gives none; nothing may be named by guessable bytes instead.
    fn fill(&self, bytes: &mut [u8]) -> Result<(), Fault>;
}
