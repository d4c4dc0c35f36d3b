//! Compaction on request. It is queued with the requests and blocks those behind it.

use std::ops::ControlFlow;
use std::sync::Arc;

use agent::compaction::{CompactionMethod, CompactionPart, CompactionTrigger, SummaryPlan};
use agent::journal::Record;
use agent::{Fault, PrincipalId, TokenCount};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::Actor;
use super::compaction_run::{SummaryCall, SummaryStep};
use crate::admission::{AdmissionPermit, shutting_down};

/// Outcome of a requested compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionOutcome {
    /// Nothing to compact.
    Nothing,
    /// The messages were compacted.
    Done {
        /// Token count of the messages before.
        tokens_before: TokenCount,
        /// Token count of the messages after.
        tokens_after: TokenCount,
    },
}

/// When a requested compaction applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionCondition {
    /// Always, if there is anything to compact.
    Now,
    /// Only when the context window is full.
    Full,
}

/// A queued compaction request.
pub(crate) struct CompactionRequest {
    pub(crate) initiator: PrincipalId,
    pub(crate) condition: CompactionCondition,
    pub(crate) reply: oneshot::Sender<Result<CompactionOutcome, Fault>>,
    pub(crate) permit: AdmissionPermit,
}

/// Why a compaction did not happen.
enum CompactionAborted {
    /// The agent or the daemon is stopping.
    Ended,
    /// The summary failed. The context is not full, so no message is dropped instead.
    Failed(Fault),
}

impl Actor {
    pub(super) async fn compact(&mut self, compaction: CompactionRequest) -> ControlFlow<()> {
        let CompactionRequest { initiator, condition, reply, permit } = compaction;
        self.is_compacting = true;
        let parts = match self.acquire_slot(None).await {
            Ok(slot) => self.plan_compaction(condition, slot).await,
            Err(_) => Err(CompactionAborted::Ended),
        };
        self.is_compacting = false;
        let is_summary_failure = matches!(parts, Err(CompactionAborted::Failed(_)));
        let result = match parts {
            Ok(None) => Ok(CompactionOutcome::Nothing),
            Ok(Some((parts, method))) => self.commit_compaction(parts, method, initiator).await,
            Err(CompactionAborted::Failed(fault)) => Err(fault),
            Err(CompactionAborted::Ended) if self.shared.end_requested.is_cancelled() => {
                Err(self.shared.unavailable())
            }
            Err(CompactionAborted::Ended) => Err(shutting_down()),
        };
        // Releases the permit before the response is sent.
        drop(permit);
        let reload_cause = result.clone().err().filter(|_| !is_summary_failure && !self.is_shutting_down());
        let _ = reply.send(result);
        match reload_cause {
            Some(fault) => self.reload(fault).await,
            None if self.shared.end_requested.is_cancelled() => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    }

    fn is_shutting_down(&self) -> bool {
        self.shared.end_requested.is_cancelled() || self.shared.admission.abort.is_cancelled()
    }

    /// Plans the new context; `None` when it stays as it is.
    async fn plan_compaction(
        &mut self,
        condition: CompactionCondition,
        _slot: OwnedSemaphorePermit,
    ) -> Result<Option<(Vec<CompactionPart>, CompactionMethod)>, CompactionAborted> {
        let shared = Arc::clone(&self.shared);
        let overhead = shared.fixed_overhead(&shared.visible_tools(), shared.volatile_suffix_tokens());
        let window = shared.published.read().window.clone();
        let size = window.size(&overhead);
        if condition == CompactionCondition::Full && !size.is_full() {
            return Ok(None);
        }
        let drop_oldest =
            || Ok(shared.without_oldest(&overhead, &size, 1).map(|parts| (parts, CompactionMethod::Dropped)));
        let Some(summary) =
            SummaryPlan::plan(&window, &size, overhead.calibration, CompactionTrigger::Requested)
        else {
            return if size.is_full() { drop_oldest() } else { Ok(None) };
        };
        if !shared.has_summary_budget() {
            return drop_oldest();
        }
        // Frees the clone: the plan holds its own copy of the messages.
        drop(window);
        match self.await_summary(SummaryCall::start(&shared, summary)).await? {
            SummaryStep::Summarized(parts) => Ok(Some((parts, CompactionMethod::Summary))),
            SummaryStep::NotShorter if !size.is_full() => Ok(None),
            SummaryStep::NotShorter | SummaryStep::Usage(_) => drop_oldest(),
            SummaryStep::Failed(fault) if !size.is_full() => Err(CompactionAborted::Failed(fault)),
            SummaryStep::Failed(fault) => {
                tracing::warn!("compacting without a summary: {fault}");
                drop_oldest()
            }
        }
    }

    /// Waits for the summary while handling commands.
    async fn await_summary(&mut self, mut call: SummaryCall) -> Result<SummaryStep, CompactionAborted> {
        let shared = Arc::clone(&self.shared);
        loop {
            tokio::select! {
                biased;
                () = shared.end_requested.cancelled() => return Err(CompactionAborted::Ended),
                () = shared.admission.abort.cancelled() => return Err(CompactionAborted::Ended),
                command = self.inbox.recv() => match command {
                    // No turn is running, so a steer is dropped; queued requests can be cancelled.
                    Some(command) => drop(self.handle_command(*command, None)),
                    None => return Err(CompactionAborted::Ended),
                },
                step = call.next() => match step {
                    SummaryStep::Usage(_) => {}
                    step => return Ok(step),
                },
            }
        }
    }

    async fn commit_compaction(
        &mut self,
        parts: Vec<CompactionPart>,
        method: CompactionMethod,
        initiator: PrincipalId,
    ) -> Result<CompactionOutcome, Fault> {
        let shared = &self.shared;
        let compacted = shared.compact_window(parts, method, None, initiator);
        let (tokens_before, tokens_after) = (compacted.record.tokens_before, compacted.record.tokens_after);
        let (usage_totals, messages) =
            (shared.published.read().usage_totals, compacted.window.messages().len() as u64);
        let record = Record::Compacted(Box::new(compacted.record));
        let commit = shared.append(vec![record], |state| {
            state.messages = messages;
            state.usage_totals = usage_totals;
        });
        commit.await?;
        shared.published.write().window = compacted.window;
        Ok(CompactionOutcome::Done { tokens_before, tokens_after })
    }
}
