//! A model with others behind it: when it fails for good before its answer began, the next is asked.

use std::sync::Arc;

use agent::outside::{ModelEvent, ModelRequest, ModelStream, ModelTraits, Provider};
use agent::{Fault, FaultKind, Prices, TokenCount};
use futures_util::StreamExt;

use crate::failing::{Class, Failing};
use crate::patience::Behind;
use crate::remote::ModelClient;
use crate::standing::{Beginning, Teller, begun_when_polled};

/// Models in the order in which they are asked.
pub(crate) struct Fallback {
    first: Arc<dyn ModelClient>,
    others: Vec<Arc<dyn ModelClient>>,
}

impl Fallback {
    pub(crate) fn new(first: Arc<dyn ModelClient>, others: Vec<Arc<dyn ModelClient>>) -> Self {
        Self { first, others }
    }
}

async fn ask_in_turn(
    first: Arc<dyn ModelClient>,
    others: Vec<Arc<dyn ModelClient>>,
    request: ModelRequest,
    teller: Teller,
    behind: Behind,
) -> Result<ModelStream, Failing> {
    let behind_first = if others.is_empty() { behind } else { Behind::Another };
    let mut failing = match first.start(request.clone(), teller.clone(), behind_first).await {
        Ok(stream) => return Ok(stream),
        Err(failing) => failing,
    };
    let model = first.model().unwrap_or_default();
    let mut others = others.into_iter().peekable();
    while let Some(other) = others.next() {
        if !failing.class.may_pass_elsewhere() {
            break;
        }
        let other_model = other.model().unwrap_or_default();
        tracing::warn!(model, other_model, "{model} failed, {other_model} is asked: {}", failing.fault);
        let behind_other = if others.peek().is_none() { behind } else { Behind::Another };
        match other.start(request.clone(), teller.clone(), behind_other).await {
            Ok(stream) => return Ok(in_place(stream, other.traits().prices)),
            // The context is as long as the first model's window lets it be. A smaller window must not cut it for good.
            Err(full) if full.class == Class::ContextFull => {
                tracing::warn!(other_model, "the question is too long for {other_model}: {}", full.fault);
            }
            Err(next) => failing = next,
        }
    }
    Err(failing)
}

/// The answer of a model that stands in for the first: at its own price, and never too long for the first one.
fn in_place(stream: ModelStream, prices: Option<Prices>) -> ModelStream {
    let told = move |item: Result<ModelEvent, Fault>| match item {
        Ok(ModelEvent::Usage(usage)) => Ok(ModelEvent::FallbackUsage(usage, prices)),
        Err(fault) if fault.kind == FaultKind::ContextFull => Err(Fault { kind: FaultKind::Model, ..fault }),
        other => other,
    };
    stream.map(told).boxed()
}

impl ModelClient for Fallback {
    fn start(&self, request: ModelRequest, teller: Teller, behind: Behind) -> Beginning {
        Box::pin(ask_in_turn(Arc::clone(&self.first), self.others.clone(), request, teller, behind))
    }
}

impl Provider for Fallback {
    fn call(&self, request: ModelRequest) -> ModelStream {
        begun_when_polled(|teller| self.start(request, teller, Behind::Nobody))
    }

    fn model(&self) -> Option<&str> {
        self.first.model()
    }

    fn traits(&self) -> &ModelTraits {
        self.first.traits()
    }

    fn count(&self, text: &str) -> TokenCount {
        self.first.count(text)
    }
}
