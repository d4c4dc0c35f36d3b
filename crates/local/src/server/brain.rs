//! What the workers need of a model. The server's tests put scripted ones here; the real ones are in `generation` and
//! `embed`.

use std::ops::ControlFlow;

use crate::embed::Embedder;
use crate::generation::{AnswerFault, Answered, Chat, LoadedModel, Piece};

/// What answers chats.
pub(super) trait Brain {
    /// The longest context, answer included.
    fn window_tokens(&self) -> usize;

    /// Answers; `each` gets the pieces as they come and says whether to go on.
    fn answer(
        &mut self,
        chat: &Chat,
        each: &mut dyn FnMut(Piece<'_>) -> ControlFlow<()>,
    ) -> Result<Answered, AnswerFault>;
}

impl Brain for LoadedModel {
    fn window_tokens(&self) -> usize {
        LoadedModel::window_tokens(self)
    }

    fn answer(
        &mut self,
        chat: &Chat,
        each: &mut dyn FnMut(Piece<'_>) -> ControlFlow<()>,
    ) -> Result<Answered, AnswerFault> {
        LoadedModel::answer(self, chat, each)
    }
}

/// Brings a model into memory, on the thread that will own it; the text says why it could not.
pub(super) type Load<T> = Box<dyn FnMut() -> Result<Box<T>, String> + Send>;

/// What there is to serve.
pub(super) struct Engines {
    pub(super) brain: Option<Load<dyn Brain>>,
    pub(super) embedder: Option<Load<dyn Embedder>>,
}
