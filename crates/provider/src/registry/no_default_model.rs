//! Provider used while there is no default model: each request repeats the discovery, and fails with advice if it finds
//! no model.

use std::sync::Arc;

use agent::outside::{ModelRequest, ModelSpec, ModelStream, Provider};
use agent::{Fault, FaultKind};
use futures_util::stream::{self, StreamExt};

use super::RegistryInner;
use crate::known_models::MACHINE_WINDOW_TOKENS_DEFAULT;
use crate::remote::fault_stream;

/// Advice when there is no model at all.
const NO_MODEL: &str = "No model is configured. Start the daemon with --model openai/NAME (or another provider's \
    model), with OPENAI_API_KEY in its environment (and OPENAI_BASE_URL for another server); or start Ollama on this \
    machine; or get a small embedded model with: nexus3 models pull smollm2-135m --yes";

pub(super) struct NoDefaultModel {
    registry: Arc<RegistryInner>,
}

impl NoDefaultModel {
    pub(super) fn new(registry: Arc<RegistryInner>) -> Self {
        Self { registry }
    }
}

impl Provider for NoDefaultModel {
    fn call(&self, request: ModelRequest) -> ModelStream {
        let registry = Arc::clone(&self.registry);
        let response = async move {
            match registry.resolve_default().await {
                Some(model) => model.call(request),
                None => fault_stream(Fault::new(FaultKind::Model, NO_MODEL)),
            }
        };
        Box::pin(stream::once(response).flatten())
    }

    fn model(&self) -> Option<&str> {
        None
    }

    /// Returns a window small enough for any discovered model.
    fn spec(&self) -> &ModelSpec {
        const SPEC: ModelSpec = ModelSpec::with_window(MACHINE_WINDOW_TOKENS_DEFAULT);
        &SPEC
    }
}
