//! An answer to a chat as it leaves: at once when it is whole, or chunk by chunk. A stream that has nothing to tell yet
//! says so in comments, so that no timer of the client runs out while a prompt is read.

#[cfg(test)]
mod tests;

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::activity::ActivityGuard;
use super::completion::{self, ChunkWriter, CompletionHeader};
use super::generation_channel::{GenerationBatch, GenerationReceiver};
use super::refusal::Refusal;

/// How long a stream waits for the first sign of its answer, so that a fault still gets its own status.
const FIRST_EVENT_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a client hears something while its job waits.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);

/// How often a client is told how far its prompt is read.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Waits for a whole answer and writes it.
pub(super) async fn collect_completion(
    mut inbox: GenerationReceiver,
    envelope: &CompletionHeader,
) -> Result<Vec<u8>, Refusal> {
    let mut said = Vec::new();
    loop {
        let news = inbox.recv().await;
        said.extend(news.parts);
        if let Some(ended) = news.outcome {
            return Ok(completion::write_completion(envelope, &said, &ended?));
        }
    }
}

/// An answer on its way. Dropping it ends the job.
pub(super) struct ChatStream {
    receiver: GenerationReceiver,
    writer: ChunkWriter,
    /// What came while the status was open.
    first_batch: Option<GenerationBatch>,
    has_started: bool,
    is_finished: bool,
    progress_sent_at: Option<Instant>,
    _activity: ActivityGuard,
}

impl ChatStream {
    /// Waits for the first sign of the answer, for a while; a fault that comes first is the whole answer.
    pub(super) async fn open(
        mut inbox: GenerationReceiver,
        writer: ChunkWriter,
        busy: ActivityGuard,
    ) -> Result<Self, Refusal> {
        let mut first = timeout(FIRST_EVENT_TIMEOUT, inbox.recv()).await.ok();
        if let Some(Err(refusal)) =
            first.as_mut().and_then(|news| news.outcome.take_if(|ended| ended.is_err()))
        {
            return Err(refusal);
        }
        Ok(Self {
            receiver: inbox,
            writer,
            first_batch: first,
            has_started: false,
            is_finished: false,
            progress_sent_at: None,
            _activity: busy,
        })
    }

    /// The next bytes; none when all is said.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        while out.is_empty() {
            if self.is_finished {
                return None;
            }
            let news = match self.first_batch.take() {
                Some(news) => Some(news),
                None => timeout(HEARTBEAT_INTERVAL, self.receiver.recv()).await.ok(),
            };
            match news {
                Some(news) => self.write_batch(&mut out, &news),
                None => completion::write_comment(&mut out, "waiting"),
            }
        }
        Some(out)
    }

    fn write_batch(&mut self, out: &mut Vec<u8>, news: &GenerationBatch) {
        if news.parts.is_empty() && news.outcome.is_none() {
            self.write_progress(out, news.prompt_progress);
            return;
        }
        if !std::mem::replace(&mut self.has_started, true) {
            self.writer.write_role(out);
        }
        for said in &news.parts {
            self.writer.write_part(out, said);
        }
        match &news.outcome {
            None => return,
            Some(Ok(answered)) => self.writer.write_finish(out, answered),
            Some(Err(refusal)) => completion::write_error(out, refusal),
        }
        self.is_finished = true;
    }

    fn write_progress(&mut self, out: &mut Vec<u8>, read: Option<(usize, usize)>) {
        let is_early = self.progress_sent_at.is_some_and(|told| told.elapsed() < PROGRESS_INTERVAL);
        if let Some((tokens, of)) = read
            && !is_early
        {
            completion::write_comment(out, &format!("reading {tokens}/{of}"));
            self.progress_sent_at = Some(Instant::now());
        }
    }
}
