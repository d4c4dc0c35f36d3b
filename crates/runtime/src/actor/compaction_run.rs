//! Execution of a compaction: requests a summary from the model within a deadline and builds the compacted window.
//! [`agent::compaction`] plans what is compacted; the turn driver or the actor decides when.

use std::sync::Arc;

use agent::compaction::{CompactionMethod, CompactionPart, CompactionRecord, SummaryPlan, drop_oldest};
use agent::outside::ModelEvent;
use agent::permission::Resource;
use agent::{
    Fault, FaultKind, FixedOverhead, Prices, PrincipalId, TokenCount, ToolSpec, Usage, Window, WindowSize,
};
use tokio::time::Instant;

use super::model_stream::{GuardedStream, StreamEnd};
use crate::answer_budget::AnswerReservation;
use crate::handle::Shared;

/// Bytes per allowed token beyond which a summary is rejected.
const TOKEN_BYTES_MAX: usize = 16;

/// Target fill level of the message capacity after dropping messages.
const DROPPED_PERCENT: TokenCount = 60;

/// Lower bound of the target token count.
const DROPPED_TOKENS_MIN: TokenCount = 64;

/// A streaming summary request.
pub(super) struct SummaryCall {
    shared: Arc<Shared>,
    summary: SummaryPlan,
    stream: GuardedStream,
    answer: AnswerReservation,
    text: String,
    deadline: Instant,
}

/// Next step of a summary request.
pub(super) enum SummaryStep {
    /// The model reported its usage, which was recorded.
    Usage(Usage),
    /// The summary is complete: parts of the new context.
    Summarized(Vec<CompactionPart>),
    /// The text is not shorter than the messages it replaces, or is no summary.
    NotShorter,
    /// The request failed.
    Failed(Fault),
}

impl SummaryCall {
    /// Creates the request; lazy until polled.
    pub(super) fn start(shared: &Arc<Shared>, summary: SummaryPlan) -> Self {
        let request = summary.request(shared.provider.spec(), &|text| shared.provider.count(text));
        let count = |text: &str| shared.provider.count(text);
        let input_tokens = request.system.iter().map(|text| count(text)).sum::<TokenCount>()
            + request.messages.iter().map(|message| count(&message.text)).sum::<TokenCount>();
        let stream = GuardedStream::start(shared, request, input_tokens);
        let answer = shared.admission.answers.open();
        let deadline = Instant::now() + shared.limits.summary_timeout;
        Self { shared: Arc::clone(shared), summary, stream, answer, text: String::new(), deadline }
    }

    /// Waits for the next step. Cancel safe.
    pub(super) async fn next(&mut self) -> SummaryStep {
        loop {
            let event = match tokio::time::timeout_at(self.deadline, self.stream.next(&mut self.answer)).await
            {
                Ok(Ok(event)) => event,
                Ok(Err(StreamEnd::Failed(fault))) => return SummaryStep::Failed(fault),
                Ok(Err(StreamEnd::Ended)) => return summary_failed("the stream ended"),
                Ok(Err(StreamEnd::Panicked(_))) => return summary_failed("the provider panicked"),
                Err(_) => return summary_failed("timed out"),
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
                // No tools were offered, and the text shows whether the summary is complete.
                ModelEvent::Reasoning(_) | ModelEvent::ReasoningBlock(_) => {}
                ModelEvent::ToolCall(_) | ModelEvent::Stopped(_) => {}
                // The deadline covers the whole request, including waits.
                ModelEvent::Waiting | ModelEvent::Heartbeat | ModelEvent::Buffered(_) => {}
            }
            let tokens_max = usize::try_from(self.summary.tokens_max()).unwrap_or(usize::MAX);
            if self.text.len() > tokens_max.saturating_mul(TOKEN_BYTES_MAX) {
                return summary_failed("too long");
            }
            tokio::task::consume_budget().await;
        }
    }

    fn finish(&self) -> SummaryStep {
        if self.text.trim().is_empty() {
            return summary_failed("empty response");
        }
        let count = |text: &str| self.shared.provider.count(text);
        match self.summary.apply_response(&self.text, &count) {
            Some(parts) => SummaryStep::Summarized(parts),
            None => SummaryStep::NotShorter,
        }
    }
}

impl Drop for SummaryCall {
    fn drop(&mut self) {
        if let Some(usage) = self.stream.take_unreported_usage() {
            self.shared.record_model_usage(usage, self.shared.provider.spec().prices);
        }
    }
}

fn summary_failed(why: &str) -> SummaryStep {
    SummaryStep::Failed(Fault::new(FaultKind::Model, format!("summary failed: {why}")))
}

/// A compacted window: committed first, then published.
pub(super) struct CompactedWindow {
    pub(super) record: CompactionRecord,
    pub(super) window: Window,
}

impl Shared {
    /// Builds the compacted window and its journal record.
    pub(super) fn compact_window(
        &self,
        parts: Vec<CompactionPart>,
        method: CompactionMethod,
        turn: Option<u64>,
        by: PrincipalId,
    ) -> CompactedWindow {
        let (before, calibration) = {
            let state = self.published.read();
            (state.window.clone(), state.calibration)
        };
        let window = before.compacted(&parts, &|text| self.provider.count(text));
        let record = CompactionRecord {
            turn,
            by,
            method,
            messages_before: before.messages().len(),
            tokens_before: calibration.to_model_tokens(before.message_tokens()),
            tokens_after: calibration.to_model_tokens(window.message_tokens()),
            parts,
        };
        tracing::info!(
            how = method.name(),
            tokens_before = record.tokens_before,
            tokens_after = record.tokens_after,
            "context compacted"
        );
        CompactedWindow { record, window }
    }

    /// Returns the fixed overhead of the next request, which the window size is computed with.
    pub(crate) fn fixed_overhead(
        &self,
        tools: &[Arc<ToolSpec>],
        volatile_suffix: TokenCount,
    ) -> FixedOverhead {
        FixedOverhead {
            budget: self.provider.spec().window_tokens,
            tools: tools.iter().map(|tool| tool.tokens).sum(),
            volatile_suffix,
            calibration: self.published.read().calibration,
        }
    }

    /// Drops the oldest messages as far as needed. Halves the context when the model's window size is unknown, and
    /// after the model rejected a request as too long: then the known window size is wrong.
    pub(super) fn without_oldest(
        &self,
        overhead: &FixedOverhead,
        size: &WindowSize,
        overflows: u32,
    ) -> Option<Vec<CompactionPart>> {
        let window = self.published.read().window.clone();
        let half = window.message_tokens() / 2;
        let capacity =
            overhead.calibration.to_counted_tokens(size.message_capacity() * DROPPED_PERCENT / 100);
        let tokens_max = match (size.budget, overflows) {
            (0, _) => half,
            (_, 0) => capacity,
            _ => capacity.min(half),
        };
        drop_oldest(&window, tokens_max.max(DROPPED_TOKENS_MIN), &|text| self.provider.count(text))
    }

    /// Whether the agent's budget allows a summary request.
    pub(super) fn has_summary_budget(&self) -> bool {
        [Resource::Tokens, Resource::WallMs].iter().all(|resource| self.node.remaining(*resource) != Some(0))
    }

    /// Records token usage and its cost.
    pub(super) fn record_model_usage(&self, usage: Usage, prices: Option<Prices>) {
        self.published.write().usage_totals.add(usage, prices.as_ref());
        self.node.record_usage(Resource::Tokens, usage.input.saturating_add(usage.output));
        self.node.record_cost(prices.map_or(0, |prices| prices.cost(usage)));
    }
}
