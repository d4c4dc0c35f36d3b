//! Delivery of a chat response: as one body, or as a stream of server-sent events. A stream without output yet sends
//! comments, so that the client's idle timeout does not expire while the job is queued or the prompt is evaluated.

#[cfg(test)]
mod tests;

use std::time::Duration;

use accept::OwnedActivityGuard;
use tokio::time::{Instant, timeout};

use super::completion::{self, ChunkWriter, CompletionHeader};
use super::generation_channel::{GenerationBatch, GenerationReceiver};
use super::refusal::Refusal;

/// How long a stream waits for its first event before it sends status 200; an earlier fault gets its own status.
const FIRST_EVENT_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval of heartbeat comments while there is no event.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);

/// Shortest interval between comments about the prompt's progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Waits for the whole response and serializes it.
pub(super) async fn collect_completion(
    mut receiver: GenerationReceiver,
    header: &CompletionHeader,
) -> Result<Vec<u8>, Refusal> {
    let mut parts = Vec::new();
    loop {
        let batch = receiver.recv().await;
        parts.extend(batch.parts);
        if let Some(outcome) = batch.outcome {
            return Ok(completion::write_completion(header, &parts, &outcome?));
        }
    }
}

/// A streaming response. Dropping it cancels the job.
pub(super) struct ChatStream {
    receiver: GenerationReceiver,
    writer: ChunkWriter,
    /// Batch received before the status was sent.
    first_batch: Option<GenerationBatch>,
    has_started: bool,
    is_finished: bool,
    progress_sent_at: Option<Instant>,
    _activity: OwnedActivityGuard,
}

impl ChatStream {
    /// Waits a limited time for the first batch; if it is a fault, returns it as the response.
    pub(super) async fn open(
        mut receiver: GenerationReceiver,
        writer: ChunkWriter,
        activity: OwnedActivityGuard,
    ) -> Result<Self, Refusal> {
        let mut first_batch = timeout(FIRST_EVENT_TIMEOUT, receiver.recv()).await.ok();
        if let Some(Err(refusal)) =
            first_batch.as_mut().and_then(|batch| batch.outcome.take_if(|outcome| outcome.is_err()))
        {
            return Err(refusal);
        }
        Ok(Self {
            receiver,
            writer,
            first_batch,
            has_started: false,
            is_finished: false,
            progress_sent_at: None,
            _activity: activity,
        })
    }

    /// Returns the next bytes of the body; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        while out.is_empty() {
            if self.is_finished {
                return None;
            }
            let batch = match self.first_batch.take() {
                Some(batch) => Some(batch),
                None => timeout(HEARTBEAT_INTERVAL, self.receiver.recv()).await.ok(),
            };
            match batch {
                Some(batch) => self.write_batch(&mut out, &batch),
                None => completion::write_comment(&mut out, "waiting"),
            }
        }
        Some(out)
    }

    fn write_batch(&mut self, out: &mut Vec<u8>, batch: &GenerationBatch) {
        if batch.parts.is_empty() && batch.outcome.is_none() {
            self.write_progress(out, batch.prompt_progress);
            return;
        }
        if !std::mem::replace(&mut self.has_started, true) {
            self.writer.write_role(out);
        }
        for part in &batch.parts {
            self.writer.write_part(out, part);
        }
        match &batch.outcome {
            None => return,
            Some(Ok(summary)) => self.writer.write_finish(out, summary),
            Some(Err(refusal)) => completion::write_error(out, refusal),
        }
        self.is_finished = true;
    }

    fn write_progress(&mut self, out: &mut Vec<u8>, progress: Option<(usize, usize)>) {
        let is_early = self.progress_sent_at.is_some_and(|sent_at| sent_at.elapsed() < PROGRESS_INTERVAL);
        if let Some((tokens, total_tokens)) = progress
            && !is_early
        {
            completion::write_comment(out, &format!("reading {tokens}/{total_tokens}"));
            self.progress_sent_at = Some(Instant::now());
        }
    }
}
