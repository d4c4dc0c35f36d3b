//! Keeps every exchange, when it has come to its end or is dropped on the way.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use agent::outside::{ModelEvent, ModelRequest, ModelStream, ModelSpec, Models, Provider, ModelTier};
use agent::{Fault, FaultKind};
use futures_util::StreamExt;

use super::{Exchange, canonical};

/// Models whose exchanges are kept.
pub struct RecordedModels {
    models: Arc<dyn Models>,
    tape: Arc<Mutex<File>>,
}

impl RecordedModels {
    /// Begins a file; it must not be there yet. Nobody else can read it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(models: Arc<dyn Models>, path: &Path) -> Result<Self, Fault> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(|fault| {
            Fault::new(FaultKind::Invalid, format!("cannot record to {}: {fault}", path.display()))
        })?;
        Ok(Self { models, tape: Arc::new(Mutex::new(file)) })
    }

    /// None is the usual model.
    fn wrap(&self, model: Arc<dyn Provider>, named: Option<&str>) -> Arc<dyn Provider> {
        let found_by = named.filter(|name| model.model() != Some(name)).map(str::to_owned);
        Arc::new(Recorded { model, found_by, is_usual: named.is_none(), tape: Arc::clone(&self.tape) })
    }
}

impl Models for RecordedModels {
    fn default_model(&self) -> Arc<dyn Provider> {
        self.wrap(self.models.default_model(), None)
    }

    fn find(&self, name: &str) -> Result<Arc<dyn Provider>, Fault> {
        self.models.find(name).map(|model| self.wrap(model, Some(name)))
    }
}

struct Recorded {
    model: Arc<dyn Provider>,
    found_by: Option<String>,
    is_usual: bool,
    tape: Arc<Mutex<File>>,
}

impl Recorded {
    fn exchange(&self, request: &ModelRequest) -> Exchange {
        let traits = self.model.spec();
        let canonical = canonical::request(request);
        Exchange {
            agent: request.requester.agent.as_ref().map(ToString::to_string).unwrap_or_default(),
            model: self.model.model().unwrap_or_default().to_owned(),
            found_by: self.found_by.clone(),
            is_usual: self.is_usual,
            window_tokens: traits.window_tokens,
            answer_tokens_max: traits.answer_tokens_max,
            takes_images: traits.accepts_images,
            is_small: traits.tier == ModelTier::Small,
            digest: canonical::fnv1a_hex(canonical.to_string().as_bytes()),
            request: canonical,
            events: Vec::new(),
            is_cut: false,
        }
    }
}

impl Provider for Recorded {
    fn call(&self, request: ModelRequest) -> ModelStream {
        let mut keeping =
            Keeping { exchange: self.exchange(&request), tape: Arc::clone(&self.tape), is_over: false };
        Box::pin(self.model.call(request).map(move |item| {
            keeping.heard(&item);
            item
        }))
    }

    fn model(&self) -> Option<&str> {
        self.model.model()
    }

    fn spec(&self) -> &ModelSpec {
        self.model.spec()
    }

    // Counted by the estimate, as a replay does, which has no tokenizer: both make the same contexts.
}

/// An exchange that is under way.
struct Keeping {
    exchange: Exchange,
    tape: Arc<Mutex<File>>,
    is_over: bool,
}

impl Keeping {
    fn heard(&mut self, item: &Result<ModelEvent, Fault>) {
        self.exchange.events.extend(canonical::told(item));
        if matches!(item, Ok(ModelEvent::Done) | Err(_)) && !self.is_over {
            self.is_over = true;
            keep(&self.tape, &self.exchange);
        }
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        if !self.is_over {
            self.exchange.is_cut = true;
            keep(&self.tape, &self.exchange);
        }
    }
}

/// A tape that cannot be written costs no turn, but it is told.
fn keep(tape: &Mutex<File>, exchange: &Exchange) {
    let written = serde_json::to_vec(exchange).map_err(std::io::Error::from).and_then(|mut line| {
        line.push(b'\n');
        tape.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line)
    });
    if let Err(fault) = written {
        tracing::error!("an exchange with a model could not be recorded: {fault}");
    }
}
