//! The model's side of a turn: what it is asked, what it says, and that the question fits its window. A context that is
//! too long is made shorter before the model is asked, and when it says that it is.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use agent::compaction::{CompactionMethod, CompactionPart, CompactionTrigger, SummaryPlan};
use agent::outside::{ModelEvent, ModelRequest, Requester, StopReason};
use agent::permission::Resource;
use agent::{Fault, FaultKind, FixedOverhead, TokenCalibration, TokenCount, ToolSpec, TurnEvent, Usage};
use futures_util::{FutureExt, StreamExt};
use tokio::time::Instant;

use super::super::compaction_run::{SummaryCall, SummaryStep};
use super::{Awaited, TurnDriver, stream_ended, turn_panicked};
use crate::event_bus::{Delta, DeltaKind};

/// How often a model may say that a question is too long before it is believed that nothing helps.
const OVERFLOWS_MAX: u32 = 6;

/// The most that a question may wait where the provider does not end it: each bounds its waits itself, far below this.
const QUEUE_WAIT_MAX: Duration = Duration::from_secs(3_600);

/// Who makes a context shorter that is full.
const AUTO_INITIATOR: &str = "auto";

/// How far the way to the next answer is.
#[derive(Default)]
pub(super) struct ModelCall {
    /// What is under way in the working directory, once somebody has looked in this turn.
    workspace_state: Option<Option<String>>,
    /// What the question under way was counted as, until the model tells what it read.
    counted_tokens: Option<TokenCount>,
    /// Whether anything of the answer has come.
    has_response: bool,
    /// Whether the question under way waits, and nobody is asked yet.
    is_queued: bool,
    has_summarized: bool,
    has_dropped: bool,
    /// How often the model has said that the question is too long.
    overflows: u32,
    /// Whether it has said so of the context as it is.
    has_overflowed: bool,
}

impl ModelCall {
    /// The model answers: the next question is a new one.
    fn on_response_started(&mut self) {
        let (state, counted) = (self.workspace_state.take(), self.counted_tokens);
        *self =
            Self { workspace_state: state, counted_tokens: counted, has_response: true, ..Self::default() };
    }
}

/// What is sent beside the context.
struct RequestExtras {
    tools: Vec<Arc<ToolSpec>>,
    volatile_suffix: Option<Arc<str>>,
    fixed_overhead: FixedOverhead,
}

impl TurnDriver {
    /// Asks the model, or waits for a slot to do it, or says why not.
    pub(super) fn start_model_call(&mut self) {
        let used_up = |resource: &Resource| self.shared.node.remaining(*resource) == Some(0);
        let spent =
            self.exhausted.take().or_else(|| [Resource::Tokens, Resource::WallMs].into_iter().find(used_up));
        if let Some(resource) = spent {
            return self.apply(TurnEvent::BudgetExhausted(resource));
        }
        if self.slot.is_none() {
            let slots = Arc::clone(&self.shared.admission.slots);
            self.awaited = Awaited::Slot(Box::pin(slots.acquire_owned()));
            return;
        }
        let beside = self.request_extras();
        if !self.compact_if_needed(&beside) {
            self.call_model(beside);
        }
    }

    fn request_extras(&mut self) -> RequestExtras {
        let shared = &self.shared;
        let tools = shared.visible_tools();
        let state = self.model_call.workspace_state.get_or_insert_with(|| shared.workspace_state());
        let tail = shared.volatile_suffix(state.as_deref()).map(Arc::from);
        let dynamic = tail.as_deref().map_or(0, |tail| shared.provider.count(tail));
        let frame = shared.fixed_overhead(&tools, dynamic);
        RequestExtras { tools, volatile_suffix: tail, fixed_overhead: frame }
    }

    /// Whether the context has to be made shorter first; then that has begun.
    fn compact_if_needed(&mut self, beside: &RequestExtras) -> bool {
        let size = self.shared.published.read().window.size(&beside.fixed_overhead);
        if !size.is_full() && !self.model_call.has_overflowed {
            return false;
        }
        if !std::mem::replace(&mut self.model_call.has_summarized, true) && self.shared.has_summary_budget() {
            let window = self.shared.published.read().window.clone();
            if let Some(summary) = SummaryPlan::plan(
                &window,
                &size,
                beside.fixed_overhead.calibration,
                CompactionTrigger::WindowFull,
            ) {
                self.model_call.counted_tokens = None;
                self.awaited = Awaited::Summary(Box::new(SummaryCall::start(&self.shared, summary)));
                return true;
            }
        }
        if !std::mem::replace(&mut self.model_call.has_dropped, true) {
            let refusals = if self.model_call.has_overflowed { self.model_call.overflows } else { 0 };
            if let Some(parts) = self.shared.without_oldest(&beside.fixed_overhead, &size, refusals) {
                self.stage_compaction(parts, CompactionMethod::Dropped);
                self.pending_actions.push_front(agent::TurnAction::CallModel);
                return true;
            }
        }
        self.model_call.has_overflowed = false;
        false
    }

    fn stage_compaction(&mut self, parts: Vec<CompactionPart>, how: CompactionMethod) {
        let fold = self.shared.compact_window(parts, how, Some(self.turn_number), AUTO_INITIATOR);
        let reclaimed = fold.record.reclaimed();
        self.staged.stage_compaction(fold);
        self.model_call.has_overflowed = false;
        self.apply(TurnEvent::Compacted(reclaimed));
    }

    /// What comes of the summary. None when the model is to be asked now.
    pub(super) fn on_summary_step(&mut self, step: SummaryStep) -> Option<TurnEvent> {
        match step {
            SummaryStep::Usage(usage) => return Some(TurnEvent::Usage(usage)),
            SummaryStep::Summarized(parts) => self.stage_compaction(parts, CompactionMethod::Summary),
            SummaryStep::NotShorter => tracing::warn!("no summary: the model's is not shorter"),
            SummaryStep::Failed(fault) => tracing::warn!("no summary: {fault}"),
        }
        self.drop_stream();
        None
    }

    fn call_model(&mut self, beside: RequestExtras) {
        self.tools.next_round();
        let RequestExtras { tools, volatile_suffix: tail, fixed_overhead: frame } = beside;
        let request = {
            let mut state = self.shared.published.write();
            state.volatile_suffix_tokens = frame.volatile_suffix;
            // As counted: what was corrected would teach nothing.
            let counted =
                state.window.size(&FixedOverhead { calibration: TokenCalibration::default(), ..frame });
            self.model_call.counted_tokens = Some(counted.total);
            ModelRequest {
                system: state.window.system().cloned(),
                messages: state.window.request_messages(),
                history_version: Some(state.window.history_version().clone()),
                volatile_suffix: tail,
                tools,
                requester: Requester { agent: Some(self.shared.id.clone()), root: self.shared.node.root() },
                ..ModelRequest::default()
            }
        };
        (self.model_call.has_response, self.model_call.is_queued) = (false, false);
        tracing::debug!(messages = request.messages.len(), tools = request.tools.len(), "asking the model");
        let asked = std::panic::catch_unwind(AssertUnwindSafe(|| self.shared.provider.call(request)));
        self.awaited = Awaited::Model(asked.unwrap_or_else(|panic| {
            let fault = turn_panicked(panic.as_ref());
            futures_util::stream::once(std::future::ready(Err(fault))).boxed()
        }));
        self.last_event_at = Instant::now();
    }

    /// None when the model is to be asked again.
    pub(super) async fn next_model_event(&mut self) -> Option<TurnEvent> {
        let idle = self.shared.limits.model_idle_timeout;
        // Whoever waits for a place, or for the time that a server named, is not silent.
        let silence_max = if self.model_call.is_queued { idle.max(QUEUE_WAIT_MAX) } else { idle };
        let patience = silence_max.saturating_sub(self.last_event_at.elapsed());
        let Awaited::Model(stream) = &mut self.awaited else {
            return Some(TurnEvent::ModelFailed(stream_ended()));
        };
        let next = AssertUnwindSafe(stream.next()).catch_unwind();
        let event = match tokio::time::timeout(patience, next).await {
            Ok(Ok(Some(Ok(event)))) => match self.on_model_event(event) {
                Some(event) => return Some(event),
                None => TurnEvent::ModelDone,
            },
            Ok(Ok(Some(Err(fault)))) if self.should_retry_shorter(&fault) => {
                self.drop_stream();
                return None;
            }
            Ok(Ok(Some(Err(fault)))) => TurnEvent::ModelFailed(fault),
            Ok(Ok(None)) => TurnEvent::ModelFailed(stream_ended()),
            Ok(Err(panic)) => TurnEvent::ModelFailed(turn_panicked(panic.as_ref())),
            Err(_) => TurnEvent::ModelFailed(Fault::new(
                FaultKind::Model,
                format!("API request timed out: the model was silent for {} s", silence_max.as_secs_f64()),
            )),
        };
        self.drop_stream();
        Some(event)
    }

    /// None when the answer is complete.
    fn on_model_event(&mut self, event: ModelEvent) -> Option<TurnEvent> {
        self.model_call.is_queued = event == ModelEvent::Waiting;
        if matches!(event, ModelEvent::Waiting | ModelEvent::Heartbeat) {
            return Some(TurnEvent::Text(String::new()));
        }
        if !self.model_call.has_response {
            self.model_call.on_response_started();
        }
        Some(match event {
            ModelEvent::Text(text) => {
                self.publish_delta(DeltaKind::Text, &text);
                TurnEvent::Text(text)
            }
            // Not part of the answer: whoever listens hears it, and the turn goes on.
            ModelEvent::Reasoning(text) => {
                self.publish_delta(DeltaKind::Reasoning, &text);
                TurnEvent::Text(String::new())
            }
            ModelEvent::ReasoningBlock(thoughts) => TurnEvent::ReasoningBlock(thoughts),
            ModelEvent::Usage(usage) => {
                self.calibrate(usage);
                self.shared.record_model_usage(usage, self.shared.provider.spec().prices);
                TurnEvent::Usage(usage)
            }
            // Counted by another tokenizer: it teaches nothing.
            ModelEvent::FallbackUsage(usage, prices) => {
                self.shared.record_model_usage(usage, prices);
                TurnEvent::Usage(usage)
            }
            ModelEvent::Stopped(StopReason::Length) => TurnEvent::Truncated,
            ModelEvent::Stopped(_) | ModelEvent::Waiting | ModelEvent::Heartbeat => {
                TurnEvent::Text(String::new())
            }
            ModelEvent::ToolCall(call) => {
                let manner = self.tools.prepare(&call);
                TurnEvent::ToolCall(call, manner)
            }
            ModelEvent::Done => return None,
        })
    }

    /// The first report of an answer tells how the model counts.
    fn calibrate(&mut self, usage: Usage) {
        if usage.input > 0
            && let Some(counted) = self.model_call.counted_tokens.take()
        {
            self.shared.published.write().calibration.observe(counted, usage.input);
        }
    }

    /// Whether the question does not fit, and a shorter one may: nothing has come of the answer yet.
    fn should_retry_shorter(&mut self, fault: &Fault) -> bool {
        let asking = &mut self.model_call;
        if fault.kind != FaultKind::ContextFull || asking.has_response || asking.overflows >= OVERFLOWS_MAX {
            return false;
        }
        asking.overflows += 1;
        asking.has_overflowed = true;
        asking.has_dropped = false;
        true
    }

    /// Tells whoever listens what the model says.
    fn publish_delta(&self, kind: DeltaKind, text: &str) {
        let shared = &self.shared;
        if shared.event_bus.has_subscribers() && !text.is_empty() {
            shared.event_bus.publish_delta(Delta {
                agent: shared.node.serial,
                name: shared.id.clone(),
                request_id: self.request_id.clone(),
                turn: self.turn_number,
                kind,
                text: text.to_owned(),
            });
        }
    }
}
