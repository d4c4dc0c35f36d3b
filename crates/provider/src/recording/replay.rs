//! Replay of recorded exchanges, in order per agent, without a network. A request that was not recorded fails with the
//! first difference.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use agent::outside::{ModelRequest, ModelSpec, ModelStream, ModelTier, Models, Provider};
use agent::{Fault, FaultKind};
use futures_util::{StreamExt as _, stream};

use super::{Exchange, canonical};
use crate::remote::fault_stream;

/// Most bytes of a recording.
const RECORDING_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Models that replay a recording.
pub struct ReplayModels {
    recording: Arc<Recording>,
    models: BTreeMap<String, ModelSpec>,
    /// Model names by the other names they were looked up by.
    aliases: BTreeMap<String, String>,
    default_model: String,
}

struct Recording {
    /// Remaining exchanges of each agent, and the number already served.
    agents: Mutex<BTreeMap<String, (VecDeque<Exchange>, usize)>>,
}

impl ReplayModels {
    /// Loads a recording.
    ///
    /// # Errors
    /// When the file cannot be read, is too long, empty, or has an invalid line.
    pub fn open(path: &Path) -> Result<Self, Fault> {
        let shown = path.display();
        let error = |why: String| Fault::new(FaultKind::Invalid, format!("cannot replay {shown}: {why}"));
        let metadata = std::fs::metadata(path).map_err(|fault| error(fault.to_string()))?;
        if !metadata.is_file() {
            return Err(error("it is not a regular file".to_owned()));
        }
        if metadata.len() > RECORDING_BYTES_MAX {
            return Err(error(format!("it is longer than {RECORDING_BYTES_MAX} bytes")));
        }
        let text = std::fs::read_to_string(path).map_err(|fault| error(fault.to_string()))?;
        let mut agents: BTreeMap<String, (VecDeque<Exchange>, usize)> = BTreeMap::new();
        let (mut models, mut aliases) = (BTreeMap::new(), BTreeMap::new());
        let (mut default_model, mut first) = (None, None);
        for (index, line) in text.lines().enumerate() {
            let exchange: Exchange = serde_json::from_str(line)
                .map_err(|fault| error(format!("line {} is not a recorded exchange: {fault}", index + 1)))?;
            models.entry(exchange.model.clone()).or_insert_with(|| recorded_spec(&exchange));
            aliases.extend(exchange.requested_name.clone().map(|name| (name, exchange.model.clone())));
            first.get_or_insert_with(|| exchange.model.clone());
            default_model = default_model.or_else(|| exchange.is_default.then(|| exchange.model.clone()));
            agents.entry(exchange.agent.clone()).or_default().0.push_back(exchange);
        }
        let default_model = default_model.or(first).ok_or_else(|| error("it is empty".to_owned()))?;
        Ok(Self {
            recording: Arc::new(Recording { agents: Mutex::new(agents) }),
            models,
            aliases,
            default_model,
        })
    }

    fn model(&self, name: &str) -> Option<Arc<dyn Provider>> {
        let name = self.aliases.get(name).map_or(name, String::as_str);
        let spec = self.models.get(name)?.clone();
        Some(Arc::new(ReplayProvider { name: name.to_owned(), spec, recording: Arc::clone(&self.recording) }))
    }
}

fn recorded_spec(exchange: &Exchange) -> ModelSpec {
    ModelSpec {
        answer_tokens_max: exchange.answer_tokens_max,
        accepts_images: exchange.accepts_images,
        tier: if exchange.is_small { ModelTier::Small } else { ModelTier::Full },
        ..ModelSpec::with_window(exchange.window_tokens)
    }
}

impl Models for ReplayModels {
    fn default_model(&self) -> Arc<dyn Provider> {
        let spec = self.models.get(&self.default_model).cloned();
        let spec = spec.unwrap_or(ModelSpec::with_window(crate::WINDOW_TOKENS_DEFAULT));
        Arc::new(ReplayProvider {
            name: self.default_model.clone(),
            spec,
            recording: Arc::clone(&self.recording),
        })
    }

    fn find(&self, name: &str) -> Result<Arc<dyn Provider>, Fault> {
        self.model(name).ok_or_else(|| {
            let known: Vec<&str> = self.models.keys().map(String::as_str).collect();
            let text = format!("Unknown model '{name}': the recording has only {}", known.join(", "));
            Fault::new(FaultKind::Invalid, text)
        })
    }
}

struct ReplayProvider {
    name: String,
    spec: ModelSpec,
    recording: Arc<Recording>,
}

impl Recording {
    /// Dequeues the agent's next exchange if it matches the request.
    fn take_next(&self, agent: &str, model: &str, request: &serde_json::Value) -> Result<Exchange, Fault> {
        let mut agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        let is_next =
            |remaining: &VecDeque<Exchange>| remaining.front().is_some_and(|next| next.request == *request);
        // Generated agent ids differ between runs: match such an agent by its request.
        let name = if agents.contains_key(agent) {
            agent.to_owned()
        } else {
            let other =
                agents.iter().find(|(_, (remaining, _))| is_next(remaining)).map(|(name, _)| name.clone());
            other.ok_or_else(|| mismatch_fault(agent, 1, "no recorded agent sent this request"))?
        };
        let Some((remaining, served)) = agents.get_mut(&name) else {
            return Err(mismatch_fault(agent, 1, "no recorded agent sent this request"));
        };
        let is_this = |next: &mut Exchange| next.model == model && next.request == *request;
        if let Some(exchange) = remaining.pop_front_if(is_this) {
            *served += 1;
            return Ok(exchange);
        }
        let what = match remaining.front() {
            None => "the recording has no further exchange".to_owned(),
            Some(next) if next.model != model => {
                format!("the request is for model '{model}', the recorded one for '{}'", next.model)
            }
            Some(next) => canonical::first_difference(&next.request, request),
        };
        Err(mismatch_fault(agent, *served + 1, &what))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let agents = self.agents.get_mut().unwrap_or_else(PoisonError::into_inner);
        let remaining: usize = agents.values().map(|(remaining, _)| remaining.len()).sum();
        if remaining > 0 {
            tracing::warn!("{remaining} recorded exchanges were not replayed");
        }
    }
}

fn mismatch_fault(agent: &str, number: usize, what: &str) -> Fault {
    let text =
        format!("The replay differs from its recording at exchange {number} of agent '{agent}': {what}");
    tracing::error!("{text}");
    Fault::new(FaultKind::Model, text)
}

impl Provider for ReplayProvider {
    fn call(&self, request: ModelRequest) -> ModelStream {
        let agent = request.requester.agent.as_ref().map(ToString::to_string).unwrap_or_default();
        match self.recording.take_next(&agent, &self.name, &canonical::request(&request)) {
            Ok(Exchange { events, is_cancelled, .. }) => {
                let events = stream::iter(events.into_iter().map(canonical::from_recorded));
                // The recorded turn was cancelled during the response: wait until this one is too.
                if is_cancelled { Box::pin(events.chain(stream::pending())) } else { Box::pin(events) }
            }
            Err(fault) => fault_stream(fault),
        }
    }

    fn model(&self) -> Option<&str> {
        Some(&self.name).filter(|name| !name.is_empty()).map(String::as_str)
    }

    fn spec(&self) -> &ModelSpec {
        &self.spec
    }
}
