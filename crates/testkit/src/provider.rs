//! A model in the test process: it plays scripts of steps and records its calls: which agents, in which order, how many
//! at once. `steps` parses the scripts.

mod steps;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::outside::{ModelEvent, ModelRequest, ModelSpec, ModelStream, Models, Provider, StopReason};
use agent::{Fault, FaultKind, Role, TokenCount, ToolCall, Usage, UsageTotals};
use tokio::sync::{Notify, watch};

use steps::{Step, round_steps};

/// Larger than any history of these tests; tests of a full window set their own.
pub const WINDOW_TOKENS: TokenCount = 1_000_000_000;

/// Start of the prompt for a summary.
const SUMMARY_PROMPT_START: &str = "Below is the older part of a conversation";

/// A model that plays the script in the last user message.
#[derive(Debug)]
pub struct ScriptedProvider {
    state: Arc<ModelState>,
    model_spec: ModelSpec,
}

#[derive(Debug)]
struct ModelState {
    observations: Mutex<ModelObservations>,
    /// Number of calls.
    call_count: watch::Sender<usize>,
    /// Number of `wait` steps that were reached.
    wait_count: watch::Sender<usize>,
}

/// Observations of the model. An agent is identified by its first message.
#[derive(Debug, Default)]
pub struct ModelObservations {
    /// Agent and script of each call, in order.
    pub prompts: Vec<(String, String)>,
    /// The requests received.
    pub requests: Vec<ModelRequest>,
    /// Live streams by agent.
    live_by_agent: HashMap<String, usize>,
    /// Live streams.
    pub live_total: usize,
    /// Maximum number of live streams.
    pub live_max: usize,
    /// Agents that had two live streams at once.
    pub overlapping_agents: Vec<String>,
    /// Reported usage by agent.
    pub reported_usage: HashMap<String, UsageTotals>,
    /// Number of empty responses by agent, script and message count.
    empty_responses: HashMap<(String, String, usize), usize>,
    paused: VecDeque<Arc<Notify>>,
    tool_call_count: usize,
    /// The script for summaries.
    pub summary_script: String,
    /// The prompts for summaries.
    pub summary_requests: Vec<String>,
    /// Requests with more characters than this are rejected as too long.
    pub characters_max: Option<usize>,
    /// Number of requests rejected as too long.
    pub rejected_count: usize,
}

impl ScriptedProvider {
    /// A model with this specification.
    pub fn new(model_spec: ModelSpec) -> Self {
        let observations = ModelObservations {
            summary_script: "say in short; done".to_owned(),
            ..ModelObservations::default()
        };
        let state = ModelState {
            observations: Mutex::new(observations),
            call_count: watch::Sender::new(0),
            wait_count: watch::Sender::new(0),
        };
        Self { state: Arc::new(state), model_spec }
    }

    /// The observations so far.
    pub fn observations(&self) -> MutexGuard<'_, ModelObservations> {
        self.state.observations()
    }

    /// Returns after this number of calls.
    pub async fn wait_called(&self, times: usize) {
        let mut calls = self.state.call_count.subscribe();
        calls.wait_for(|count| *count >= times).await.expect("the model exists");
    }

    /// Returns after this number of `wait` steps were reached.
    pub async fn wait_paused(&self, times: usize) {
        let mut waits = self.state.wait_count.subscribe();
        waits.wait_for(|count| *count >= times).await.expect("the model exists");
    }

    /// Releases the stream that has waited longest; false if none waits.
    pub fn release_one(&self) -> bool {
        let mut observations = self.observations();
        while let Some(waiter) = observations.paused.pop_front() {
            // A waiter without another owner was dropped while it waited.
            if Arc::strong_count(&waiter) > 1 {
                waiter.notify_one();
                return true;
            }
        }
        false
    }

    /// Releases all streams that wait.
    pub fn release_all(&self) {
        while self.release_one() {}
    }
}

impl ModelState {
    fn observations(&self) -> MutexGuard<'_, ModelObservations> {
        self.observations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Provider for ScriptedProvider {
    fn call(&self, request: ModelRequest) -> ModelStream {
        let agent = request.messages.first().expect("a request has messages").text.clone();
        let user_message = request.messages.iter().rev().find(|message| message.role == Role::User);
        let script = user_message.expect("a request has a user message").text.clone();
        let mut observations = self.observations();
        let characters: usize = request.messages.iter().map(|message| message.text.len()).sum();
        if observations.characters_max.is_some_and(|max| characters > max) {
            observations.rejected_count += 1;
            let fault = Fault::new(FaultKind::ContextFull, "the prompt is too long");
            return Box::pin(futures_util::stream::once(std::future::ready(Err(fault))));
        }
        if script.starts_with(SUMMARY_PROMPT_START) {
            let steps = round_steps(&observations.summary_script, 0);
            observations.summary_requests.push(script);
            drop(observations);
            return ScriptedStream::start(Arc::clone(&self.state), "a summary".to_owned(), steps)
                .into_stream();
        }
        // The round is the number of responses in the request; an empty response is not in it and is counted here.
        let is_response = |message: &&Arc<agent::Message>| message.role == Role::Assistant;
        let since = request.messages.iter().rev().take_while(|message| message.role != Role::User);
        let number = since.filter(is_response).count();
        let key = (agent.clone(), script.clone(), request.messages.len());
        let empty = observations.empty_responses.entry(key).or_default();
        let steps = round_steps(&script, number + *empty);
        let is_content = |step: &Step| matches!(step, Step::Say(_) | Step::Call(..) | Step::Flood(1..));
        *empty += usize::from(!steps.iter().any(is_content));
        observations.prompts.push((agent.clone(), script));
        observations.requests.push(request);
        self.state.call_count.send_replace(observations.prompts.len());
        drop(observations);
        ScriptedStream::start(Arc::clone(&self.state), agent, steps).into_stream()
    }

    fn model(&self) -> Option<&str> {
        Some("scripted/one")
    }

    fn spec(&self) -> &ModelSpec {
        &self.model_spec
    }
}

/// A response in flight. It counts as live until it is dropped.
struct ScriptedStream {
    state: Arc<ModelState>,
    agent: String,
    steps: VecDeque<Step>,
    panics_at_drop: bool,
}

impl ScriptedStream {
    fn start(state: Arc<ModelState>, agent: String, steps: Vec<Step>) -> Self {
        if steps.contains(&Step::PanicAtCall) {
            panic_quietly("the model panicked in the call");
        }
        let mut observations = state.observations();
        let live = observations.live_by_agent.entry(agent.clone()).or_default();
        *live += 1;
        if *live > 1 {
            observations.overlapping_agents.push(agent.clone());
        }
        observations.live_total += 1;
        observations.live_max = observations.live_max.max(observations.live_total);
        drop(observations);
        let panics_at_drop = steps.contains(&Step::PanicAtDrop);
        Self { state, agent, steps: steps.into(), panics_at_drop }
    }

    fn into_stream(self) -> ModelStream {
        Box::pin(futures_util::stream::unfold(self, |mut stream| async move {
            let item = stream.next_event().await?;
            Some((item, stream))
        }))
    }

    async fn next_event(&mut self) -> Option<Result<ModelEvent, Fault>> {
        loop {
            let event = match self.steps.pop_front()? {
                Step::Say(text) => ModelEvent::Text(text),
                Step::Think(text) => ModelEvent::Reasoning(text),
                Step::Call(name, arguments) => {
                    self.state.observations().tool_call_count += 1;
                    self.call(name, arguments)
                }
                Step::CallAgain(name, arguments) => self.call(name, arguments),
                Step::Report(tokens) => self.report(tokens),
                Step::StopAtLength => ModelEvent::Stopped(StopReason::Length),
                Step::Done => ModelEvent::Done,
                Step::ReportQueued => ModelEvent::Waiting,
                Step::Heartbeat => ModelEvent::Heartbeat,
                Step::Fail => return Some(Err(Fault::new(FaultKind::Model, "the model failed"))),
                Step::Panic => panic_quietly("the model panicked in its stream"),
                Step::Flood(0) | Step::PanicAtCall | Step::PanicAtDrop => continue,
                Step::Flood(letters_left) => {
                    self.steps.push_front(Step::Flood(letters_left - 1));
                    ModelEvent::Text("x".to_owned())
                }
                pause => {
                    self.pause(pause).await;
                    continue;
                }
            };
            return Some(Ok(event));
        }
    }

    async fn pause(&self, pause: Step) {
        match pause {
            Step::Sleep(time) => tokio::time::sleep(time).await,
            Step::Wait => {
                let waiter = Arc::new(Notify::new());
                self.state.observations().paused.push_back(Arc::clone(&waiter));
                self.state.wait_count.send_modify(|count| *count += 1);
                waiter.notified().await;
            }
            _ => tokio::task::yield_now().await,
        }
    }

    fn call(&self, name: String, arguments: String) -> ModelEvent {
        let id = format!("call-{}", self.state.observations().tool_call_count);
        ModelEvent::ToolCall(ToolCall { id, name, arguments })
    }

    fn report(&self, tokens: u64) -> ModelEvent {
        let usage = Usage { input: tokens, output: 1, ..Usage::default() };
        self.state.observations().reported_usage.entry(self.agent.clone()).or_default().add(usage, None);
        ModelEvent::Usage(usage)
    }
}

impl Drop for ScriptedStream {
    fn drop(&mut self) {
        let mut observations = self.state.observations();
        observations.live_total -= 1;
        if let Some(live) = observations.live_by_agent.get_mut(&self.agent) {
            *live -= 1;
        }
        drop(observations);
        // A panic during another panic would abort the test program.
        if self.panics_at_drop && !std::thread::panicking() {
            panic_quietly("the model panicked when dropped");
        }
    }
}

/// A registry with one model under several names.
#[derive(Debug)]
pub struct SingleModel {
    /// The model.
    pub model: Arc<ScriptedProvider>,
    /// Its names.
    pub names: Vec<&'static str>,
}

impl Models for SingleModel {
    fn default_model(&self) -> Arc<dyn Provider> {
        Arc::<ScriptedProvider>::clone(&self.model)
    }

    fn find(&self, name: &str) -> Result<Arc<dyn Provider>, Fault> {
        if self.names.contains(&name) {
            Ok(self.default_model())
        } else {
            Err(Fault::new(FaultKind::Invalid, format!("no such model: {name}")))
        }
    }
}

/// Panics without printing, for panics that a script requests.
pub fn panic_quietly(message: &'static str) -> ! {
    std::panic::resume_unwind(Box::new(message))
}
