//! A model that plays scripts and writes down what it saw: who asked, in which order, and how many at once.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::outside::{ModelEvent, ModelRequest, ModelSpec, ModelStream, Provider, StopReason};
use agent::{Fault, FaultKind, Role, TokenCount, ToolCall, Usage, UsageTotals};
use tokio::sync::{Notify, watch};

use crate::script::{Step, round_steps};

/// More than any history here gets; those that are about a full window have one of their own.
pub(crate) const WINDOW_TOKENS: TokenCount = 1_000_000_000;

/// How a question for a summary begins.
const SUMMARY_PROMPT_START: &str = "Below is the older part of a conversation";

/// The model, and what it saw.
pub(crate) struct ScriptedModel {
    state: Arc<ModelState>,
    traits: ModelSpec,
}

struct ModelState {
    observations: Mutex<ModelObservations>,
    /// How often the model was asked.
    call_count: watch::Sender<usize>,
}

/// What the model saw. An agent is known by its first message.
#[derive(Default)]
pub(crate) struct ModelObservations {
    /// Agent and script of each question, in order.
    pub(crate) prompts: Vec<(String, String)>,
    /// The requests as they came.
    pub(crate) requests: Vec<ModelRequest>,
    /// Streams that are there now, by agent.
    live_by_agent: HashMap<String, usize>,
    /// Streams that are there now.
    pub(crate) live_total: usize,
    /// The most streams there ever were at once.
    pub(crate) live_max: usize,
    /// Agents that had two streams at once.
    pub(crate) overlapping_agents: Vec<String>,
    /// What was reported, by agent.
    pub(crate) reported_usage: HashMap<String, UsageTotals>,
    /// How often each agent got an empty answer to a script behind so many messages.
    empty_responses: HashMap<(String, String, usize), usize>,
    paused: VecDeque<Arc<Notify>>,
    tool_call_count: usize,
    /// What is done when a summary is wanted.
    pub(crate) summary_script: String,
    /// Questions for summaries, as they came.
    pub(crate) summary_requests: Vec<String>,
    /// Questions of more characters than this are refused as too long.
    pub(crate) characters_max: Option<usize>,
    /// How often that was.
    pub(crate) refused_count: usize,
}

impl ScriptedModel {
    pub(crate) fn new(traits: ModelSpec) -> Self {
        let seen = ModelObservations {
            summary_script: "say in short; done".to_owned(),
            ..ModelObservations::default()
        };
        let stage = ModelState { observations: Mutex::new(seen), call_count: watch::Sender::new(0) };
        Self { state: Arc::new(stage), traits }
    }

    pub(crate) fn observations(&self) -> MutexGuard<'_, ModelObservations> {
        self.state.observations()
    }

    /// Returns when the model has been asked so often.
    pub(crate) async fn wait_called(&self, times: usize) {
        let mut asked = self.state.call_count.subscribe();
        asked.wait_for(|count| *count >= times).await.expect("the model is there");
    }

    /// Lets the stream go on that has waited longest. False when none waits.
    pub(crate) fn release_one(&self) -> bool {
        let mut seen = self.observations();
        while let Some(gate) = seen.paused.pop_front() {
            // One that is held by nobody else was dropped while it waited.
            if Arc::strong_count(&gate) > 1 {
                gate.notify_one();
                return true;
            }
        }
        false
    }

    pub(crate) fn release_all(&self) {
        while self.release_one() {}
    }
}

impl ModelState {
    fn observations(&self) -> MutexGuard<'_, ModelObservations> {
        self.observations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Provider for ScriptedModel {
    fn call(&self, request: ModelRequest) -> ModelStream {
        let agent = request.messages.first().expect("a question has messages").text.clone();
        let asking = request.messages.iter().rev().find(|message| message.role == Role::User);
        let script = asking.expect("a question has a user's message").text.clone();
        let mut seen = self.observations();
        let characters: usize = request.messages.iter().map(|message| message.text.len()).sum();
        if seen.characters_max.is_some_and(|max| characters > max) {
            seen.refused_count += 1;
            let fault = Fault::new(FaultKind::ContextFull, "the prompt is too long");
            return Box::pin(futures_util::stream::once(std::future::ready(Err(fault))));
        }
        if script.starts_with(SUMMARY_PROMPT_START) {
            let steps = round_steps(&seen.summary_script, 0);
            seen.summary_requests.push(script);
            drop(seen);
            return ScriptedStream::start(Arc::clone(&self.state), "a summary".to_owned(), steps)
                .into_stream();
        }
        // An answer that was kept is in the question; an empty one leaves nothing behind and is remembered.
        let answers = |message: &&Arc<agent::Message>| message.role == Role::Assistant;
        let since = request.messages.iter().rev().take_while(|message| message.role != Role::User);
        let number = since.filter(answers).count();
        let key = (agent.clone(), script.clone(), request.messages.len());
        let empty = seen.empty_responses.entry(key).or_default();
        let steps = round_steps(&script, number + *empty);
        let is_word = |step: &Step| matches!(step, Step::Say(_) | Step::Call(..) | Step::Flood(1..));
        *empty += usize::from(!steps.iter().any(is_word));
        seen.prompts.push((agent.clone(), script));
        seen.requests.push(request);
        self.state.call_count.send_replace(seen.prompts.len());
        drop(seen);
        if steps.contains(&Step::PanicAtCall) {
            panic_quietly("the model panicked when asked");
        }
        ScriptedStream::start(Arc::clone(&self.state), agent, steps).into_stream()
    }

    fn model(&self) -> Option<&str> {
        Some("scripted/one")
    }

    fn spec(&self) -> &ModelSpec {
        &self.traits
    }
}

/// An answer under way. It counts as a stream from the question to its drop.
struct ScriptedStream {
    state: Arc<ModelState>,
    agent: String,
    steps: VecDeque<Step>,
    panics_at_drop: bool,
}

impl ScriptedStream {
    fn start(stage: Arc<ModelState>, agent: String, steps: Vec<Step>) -> Self {
        let mut seen = stage.observations();
        let live = seen.live_by_agent.entry(agent.clone()).or_default();
        *live += 1;
        if *live > 1 {
            seen.overlapping_agents.push(agent.clone());
        }
        seen.live_total += 1;
        seen.live_max = seen.live_max.max(seen.live_total);
        drop(seen);
        let panics_at_drop = steps.contains(&Step::PanicAtDrop);
        Self { state: stage, agent, steps: steps.into(), panics_at_drop }
    }

    fn into_stream(self) -> ModelStream {
        Box::pin(futures_util::stream::unfold(self, |mut playing| async move {
            let item = playing.next_event().await?;
            Some((item, playing))
        }))
    }

    async fn next_event(&mut self) -> Option<Result<ModelEvent, Fault>> {
        loop {
            let event = match self.steps.pop_front()? {
                Step::Say(text) => ModelEvent::Text(text),
                Step::Think(text) => ModelEvent::Reasoning(text),
                Step::Call(name, arguments) => self.call(name, arguments),
                Step::Report(tokens) => self.report(tokens),
                Step::StopAtLength => ModelEvent::Stopped(StopReason::Length),
                Step::Done => ModelEvent::Done,
                Step::ReportQueued => ModelEvent::Waiting,
                Step::Heartbeat => ModelEvent::Heartbeat,
                Step::Fail => return Some(Err(Fault::new(FaultKind::Model, "the model failed"))),
                Step::Panic => panic_quietly("the model panicked in its stream"),
                Step::Flood(0) | Step::PanicAtCall | Step::PanicAtDrop => continue,
                Step::Flood(letters) => {
                    self.steps.push_front(Step::Flood(letters - 1));
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
                let gate = Arc::new(Notify::new());
                self.state.observations().paused.push_back(Arc::clone(&gate));
                gate.notified().await;
            }
            _ => tokio::task::yield_now().await,
        }
    }

    fn call(&self, name: String, arguments: String) -> ModelEvent {
        let mut seen = self.state.observations();
        seen.tool_call_count += 1;
        let id = format!("call-{}", seen.tool_call_count);
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
        let mut seen = self.state.observations();
        seen.live_total -= 1;
        if let Some(live) = seen.live_by_agent.get_mut(&self.agent) {
            *live -= 1;
        }
        drop(seen);
        // A second panic on the way out of a first would end the whole test program.
        if self.panics_at_drop && !std::thread::panicking() {
            panic_quietly("the model panicked when dropped");
        }
    }
}

/// A panic that is part of the play: nothing is printed about it.
pub(crate) fn panic_quietly(text: &'static str) -> ! {
    std::panic::resume_unwind(Box::new(text))
}
