//! What the workers need of a model. The server's tests put scripted ones here; the real ones are in `generation` and
//! `embed`.

use std::ops::ControlFlow;

use crate::embed::Embedder;
use crate::generation::{Chat, GenerationEvent, GenerationFault, GenerationSummary, LoadedModel};

/// What answers chats.
pub(super) trait Backend {
    /// The longest context, answer included.
    fn window_tokens(&self) -> usize;

    /// Answers; `each` gets the pieces as they come and says whether to go on.
    fn generate(
        &mut self,
        chat: &Chat,
        each: &mut dyn FnMut(GenerationEvent<'_>) -> ControlFlow<()>,
    ) -> Result<GenerationSummary, GenerationFault>;
}

impl Backend for LoadedModel {
    fn window_tokens(&self) -> usize {
        LoadedModel::window_tokens(self)
    }

    fn generate(
        &mut self,
        chat: &Chat,
        each: &mut dyn FnMut(GenerationEvent<'_>) -> ControlFlow<()>,
    ) -> Result<GenerationSummary, GenerationFault> {
        LoadedModel::generate(self, chat, each)
    }
}

/// Brings a model into memory, on the thread that will own it; the text says why it could not.
pub(super) type Loader<T> = Box<dyn FnMut() -> Result<Box<T>, String> + Send>;

/// What there is to serve.
pub(super) struct BackendLoaders {
    pub(super) chat: Option<Loader<dyn Backend>>,
    pub(super) embedder: Option<Loader<dyn Embedder>>,
}
