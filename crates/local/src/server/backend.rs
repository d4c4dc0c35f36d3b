//! The interface between workers and models. `generation` and `embed` implement it; the server's tests use scripted
//! models.

use std::ops::ControlFlow;

use crate::embed::Embedder;
use crate::generation::{Chat, GenerationEvent, GenerationFault, GenerationSummary, LoadedModel};

/// A chat model.
pub(super) trait Backend {
    /// Context window in tokens, including the response.
    fn window_tokens(&self) -> usize;

    /// Generates a response. `on_event` gets each event and can cancel by returning `Break`.
    fn generate(
        &mut self,
        chat: &Chat,
        on_event: &mut dyn FnMut(GenerationEvent<'_>) -> ControlFlow<()>,
    ) -> Result<GenerationSummary, GenerationFault>;
}

impl Backend for LoadedModel {
    fn window_tokens(&self) -> usize {
        LoadedModel::window_tokens(self)
    }

    fn generate(
        &mut self,
        chat: &Chat,
        on_event: &mut dyn FnMut(GenerationEvent<'_>) -> ControlFlow<()>,
    ) -> Result<GenerationSummary, GenerationFault> {
        LoadedModel::generate(self, chat, on_event)
    }
}

/// Loads a model on the worker thread that will own it; the error is text for the user.
pub(super) type Loader<T> = Box<dyn FnMut() -> Result<Box<T>, String> + Send>;

/// Loaders of the models to serve.
pub(super) struct BackendLoaders {
    pub(super) chat: Option<Loader<dyn Backend>>,
    pub(super) embedder: Option<Loader<dyn Embedder>>,
}
