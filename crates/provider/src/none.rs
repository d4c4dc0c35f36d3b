//! The place of a model when none was chosen: it answers every question with how to choose one.

use agent::outside::{ModelRequest, ModelStream, ModelTraits, Provider};
use agent::{Fault, FaultKind};

/// No model.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoModel;

impl Provider for NoModel {
    fn ask(&self, _: ModelRequest) -> ModelStream {
        let text = "No model is configured. Start the daemon with --model openai/NAME, with OPENAI_API_KEY (and \
                    OPENAI_BASE_URL for another server) in its environment.";
        let fault = Fault::new(FaultKind::Model, text);
        Box::pin(futures_util::stream::once(std::future::ready(Err(fault))))
    }

    fn model(&self) -> Option<&str> {
        None
    }

    fn traits(&self) -> &ModelTraits {
        const TRAITS: ModelTraits = ModelTraits::of_window(super::openai::WINDOW_TOKENS_DEFAULT);
        &TRAITS
    }
}
