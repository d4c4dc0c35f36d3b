//! A model with others behind it: when it fails for good before its answer began, the next is asked.

use std::sync::Arc;

use agent::outside::{ModelEvent, ModelRequest, ModelSpec, ModelStream, Provider};
use agent::{Fault, FaultKind, Prices, TokenCount};
use futures_util::StreamExt;

use crate::error_class::{ErrorClass, ModelError};
use crate::remote::ModelClient;
use crate::request_progress::{ProgressSender, ResponseFuture, stream_with_progress};
use crate::retry_policy::HasFallback;

/// Models in the order in which they are asked.
pub(crate) struct Fallback {
    first: Arc<dyn ModelClient>,
    fallbacks: Vec<Arc<dyn ModelClient>>,
}

impl Fallback {
    pub(crate) fn new(first: Arc<dyn ModelClient>, others: Vec<Arc<dyn ModelClient>>) -> Self {
        Self { first, fallbacks: others }
    }
}

async fn call_in_order(
    first: Arc<dyn ModelClient>,
    others: Vec<Arc<dyn ModelClient>>,
    request: ModelRequest,
    teller: ProgressSender,
    behind: HasFallback,
) -> Result<ModelStream, ModelError> {
    let behind_first = if others.is_empty() { behind } else { HasFallback::Yes };
    let mut failing = match first.start(request.clone(), teller.clone(), behind_first).await {
        Ok(stream) => return Ok(stream),
        Err(failing) => failing,
    };
    let model = first.model().unwrap_or_default();
    let mut others = others.into_iter().peekable();
    while let Some(other) = others.next() {
        if !failing.class.allows_fallback() {
            break;
        }
        let other_model = other.model().unwrap_or_default();
        tracing::warn!(model, other_model, "{model} failed, {other_model} is asked: {}", failing.fault);
        let behind_other = if others.peek().is_none() { behind } else { HasFallback::Yes };
        match other.start(request.clone(), teller.clone(), behind_other).await {
            Ok(stream) => return Ok(adapt_fallback_stream(stream, other.spec().prices)),
            // The context is as long as the first model's window lets it be. A smaller window must not cut it for good.
            Err(full) if full.class == ErrorClass::ContextFull => {
                tracing::warn!(other_model, "the question is too long for {other_model}: {}", full.fault);
            }
            Err(next) => failing = next,
        }
    }
    Err(failing)
}

/// The answer of a model that stands in for the first: at its own price, and never too long for the first one.
fn adapt_fallback_stream(stream: ModelStream, prices: Option<Prices>) -> ModelStream {
    let told = move |item: Result<ModelEvent, Fault>| match item {
        Ok(ModelEvent::Usage(usage)) => Ok(ModelEvent::FallbackUsage(usage, prices)),
        Err(fault) if fault.kind == FaultKind::ContextFull => Err(Fault { kind: FaultKind::Model, ..fault }),
        other => other,
    };
    stream.map(told).boxed()
}

impl ModelClient for Fallback {
    fn start(&self, request: ModelRequest, teller: ProgressSender, behind: HasFallback) -> ResponseFuture {
        Box::pin(call_in_order(Arc::clone(&self.first), self.fallbacks.clone(), request, teller, behind))
    }
}

impl Provider for Fallback {
    fn call(&self, request: ModelRequest) -> ModelStream {
        stream_with_progress(|teller| self.start(request, teller, HasFallback::No))
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
