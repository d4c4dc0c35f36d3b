//! A compaction that somebody asks for. It waits in line with the sends, and sends wait for it.

use std::ops::ControlFlow;
use std::sync::Arc;

use agent::fold::{FoldHow, FoldPart, Summary, Want};
use agent::journal::Record;
use agent::{Fault, TokenCount};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::Actor;
use super::folding::{FoldStep, Folding};
use crate::admission::{AdmissionPermit, shutting_down};

/// What came of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compacted {
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
pub enum CompactWhen {
    /// Now, if there is anything to make shorter.
    Now,
    /// Only when the context is full.
    Full,
}

/// Somebody wants the context to be shorter.
pub(crate) struct Compaction {
    pub(crate) by: String,
    pub(crate) when: CompactWhen,
    pub(crate) reply: oneshot::Sender<Result<Compacted, Fault>>,
    pub(crate) permit: AdmissionPermit,
}

/// Why nothing is folded.
enum NoFold {
    /// The agent ends, or the daemon does.
    Ended,
    /// The model has not summed up. There is room without, so nothing is dropped.
    Failed(Fault),
}

impl Actor {
    pub(super) async fn compact(&mut self, compaction: Compaction) -> ControlFlow<()> {
        let Compaction { by, when, reply, permit: place } = compaction;
        self.is_compacting = true;
        let parts = match self.acquire_slot(None).await {
            Ok(slot) => self.fold_now(when, slot).await,
            Err(_) => Err(NoFold::Ended),
        };
        self.is_compacting = false;
        let is_kept = !matches!(parts, Err(NoFold::Failed(_)));
        let answer = match parts {
            Ok(None) => Ok(Compacted::Nothing),
            Ok(Some((parts, how))) => self.keep_fold(parts, how, &by).await,
            Err(NoFold::Failed(fault)) => Err(fault),
            Err(NoFold::Ended) if self.shared.ending.is_cancelled() => Err(self.shared.unreachable()),
            Err(NoFold::Ended) => Err(shutting_down()),
        };
        // The place is free before the answer is out.
        drop(place);
        let fell = answer.clone().err().filter(|_| is_kept && !self.is_over());
        let _ = reply.send(answer);
        match fell {
            Some(fault) => self.reload(fault).await,
            None if self.shared.ending.is_cancelled() => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    }

    fn is_over(&self) -> bool {
        self.shared.ending.is_cancelled() || self.shared.admission.abort.is_cancelled()
    }

    /// What the context is to be made of; none when it stays as it is.
    async fn fold_now(
        &mut self,
        when: CompactWhen,
        _slot: OwnedSemaphorePermit,
    ) -> Result<Option<(Vec<FoldPart>, FoldHow)>, NoFold> {
        let shared = Arc::clone(&self.shared);
        let frame = shared.frame(&shared.visible_tools(), shared.dynamic_tokens());
        let window = shared.published.read().window.clone();
        let size = window.size(&frame);
        if when == CompactWhen::Full && !size.is_full() {
            return Ok(None);
        }
        let drop = || Ok(shared.dropped(&frame, &size, 1).map(|parts| (parts, FoldHow::Dropped)));
        let Some(summary) = Summary::plan(&window, &size, frame.gauge, Want::Asked) else {
            return if size.is_full() { drop() } else { Ok(None) };
        };
        if !shared.can_pay_summary() {
            return drop();
        }
        // What is planned is there twice as long as both windows are.
        std::mem::drop(window);
        match self.summed(Folding::begin(&shared, summary)).await? {
            FoldStep::Summed(parts) => Ok(Some((parts, FoldHow::Summary))),
            FoldStep::Useless if !size.is_full() => Ok(None),
            FoldStep::Useless | FoldStep::Used(_) => drop(),
            FoldStep::Failed(fault) if !size.is_full() => Err(NoFold::Failed(fault)),
            FoldStep::Failed(fault) => {
                tracing::warn!("no summary: {fault}");
                drop()
            }
        }
    }

    /// Waits for the summary, taking commands all the while.
    async fn summed(&mut self, mut folding: Folding) -> Result<FoldStep, NoFold> {
        let shared = Arc::clone(&self.shared);
        loop {
            tokio::select! {
                biased;
                () = shared.ending.cancelled() => return Err(NoFold::Ended),
                () = shared.admission.abort.cancelled() => return Err(NoFold::Ended),
                command = self.inbox.recv() => match command {
                    // There is no turn to add a word to; a send that waits can be cancelled.
                    Some(command) => drop(self.handle_command(*command, None)),
                    None => return Err(NoFold::Ended),
                },
                step = folding.next() => match step {
                    FoldStep::Used(_) => {}
                    step => return Ok(step),
                },
            }
        }
    }

    async fn keep_fold(&mut self, parts: Vec<FoldPart>, how: FoldHow, by: &str) -> Result<Compacted, Fault> {
        let shared = &self.shared;
        let fold = shared.fold(parts, how, None, by);
        let (tokens_before, tokens_after) = (fold.record.tokens_before, fold.record.tokens_after);
        let (used, messages) = (shared.published.read().used, fold.window.messages().len() as u64);
        let record = Record::Folded(Box::new(fold.record));
        let keeping = shared.append(vec![record], |state| {
            state.messages = messages;
            state.used = used;
        });
        keeping.await?;
        shared.published.write().window = fold.window;
        Ok(Compacted::Done { tokens_before, tokens_after })
    }
}
