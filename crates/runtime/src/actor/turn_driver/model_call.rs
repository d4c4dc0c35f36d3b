//! Model calls of a turn: builds requests, handles stream events, and keeps requests within the context window.
//! Compacts the context before a call when it is full, and after the model rejected a request as too long.

use std::sync::Arc;
use std::time::Duration;

use agent::compaction::{CompactionMethod, CompactionPart, CompactionTrigger, SummaryPlan};
use agent::outside::{ModelEvent, ModelRequest, StopReason, ToolSet};
use agent::permission::Resource;
use agent::{
    Fault, FaultKind, FixedOverhead, PrincipalId, TokenCalibration, TokenCount, ToolSpec, TurnEvent, Usage,
};
use tokio::time::Instant;

use super::super::compaction_run::{SummaryCall, SummaryStep};
use super::super::model_stream::{GuardedStream, stream_ended};
use super::{Awaited, DriverEvent, TurnDriver};
use crate::event_bus::{Delta, DeltaKind};

/// Rejections of a request as too long before the turn fails.
const OVERFLOWS_MAX: u32 = 6;

/// Upper bound for a queued request, in case a provider does not bound its own waits, which are far shorter.
const QUEUE_WAIT_MAX: Duration = Duration::from_secs(3_600);

/// Progress towards the next model response.
#[derive(Default)]
pub(super) struct ModelCall {
    /// Workspace status, read once per turn.
    workspace_status: Option<Option<String>>,
    /// Local token count of the current request, until the model reports its own.
    counted_tokens: Option<TokenCount>,
    /// Whether any event of the response has arrived.
    has_response: bool,
    /// Whether the provider queues the request and has not sent it yet.
    is_queued: bool,
    has_summarized: bool,
    has_dropped: bool,
    /// Rejections of the request as too long.
    overflows: u32,
    /// Whether the model rejected the current context.
    has_overflowed: bool,
}

impl ModelCall {
    /// Resets the progress: the next request is a new one.
    fn on_response_started(&mut self) {
        let (workspace_status, counted_tokens) = (self.workspace_status.take(), self.counted_tokens);
        *self = Self { workspace_status, counted_tokens, has_response: true, ..Self::default() };
    }
}

/// Request content beside the context.
struct RequestExtras {
    /// The tools that exist, for the calls in the response.
    tool_set: Arc<ToolSet>,
    /// The tools that the request offers.
    tools: Vec<Arc<ToolSpec>>,
    volatile_suffix: Option<Arc<str>>,
    fixed_overhead: FixedOverhead,
}

impl TurnDriver {
    /// Calls the model, waits for a slot to do so, or ends the turn on an exhausted budget.
    pub(super) fn start_model_call(&mut self) {
        let is_exhausted = |resource: &Resource| self.shared.node.remaining(*resource) == Some(0);
        let exhausted = self
            .exhausted
            .take()
            .or_else(|| [Resource::Tokens, Resource::WallMs].into_iter().find(is_exhausted));
        if let Some(resource) = exhausted {
            return self.apply(TurnEvent::BudgetExhausted(resource));
        }
        if self.slot.is_none() {
            let slots = Arc::clone(&self.shared.admission.slots);
            self.awaited = Awaited::Slot(Box::pin(slots.acquire_owned()));
            return;
        }
        let extras = self.request_extras();
        if !self.compact_if_needed(&extras) {
            self.call_model(extras);
        }
    }

    fn request_extras(&mut self) -> RequestExtras {
        let shared = &self.shared;
        let tool_set = shared.tool_set();
        let tools = shared.visible_tools_of(&tool_set);
        let status = self.model_call.workspace_status.get_or_insert_with(|| shared.workspace_status());
        let volatile_suffix = shared.volatile_suffix(status.as_deref()).map(Arc::from);
        let volatile_suffix_tokens = volatile_suffix.as_deref().map_or(0, |text| shared.provider.count(text));
        let fixed_overhead = shared.fixed_overhead(&tools, volatile_suffix_tokens);
        RequestExtras { tool_set, tools, volatile_suffix, fixed_overhead }
    }

    /// Starts a compaction if the context needs one; returns whether it did.
    fn compact_if_needed(&mut self, extras: &RequestExtras) -> bool {
        let size = self.shared.published.read().window.size(&extras.fixed_overhead);
        if !size.is_full() && !self.model_call.has_overflowed {
            return false;
        }
        if !std::mem::replace(&mut self.model_call.has_summarized, true) && self.shared.has_summary_budget() {
            let window = self.shared.published.read().window.clone();
            if let Some(summary) = SummaryPlan::plan(
                &window,
                &size,
                extras.fixed_overhead.calibration,
                CompactionTrigger::WindowFull,
            ) {
                self.model_call.counted_tokens = None;
                self.awaited = Awaited::Summary(Box::new(SummaryCall::start(&self.shared, summary)));
                return true;
            }
        }
        if !std::mem::replace(&mut self.model_call.has_dropped, true) {
            let overflows = if self.model_call.has_overflowed { self.model_call.overflows } else { 0 };
            if let Some(parts) = self.shared.without_oldest(&extras.fixed_overhead, &size, overflows) {
                self.stage_compaction(parts, CompactionMethod::Dropped);
                self.pending_actions.push_front(agent::TurnAction::CallModel);
                return true;
            }
        }
        self.model_call.has_overflowed = false;
        false
    }

    fn stage_compaction(&mut self, parts: Vec<CompactionPart>, method: CompactionMethod) {
        let compacted = self.shared.compact_window(parts, method, Some(self.turn_number), PrincipalId::Auto);
        let reclaimed = compacted.record.reclaimed();
        self.staged.stage_compaction(compacted);
        self.model_call.has_overflowed = false;
        self.apply(TurnEvent::Compacted(reclaimed));
    }

    /// Handles a summary step. The model is called after the last one, whether there is a summary or not.
    pub(super) fn on_summary_step(&mut self, step: SummaryStep) -> DriverEvent {
        match step {
            SummaryStep::Usage(usage) => return DriverEvent::Turn(TurnEvent::Usage(usage)),
            SummaryStep::Summarized(parts) => self.stage_compaction(parts, CompactionMethod::Summary),
            SummaryStep::NotShorter => {
                tracing::warn!("summary discarded: not shorter than the messages it replaces");
            }
            SummaryStep::Failed(fault) => tracing::warn!("compacting without a summary: {fault}"),
        }
        self.drop_stream();
        DriverEvent::CallModel
    }

    fn call_model(&mut self, extras: RequestExtras) {
        let RequestExtras { tool_set, tools, volatile_suffix, fixed_overhead } = extras;
        self.tools.next_round(tool_set);
        let request = {
            let mut state = self.shared.published.write();
            state.volatile_suffix_tokens = fixed_overhead.volatile_suffix;
            // Uncalibrated: the calibration learns from the raw local count.
            let counted = state
                .window
                .size(&FixedOverhead { calibration: TokenCalibration::default(), ..fixed_overhead });
            self.model_call.counted_tokens = Some(counted.total);
            ModelRequest {
                system: state.window.system().cloned(),
                messages: state.window.request_messages(),
                history_version: Some(state.window.history_version().clone()),
                volatile_suffix,
                tools,
                ..ModelRequest::default()
            }
        };
        (self.model_call.has_response, self.model_call.is_queued) = (false, false);
        tracing::debug!(messages = request.messages.len(), tools = request.tools.len(), "calling the model");
        let input_tokens = self.model_call.counted_tokens.unwrap_or_default();
        self.answer.begin_response();
        self.awaited = Awaited::Model(GuardedStream::start(&self.shared, request, input_tokens));
        self.last_event_at = Instant::now();
    }

    /// Waits for the next model event. Drops the stream at its end.
    pub(super) async fn next_model_event(&mut self) -> DriverEvent {
        let idle = self.shared.limits.model_idle_timeout;
        // Waiting in the provider's queue, or for a retry-after delay, is not idleness.
        let idle_max = if self.model_call.is_queued { idle.max(QUEUE_WAIT_MAX) } else { idle };
        let timeout = idle_max.saturating_sub(self.last_event_at.elapsed());
        let Awaited::Model(stream) = &mut self.awaited else {
            return DriverEvent::Turn(TurnEvent::ModelFailed(stream_ended()));
        };
        let fault = match tokio::time::timeout(timeout, stream.next(&mut self.answer)).await {
            Ok(Ok(event)) => return self.on_model_event(event),
            Ok(Err(end)) => end.into_fault(),
            Err(_) => Fault::new(
                FaultKind::Model,
                format!("API request timed out: the model was silent for {} s", idle_max.as_secs_f64()),
            ),
        };
        self.drop_stream();
        if self.record_overflow(&fault) {
            DriverEvent::CallModel
        } else {
            DriverEvent::Turn(TurnEvent::ModelFailed(fault))
        }
    }

    /// Converts a model event.
    fn on_model_event(&mut self, event: ModelEvent) -> DriverEvent {
        self.model_call.is_queued = event == ModelEvent::Waiting;
        if matches!(event, ModelEvent::Waiting | ModelEvent::Heartbeat | ModelEvent::Buffered(_)) {
            return DriverEvent::Nothing;
        }
        if !self.model_call.has_response {
            self.model_call.on_response_started();
        }
        DriverEvent::Turn(match event {
            ModelEvent::Text(text) => {
                self.publish_delta(DeltaKind::Text, &text);
                TurnEvent::Text(text)
            }
            // Not part of the response: published to subscribers only.
            ModelEvent::Reasoning(text) => {
                self.publish_delta(DeltaKind::Reasoning, &text);
                return DriverEvent::Nothing;
            }
            ModelEvent::ReasoningBlock(block) => TurnEvent::ReasoningBlock(block),
            ModelEvent::Usage(usage) => {
                self.calibrate(usage);
                self.shared.record_model_usage(usage, self.shared.provider.spec().prices);
                TurnEvent::Usage(usage)
            }
            // Counted by another model's tokenizer: no use for calibration.
            ModelEvent::FallbackUsage(usage, prices) => {
                self.shared.record_model_usage(usage, prices);
                TurnEvent::Usage(usage)
            }
            ModelEvent::Stopped(StopReason::Length) => TurnEvent::Truncated,
            ModelEvent::Stopped(_)
            | ModelEvent::Waiting
            | ModelEvent::Heartbeat
            | ModelEvent::Buffered(_) => {
                return DriverEvent::Nothing;
            }
            // Dropped before it is prepared: prepared calls have the indexes of the turn's calls.
            ModelEvent::ToolCall(call) if self.turn.has_call(&call.id) => {
                tracing::warn!(tool = call.name, "tool call dropped: the response has another with its id");
                return DriverEvent::Nothing;
            }
            ModelEvent::ToolCall(call) => {
                let schedule = self.tools.prepare(&call);
                TurnEvent::ToolCall(call, schedule)
            }
            ModelEvent::Done => {
                self.drop_stream();
                TurnEvent::ModelDone
            }
        })
    }

    /// Calibrates the token count with the first usage report of a response, unless it contains our own count.
    fn calibrate(&mut self, usage: Usage) {
        if usage.input > 0
            && usage.estimated == 0
            && let Some(counted) = self.model_call.counted_tokens.take()
        {
            self.shared.published.write().calibration.observe(counted, usage.input);
        }
    }

    /// Records that the request was too long; returns whether to retry with a shorter context. Not if a part of the
    /// response has arrived, or after too many rejections.
    fn record_overflow(&mut self, fault: &Fault) -> bool {
        let call = &mut self.model_call;
        if fault.kind != FaultKind::ContextFull || call.has_response || call.overflows >= OVERFLOWS_MAX {
            return false;
        }
        call.overflows += 1;
        call.has_overflowed = true;
        call.has_dropped = false;
        true
    }

    /// Publishes streamed model output to subscribers.
    fn publish_delta(&self, kind: DeltaKind, text: &str) {
        let shared = &self.shared;
        if shared.event_bus.has_subscribers() && !text.is_empty() {
            shared.event_bus.publish_delta(Delta {
                agent: shared.node.serial,
                agent_id: shared.id.clone(),
                request_id: self.request_id.clone(),
                turn: self.turn_number,
                kind,
                text: text.to_owned(),
            });
        }
    }
}
