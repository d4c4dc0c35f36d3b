//! Carries a fold out: asks the model for a summary, within a time, and makes of its answer what is kept and shown. What
//! is folded is decided in [`agent::fold`]; when, by whoever drives this.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use agent::compaction::{CompactionMethod, CompactionPart, CompactionRecord, SummaryPlan, drop_oldest};
use agent::outside::{ModelEvent, ModelStream, Requester};
use agent::permission::Resource;
use agent::{Fault, FaultKind, FixedOverhead, Prices, TokenCount, ToolSpec, Usage, Window, WindowSize};
use futures_util::{FutureExt, StreamExt};
use tokio::time::Instant;

use crate::handle::Shared;

/// A summary that says more than so many bytes for each token it may have is none.
const TOKEN_BYTES_MAX: usize = 16;

/// Messages that were dropped from may be so much of their room afterwards.
const DROPPED_PERCENT: TokenCount = 60;

/// No drop asks for less.
const DROPPED_TOKENS_MIN: TokenCount = 64;

/// A summary on its way.
pub(super) struct SummaryCall {
    shared: Arc<Shared>,
    summary: SummaryPlan,
    stream: ModelStream,
    text: String,
    deadline: Instant,
}

/// What comes of waiting for a summary.
pub(super) enum SummaryStep {
    /// The model told what it used, and it was written down.
    Usage(Usage),
    /// It has summed up: the context's new parts.
    Summarized(Vec<CompactionPart>),
    /// What it says is no shorter than what it stands for, or is no summary.
    NotShorter,
    /// It has failed.
    Failed(Fault),
}

impl SummaryCall {
    /// Asks; nothing happens until it is polled.
    pub(super) fn start(shared: &Arc<Shared>, summary: SummaryPlan) -> Self {
        let mut question = summary.request(shared.provider.spec(), &|text| shared.provider.count(text));
        question.requester = Requester { agent: Some(shared.id.clone()), root: shared.node.root() };
        let asked = std::panic::catch_unwind(AssertUnwindSafe(|| shared.provider.call(question)));
        // A model that panics says nothing.
        let stream = asked.unwrap_or_else(|_| futures_util::stream::empty().boxed());
        let until = Instant::now() + shared.limits.summary_timeout;
        Self { shared: Arc::clone(shared), summary, stream, text: String::new(), deadline: until }
    }

    /// Waits for what comes next. Safe to drop and call again.
    pub(super) async fn next(&mut self) -> SummaryStep {
        loop {
            let next = AssertUnwindSafe(self.stream.next()).catch_unwind();
            let event = match tokio::time::timeout_at(self.deadline, next).await {
                Ok(Ok(Some(Ok(event)))) => event,
                Ok(Ok(Some(Err(fault)))) => return SummaryStep::Failed(fault),
                Ok(Ok(None)) => return summary_failed("its stream ended"),
                Ok(Err(_)) => return summary_failed("it panicked"),
                Err(_) => return summary_failed("it took too long"),
            };
            match event {
                ModelEvent::Text(text) => self.text.push_str(&text),
                ModelEvent::Usage(usage) => {
                    self.shared.record_model_usage(usage, self.shared.provider.spec().prices);
                    return SummaryStep::Usage(usage);
                }
                ModelEvent::FallbackUsage(usage, prices) => {
                    self.shared.record_model_usage(usage, prices);
                    return SummaryStep::Usage(usage);
                }
                ModelEvent::Done => return self.finish(),
                // It was given no tool; and why it stopped is seen by what it said.
                ModelEvent::Reasoning(_) | ModelEvent::ReasoningBlock(_) => {}
                ModelEvent::ToolCall(_) | ModelEvent::Stopped(_) => {}
                // A summary has one time for all of it.
                ModelEvent::Waiting | ModelEvent::Heartbeat => {}
            }
            let tokens_max = usize::try_from(self.summary.tokens_max()).unwrap_or(usize::MAX);
            if self.text.len() > tokens_max.saturating_mul(TOKEN_BYTES_MAX) {
                return summary_failed("it says too much");
            }
            tokio::task::consume_budget().await;
        }
    }

    fn finish(&self) -> SummaryStep {
        if self.text.trim().is_empty() {
            return summary_failed("its answer is empty");
        }
        let count = |text: &str| self.shared.provider.count(text);
        match self.summary.apply_response(&self.text, &count) {
            Some(parts) => SummaryStep::Summarized(parts),
            None => SummaryStep::NotShorter,
        }
    }
}

fn summary_failed(why: &str) -> SummaryStep {
    SummaryStep::Failed(Fault::new(FaultKind::Model, format!("the model has not summed up: {why}")))
}

/// A context made shorter, to be kept and then shown.
pub(super) struct CompactedWindow {
    pub(super) record: CompactionRecord,
    pub(super) window: Window,
}

impl Shared {
    /// What these parts make of the context.
    pub(super) fn compact_window(
        &self,
        parts: Vec<CompactionPart>,
        how: CompactionMethod,
        turn: Option<u64>,
        by: &str,
    ) -> CompactedWindow {
        let (before, gauge) = {
            let state = self.published.read();
            (state.window.clone(), state.calibration)
        };
        let window = before.compacted(&parts, &|text| self.provider.count(text));
        let record = CompactionRecord {
            turn,
            by: by.to_owned(),
            method: how,
            messages_before: before.messages().len(),
            tokens_before: gauge.to_model_tokens(before.message_tokens()),
            tokens_after: gauge.to_model_tokens(window.message_tokens()),
            parts,
        };
        tracing::info!(
            how = how.name(),
            tokens_before = record.tokens_before,
            tokens_after = record.tokens_after,
            "the context was made shorter"
        );
        CompactedWindow { record, window }
    }

    /// What the context is held against.
    pub(crate) fn fixed_overhead(&self, tools: &[Arc<ToolSpec>], dynamic: TokenCount) -> FixedOverhead {
        FixedOverhead {
            budget: self.provider.spec().window_tokens,
            tools: tools.iter().map(|tool| tool.tokens).sum(),
            volatile_suffix: dynamic,
            calibration: self.published.read().calibration,
        }
    }

    /// The context without its oldest messages, as far as it has to be shorter. It is halved when the model's window is not
    /// known, and after a refusal, because the window is not what was believed.
    pub(super) fn without_oldest(
        &self,
        frame: &FixedOverhead,
        size: &WindowSize,
        refusals: u32,
    ) -> Option<Vec<CompactionPart>> {
        let window = self.published.read().window.clone();
        let half = window.message_tokens() / 2;
        let room = frame.calibration.to_counted_tokens(size.message_capacity() * DROPPED_PERCENT / 100);
        let tokens_max = match (size.budget, refusals) {
            (0, _) => half,
            (_, 0) => room,
            _ => room.min(half),
        };
        drop_oldest(&window, tokens_max.max(DROPPED_TOKENS_MIN), &|text| self.provider.count(text))
    }

    /// Whether a model may be asked for a summary: it is paid from the agent's budget.
    pub(super) fn has_summary_budget(&self) -> bool {
        [Resource::Tokens, Resource::WallMs].iter().all(|resource| self.node.remaining(*resource) != Some(0))
    }

    /// Writes down what a model of these prices has used.
    pub(super) fn record_model_usage(&self, usage: Usage, prices: Option<Prices>) {
        self.published.write().used.add(usage, prices.as_ref());
        self.node.record_usage(Resource::Tokens, usage.input.saturating_add(usage.output));
        self.node.record_cost(prices.map_or(0, |prices| prices.cost(usage)));
    }
}
