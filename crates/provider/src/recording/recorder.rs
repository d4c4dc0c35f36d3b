//! Recorder of model exchanges. Writes each exchange when its stream ends or is dropped.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use agent::outside::{ModelEvent, ModelRequest, ModelSpec, ModelStream, ModelTier, Models, Provider};
use agent::{Fault, FaultKind};
use futures_util::StreamExt;

use super::{Exchange, canonical};

/// Models whose exchanges are recorded to a file.
pub struct RecordingModels {
    models: Arc<dyn Models>,
    file: Arc<Mutex<File>>,
}

impl RecordingModels {
    /// Creates the recording, readable only by its owner. The file must not exist yet.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn create(models: Arc<dyn Models>, path: &Path) -> Result<Self, Fault> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(|fault| {
            Fault::new(FaultKind::Invalid, format!("cannot record to {}: {fault}", path.display()))
        })?;
        Ok(Self { models, file: Arc::new(Mutex::new(file)) })
    }

    /// Wraps a model; `named` is `None` for the default model.
    fn wrap(&self, model: Arc<dyn Provider>, named: Option<&str>) -> Arc<dyn Provider> {
        let requested_name = named.filter(|name| model.model() != Some(name)).map(str::to_owned);
        Arc::new(RecordingProvider {
            model,
            requested_name,
            is_default: named.is_none(),
            file: Arc::clone(&self.file),
        })
    }
}

impl Models for RecordingModels {
    fn default_model(&self) -> Arc<dyn Provider> {
        self.wrap(self.models.default_model(), None)
    }

    fn find(&self, name: &str) -> Result<Arc<dyn Provider>, Fault> {
        self.models.find(name).map(|model| self.wrap(model, Some(name)))
    }
}

struct RecordingProvider {
    model: Arc<dyn Provider>,
    requested_name: Option<String>,
    is_default: bool,
    file: Arc<Mutex<File>>,
}

impl RecordingProvider {
    fn exchange(&self, request: &ModelRequest) -> Exchange {
        let spec = self.model.spec();
        let canonical = canonical::request(request);
        Exchange {
            agent: request.requester.agent.as_ref().map(ToString::to_string).unwrap_or_default(),
            model: self.model.model().unwrap_or_default().to_owned(),
            requested_name: self.requested_name.clone(),
            is_default: self.is_default,
            window_tokens: spec.window_tokens,
            answer_tokens_max: spec.answer_tokens_max,
            accepts_images: spec.accepts_images,
            is_small: spec.tier == ModelTier::Small,
            digest: canonical::fnv1a_hex(canonical.to_string().as_bytes()),
            request: canonical,
            events: Vec::new(),
            is_cancelled: false,
        }
    }
}

impl Provider for RecordingProvider {
    fn call(&self, request: ModelRequest) -> ModelStream {
        let mut recorder = ExchangeRecorder {
            exchange: self.exchange(&request),
            file: Arc::clone(&self.file),
            is_written: false,
        };
        Box::pin(self.model.call(request).map(move |item| {
            recorder.record(&item);
            item
        }))
    }

    fn model(&self) -> Option<&str> {
        self.model.model()
    }

    fn spec(&self) -> &ModelSpec {
        self.model.spec()
    }

    // `count` stays the estimate, because a replay has no tokenizer: both must build the same contexts.
}

/// Recorder of one exchange in flight.
struct ExchangeRecorder {
    exchange: Exchange,
    file: Arc<Mutex<File>>,
    is_written: bool,
}

impl ExchangeRecorder {
    fn record(&mut self, item: &Result<ModelEvent, Fault>) {
        self.exchange.events.extend(canonical::to_recorded(item));
        if matches!(item, Ok(ModelEvent::Done) | Err(_)) && !self.is_written {
            self.is_written = true;
            write_exchange(&self.file, &self.exchange);
        }
    }
}

impl Drop for ExchangeRecorder {
    fn drop(&mut self) {
        if !self.is_written {
            self.exchange.is_cancelled = true;
            write_exchange(&self.file, &self.exchange);
        }
    }
}

/// Appends an exchange to the recording. A write error is logged and does not fail the turn.
fn write_exchange(file: &Mutex<File>, exchange: &Exchange) {
    let written = serde_json::to_vec(exchange).map_err(std::io::Error::from).and_then(|mut line| {
        line.push(b'\n');
        file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line)
    });
    if let Err(fault) = written {
        tracing::error!("cannot record a model exchange: {fault}");
    }
}
