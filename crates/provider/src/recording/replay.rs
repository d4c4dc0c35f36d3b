//! Serves recorded exchanges again, in order for each agent, without any network. What was not recorded is a fault that
//! says what differs.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use agent::outside::{ModelRequest, ModelSpec, ModelStream, ModelTier, Models, Provider};
use agent::{Fault, FaultKind};
use futures_util::{StreamExt as _, stream};

use super::{Exchange, canonical};
use crate::remote::fault_stream;

/// The most bytes of a recording.
const RECORDING_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Models that say what they said before.
pub struct ReplayModels {
    recording: Arc<Recording>,
    models: BTreeMap<String, ModelSpec>,
    /// Models by the other names that they were found by.
    aliases: BTreeMap<String, String>,
    default_model: String,
}

struct Recording {
    /// What is left of each agent's exchanges, and how many have been served.
    agents: Mutex<BTreeMap<String, (VecDeque<Exchange>, usize)>>,
}

impl ReplayModels {
    /// Reads a recording.
    ///
    /// # Errors
    /// When the file cannot be read, is too long, or a line of it is no exchange.
    pub fn open(path: &Path) -> Result<Self, Fault> {
        let shown = path.display();
        let cannot = |why: String| Fault::new(FaultKind::Invalid, format!("cannot replay {shown}: {why}"));
        let facts = std::fs::metadata(path).map_err(|fault| cannot(fault.to_string()))?;
        if !facts.is_file() {
            return Err(cannot("it is not a regular file".to_owned()));
        }
        if facts.len() > RECORDING_BYTES_MAX {
            return Err(cannot(format!("it is longer than {RECORDING_BYTES_MAX} bytes")));
        }
        let text = std::fs::read_to_string(path).map_err(|fault| cannot(fault.to_string()))?;
        let mut agents: BTreeMap<String, (VecDeque<Exchange>, usize)> = BTreeMap::new();
        let (mut models, mut found_by) = (BTreeMap::new(), BTreeMap::new());
        let (mut usual, mut first) = (None, None);
        for (place, line) in text.lines().enumerate() {
            let exchange: Exchange = serde_json::from_str(line)
                .map_err(|fault| cannot(format!("line {} is no exchange: {fault}", place + 1)))?;
            models.entry(exchange.model.clone()).or_insert_with(|| traits(&exchange));
            found_by.extend(exchange.requested_name.clone().map(|name| (name, exchange.model.clone())));
            first.get_or_insert_with(|| exchange.model.clone());
            usual = usual.or_else(|| exchange.is_default.then(|| exchange.model.clone()));
            agents.entry(exchange.agent.clone()).or_default().0.push_back(exchange);
        }
        let usual = usual.or(first).ok_or_else(|| cannot("nothing is recorded in it".to_owned()))?;
        Ok(Self {
            recording: Arc::new(Recording { agents: Mutex::new(agents) }),
            models,
            aliases: found_by,
            default_model: usual,
        })
    }

    fn model(&self, name: &str) -> Option<Arc<dyn Provider>> {
        let name = self.aliases.get(name).map_or(name, String::as_str);
        let traits = self.models.get(name)?.clone();
        Some(Arc::new(ReplayProvider {
            name: name.to_owned(),
            traits,
            recording: Arc::clone(&self.recording),
        }))
    }
}

fn traits(exchange: &Exchange) -> ModelSpec {
    ModelSpec {
        answer_tokens_max: exchange.answer_tokens_max,
        accepts_images: exchange.takes_images,
        tier: if exchange.is_small { ModelTier::Small } else { ModelTier::Full },
        ..ModelSpec::with_window(exchange.window_tokens)
    }
}

impl Models for ReplayModels {
    fn default_model(&self) -> Arc<dyn Provider> {
        let traits = self.models.get(&self.default_model).cloned();
        let traits = traits.unwrap_or(ModelSpec::with_window(crate::WINDOW_TOKENS_DEFAULT));
        Arc::new(ReplayProvider {
            name: self.default_model.clone(),
            traits,
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
    traits: ModelSpec,
    recording: Arc<Recording>,
}

impl Recording {
    /// The next exchange of this agent with this model, if it is the one that was recorded.
    fn take_next(&self, agent: &str, model: &str, request: &serde_json::Value) -> Result<Exchange, Fault> {
        let mut agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
        let is_next = |left: &VecDeque<Exchange>| left.front().is_some_and(|next| next.request == *request);
        // An agent whose name was made up this time has another name than last time.
        let name = if agents.contains_key(agent) {
            agent.to_owned()
        } else {
            let other = agents.iter().find(|(_, (left, _))| is_next(left)).map(|(name, _)| name.clone());
            other.ok_or_else(|| mismatch_fault(agent, 1, "no agent of the recording asked this"))?
        };
        let Some((left, served)) = agents.get_mut(&name) else {
            return Err(mismatch_fault(agent, 1, "no agent of the recording asked this"));
        };
        let is_this = |next: &mut Exchange| next.model == model && next.request == *request;
        if let Some(exchange) = left.pop_front_if(is_this) {
            *served += 1;
            return Ok(exchange);
        }
        let what = match left.front() {
            None => "the recording has no more of it".to_owned(),
            Some(next) if next.model != model => {
                format!("it asks model '{model}' now, and asked '{}'", next.model)
            }
            Some(next) => canonical::first_difference(&next.request, request),
        };
        Err(mismatch_fault(agent, *served + 1, &what))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let agents = self.agents.get_mut().unwrap_or_else(PoisonError::into_inner);
        let left: usize = agents.values().map(|(left, _)| left.len()).sum();
        if left > 0 {
            tracing::warn!("the recording has more that was not asked for: exchanges: {left}");
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
            Ok(Exchange { events, is_cancelled: is_cut, .. }) => {
                let said = stream::iter(events.into_iter().map(canonical::from_recorded));
                // Its turn was cancelled while the model still spoke, and has to be again.
                if is_cut { Box::pin(said.chain(stream::pending())) } else { Box::pin(said) }
            }
            Err(fault) => fault_stream(fault),
        }
    }

    fn model(&self) -> Option<&str> {
        Some(&self.name).filter(|name| !name.is_empty()).map(String::as_str)
    }

    fn spec(&self) -> &ModelSpec {
        &self.traits
    }
}
