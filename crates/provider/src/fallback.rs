//! A model with others behind it: when it fails for good before its answer began, the next is asked.

use std::sync::Arc;

use agent::TokenCount;
use agent::outside::{ModelRequest, ModelStream, ModelTraits, Provider};

use crate::failing::Failing;
use crate::remote::Begin;
use crate::standing::{Beginning, Teller, begun_when_polled};

/// Models in the order in which they are asked.
pub(crate) struct Fallback {
    first: Arc<dyn Begin>,
    others: Vec<Arc<dyn Begin>>,
}

impl Fallback {
    pub(crate) fn new(first: Arc<dyn Begin>, others: Vec<Arc<dyn Begin>>) -> Self {
        Self { first, others }
    }
}

async fn ask_in_turn(
    first: Arc<dyn Begin>,
    others: Vec<Arc<dyn Begin>>,
    request: ModelRequest,
    teller: Teller,
) -> Result<ModelStream, Failing> {
    let mut asked = first;
    let mut others = others.into_iter();
    loop {
        let failing = match asked.begin(request.clone(), teller.clone()).await {
            Ok(stream) => return Ok(stream),
            Err(failing) => failing,
        };
        if !failing.class.may_pass_elsewhere() {
            return Err(failing);
        }
        let Some(next) = others.next() else { return Err(failing) };
        let (model, next_model) = (asked.model().unwrap_or_default(), next.model().unwrap_or_default());
        tracing::warn!(model, next_model, "{model} failed, {next_model} is asked: {}", failing.fault);
        asked = next;
    }
}

impl Begin for Fallback {
    fn begin(&self, request: ModelRequest, teller: Teller) -> Beginning {
        Box::pin(ask_in_turn(Arc::clone(&self.first), self.others.clone(), request, teller))
    }
}

impl Provider for Fallback {
    fn ask(&self, request: ModelRequest) -> ModelStream {
        begun_when_polled(|teller| self.begin(request, teller))
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
