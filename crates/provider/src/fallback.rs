//! Model with fallbacks: when its request fails, retries included, before the response began, the next model gets the
//! request.

use std::sync::Arc;

use agent::outside::{ModelEvent, ModelRequest, ModelSpec, ModelStream, Provider};
use agent::{Fault, FaultKind, Prices, TokenCount};
use futures_util::StreamExt;

use crate::error_class::{ErrorClass, ModelError};
use crate::remote::ModelClient;
use crate::request_progress::{ProgressSender, ResponseFuture, stream_with_progress};
use crate::retry_policy::HasFallback;

/// A model and its fallbacks, tried in order.
pub(crate) struct ModelWithFallbacks {
    first: Arc<dyn ModelClient>,
    fallbacks: Vec<Arc<dyn ModelClient>>,
}

impl ModelWithFallbacks {
    pub(crate) fn new(first: Arc<dyn ModelClient>, fallbacks: Vec<Arc<dyn ModelClient>>) -> Self {
        Self { first, fallbacks }
    }
}

async fn call_in_order(
    first: Arc<dyn ModelClient>,
    fallbacks: Vec<Arc<dyn ModelClient>>,
    request: ModelRequest,
    progress: ProgressSender,
    has_fallback: HasFallback,
) -> Result<ModelStream, ModelError> {
    let first_has_fallback = if fallbacks.is_empty() { has_fallback } else { HasFallback::Yes };
    let mut error = match first.start(request.clone(), progress.clone(), first_has_fallback).await {
        Ok(stream) => return Ok(stream),
        Err(error) => error,
    };
    let model = first.model().unwrap_or_default();
    let mut fallbacks = fallbacks.into_iter().peekable();
    while let Some(fallback) = fallbacks.next() {
        if !error.class.allows_fallback() {
            break;
        }
        let fallback_model = fallback.model().unwrap_or_default();
        tracing::warn!(
            model,
            fallback_model,
            "{model} failed, falling back to {fallback_model}: {}",
            error.fault
        );
        let next_has_fallback = if fallbacks.peek().is_none() { has_fallback } else { HasFallback::Yes };
        match fallback.start(request.clone(), progress.clone(), next_has_fallback).await {
            Ok(stream) => return Ok(adapt_fallback_stream(stream, fallback.spec().prices)),
            // The context fits the first model's window. The smaller window of a fallback must not trigger compaction.
            Err(full) if full.class == ErrorClass::ContextFull => {
                tracing::warn!(
                    fallback_model,
                    "the request exceeds the context window of {fallback_model}: {}",
                    full.fault
                );
            }
            Err(next) => error = next,
        }
    }
    Err(error)
}

/// Adapts a fallback's stream: usage carries the fallback's prices, and its full context window is not reported as the
/// first model's.
fn adapt_fallback_stream(stream: ModelStream, prices: Option<Prices>) -> ModelStream {
    let adapt = move |item: Result<ModelEvent, Fault>| match item {
        Ok(ModelEvent::Usage(usage)) => Ok(ModelEvent::FallbackUsage(usage, prices)),
        Err(fault) if fault.kind == FaultKind::ContextFull => Err(Fault { kind: FaultKind::Model, ..fault }),
        other => other,
    };
    stream.map(adapt).boxed()
}

impl ModelClient for ModelWithFallbacks {
    fn start(
        &self,
        request: ModelRequest,
        progress: ProgressSender,
        has_fallback: HasFallback,
    ) -> ResponseFuture {
        Box::pin(call_in_order(
            Arc::clone(&self.first),
            self.fallbacks.clone(),
            request,
            progress,
            has_fallback,
        ))
    }
}

impl Provider for ModelWithFallbacks {
    fn call(&self, request: ModelRequest) -> ModelStream {
        stream_with_progress(|progress| self.start(request, progress, HasFallback::No))
    }

    fn model(&self) -> Option<&str> {
        self.first.model()
    }

    fn spec(&self) -> &ModelSpec {
        self.first.spec()
    }

    fn count(&self, text: &str) -> TokenCount {
        self.first.count(text)
    }
}
