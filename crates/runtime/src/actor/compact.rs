//! A compaction that somebody asks for. It waits in line with the sends, and sends wait for it.

use std::ops::ControlFlow;
use std::sync::Arc;

use agent::compaction::{CompactionMethod, CompactionPart, CompactionTrigger, SummaryPlan};
use agent::journal::Record;
use agent::{Fault, TokenCount};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::Actor;
use super::compaction_run::{SummaryCall, SummaryStep};
use crate::admission::{AdmissionPermit, shutting_down};

/// What came of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionOutcome {
    /// There was nothing to make shorter.
    Nothing,
    /// The messages are shorter now.
    Done {
        /// What the messages were counted as.
        tokens_before: TokenCount,
        /// What they are counted as now.
        tokens_after: TokenCount,
    },
}

/// When to compact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionCondition {
    /// Now, if there is anything to make shorter.
    Now,
    /// Only when the context is full.
    Full,
}

/// Somebody wants the context to be shorter.
pub(crate) struct CompactionRequest {
    pub(crate) initiator: String,
    pub(crate) condition: CompactionCondition,
    pub(crate) reply: oneshot::Sender<Result<CompactionOutcome, Fault>>,
    pub(crate) permit: AdmissionPermit,
}

/// Why nothing is folded.
enum CompactionAborted {
    /// The agent ends, or the daemon does.
    Ended,
    /// The model has not summed up. There is room without, so nothing is dropped.
    Failed(Fault),
}

impl Actor {
    pub(super) async fn compact(&mut self, compaction: CompactionRequest) -> ControlFlow<()> {
        let CompactionRequest { initiator: by, condition: when, reply, permit: place } = compaction;
        self.is_compacting = true;
        let parts = match self.acquire_slot(None).await {
            Ok(slot) => self.plan_compaction(when, slot).await,
            Err(_) => Err(CompactionAborted::Ended),
        };
        self.is_compacting = false;
        let is_kept = !matches!(parts, Err(CompactionAborted::Failed(_)));
        let answer = match parts {
            Ok(None) => Ok(CompactionOutcome::Nothing),
            Ok(Some((parts, how))) => self.commit_compaction(parts, how, &by).await,
            Err(CompactionAborted::Failed(fault)) => Err(fault),
            Err(CompactionAborted::Ended) if self.shared.end_requested.is_cancelled() => {
                Err(self.shared.unavailable())
            }
            Err(CompactionAborted::Ended) => Err(shutting_down()),
        };
        // The place is free before the answer is out.
        drop(place);
        let fell = answer.clone().err().filter(|_| is_kept && !self.is_shutting_down());
        let _ = reply.send(answer);
        match fell {
            Some(fault) => self.reload(fault).await,
            None if self.shared.end_requested.is_cancelled() => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    }

    fn is_shutting_down(&self) -> bool {
        self.shared.end_requested.is_cancelled() || self.shared.admission.abort.is_cancelled()
    }

    /// What the context is to be made of; none when it stays as it is.
    async fn plan_compaction(
        &mut self,
        when: CompactionCondition,
        _slot: OwnedSemaphorePermit,
    ) -> Result<Option<(Vec<CompactionPart>, CompactionMethod)>, CompactionAborted> {
        let shared = Arc::clone(&self.shared);
        let frame = shared.fixed_overhead(&shared.visible_tools(), shared.volatile_suffix_tokens());
        let window = shared.published.read().window.clone();
        let size = window.size(&frame);
        if when == CompactionCondition::Full && !size.is_full() {
            return Ok(None);
        }
        let drop =
            || Ok(shared.without_oldest(&frame, &size, 1).map(|parts| (parts, CompactionMethod::Dropped)));
        let Some(summary) =
            SummaryPlan::plan(&window, &size, frame.calibration, CompactionTrigger::Requested)
        else {
            return if size.is_full() { drop() } else { Ok(None) };
        };
        if !shared.has_summary_budget() {
            return drop();
        }
        // What is planned is there twice as long as both windows are.
        std::mem::drop(window);
        match self.await_summary(SummaryCall::start(&shared, summary)).await? {
            SummaryStep::Summarized(parts) => Ok(Some((parts, CompactionMethod::Summary))),
            SummaryStep::NotShorter if !size.is_full() => Ok(None),
            SummaryStep::NotShorter | SummaryStep::Usage(_) => drop(),
            SummaryStep::Failed(fault) if !size.is_full() => Err(CompactionAborted::Failed(fault)),
            SummaryStep::Failed(fault) => {
                tracing::warn!("no summary: {fault}");
                drop()
            }
        }
    }

    /// Waits for the summary, taking commands all the while.
    async fn await_summary(&mut self, mut folding: SummaryCall) -> Result<SummaryStep, CompactionAborted> {
        let shared = Arc::clone(&self.shared);
        loop {
            tokio::select! {
                biased;
                () = shared.end_requested.cancelled() => return Err(CompactionAborted::Ended),
                () = shared.admission.abort.cancelled() => return Err(CompactionAborted::Ended),
                command = self.inbox.recv() => match command {
                    // There is no turn to add a word to; a send that waits can be cancelled.
                    Some(command) => drop(self.handle_command(*command, None)),
                    None => return Err(CompactionAborted::Ended),
                },
                step = folding.next() => match step {
                    SummaryStep::Usage(_) => {}
                    step => return Ok(step),
                },
            }
        }
    }

    async fn commit_compaction(
        &mut self,
        parts: Vec<CompactionPart>,
        how: CompactionMethod,
        by: &str,
    ) -> Result<CompactionOutcome, Fault> {
        let shared = &self.shared;
        let fold = shared.compact_window(parts, how, None, by);
        let (tokens_before, tokens_after) = (fold.record.tokens_before, fold.record.tokens_after);
        let (used, messages) = (shared.published.read().used, fold.window.messages().len() as u64);
        let record = Record::Compacted(Box::new(fold.record));
        let keeping = shared.append(vec![record], |state| {
            state.messages = messages;
            state.usage_totals = used;
        });
        keeping.await?;
        shared.published.write().window = fold.window;
        Ok(CompactionOutcome::Done { tokens_before, tokens_after })
    }
}
