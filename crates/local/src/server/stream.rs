//! An answer to a chat as it leaves: at once when it is whole, or chunk by chunk. A stream that has nothing to tell yet
//! says so in comments, so that no timer of the client runs out while a prompt is read.

#[cfg(test)]
mod tests;

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::activity::Busy;
use super::outbox::{Inbox, News};
use super::refusal::Refusal;
use super::reply::{self, ChunkWriter, Envelope};

/// How long a stream waits for the first sign of its answer, so that a fault still gets its own status.
const STATUS_TIME: Duration = Duration::from_secs(10);

/// How often a client hears something while its job waits.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// How often a client is told how far its prompt is read.
const READING_TIME: Duration = Duration::from_millis(500);

/// Waits for a whole answer and writes it.
pub(super) async fn whole(mut inbox: Inbox, envelope: &Envelope) -> Result<Vec<u8>, Refusal> {
    let mut said = Vec::new();
    loop {
        let news = inbox.news().await;
        said.extend(news.said);
        if let Some(ended) = news.ended {
            return Ok(reply::whole(envelope, &said, &ended?));
        }
    }
}

/// An answer on its way. Dropping it ends the job.
pub(super) struct ChatStream {
    inbox: Inbox,
    writer: ChunkWriter,
    /// What came while the status was open.
    first: Option<News>,
    has_begun: bool,
    is_over: bool,
    reading_told: Option<Instant>,
    _busy: Busy,
}

impl ChatStream {
    /// Waits for the first sign of the answer, for a while; a fault that comes first is the whole answer.
    pub(super) async fn open(mut inbox: Inbox, writer: ChunkWriter, busy: Busy) -> Result<Self, Refusal> {
        let mut first = timeout(STATUS_TIME, inbox.news()).await.ok();
        if let Some(Err(refusal)) = first.as_mut().and_then(|news| news.ended.take_if(|ended| ended.is_err()))
        {
            return Err(refusal);
        }
        Ok(Self { inbox, writer, first, has_begun: false, is_over: false, reading_told: None, _busy: busy })
    }

    /// The next bytes; none when all is said.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        while out.is_empty() {
            if self.is_over {
                return None;
            }
            let news = match self.first.take() {
                Some(news) => Some(news),
                None => timeout(HEARTBEAT, self.inbox.news()).await.ok(),
            };
            match news {
                Some(news) => self.tell(&mut out, &news),
                None => reply::comment(&mut out, "waiting"),
            }
        }
        Some(out)
    }

    fn tell(&mut self, out: &mut Vec<u8>, news: &News) {
        if news.said.is_empty() && news.ended.is_none() {
            self.tell_reading(out, news.read);
            return;
        }
        if !std::mem::replace(&mut self.has_begun, true) {
            self.writer.opening(out);
        }
        for said in &news.said {
            self.writer.said(out, said);
        }
        match &news.ended {
            None => return,
            Some(Ok(answered)) => self.writer.closing(out, answered),
            Some(Err(refusal)) => reply::broken_off(out, refusal),
        }
        self.is_over = true;
    }

    fn tell_reading(&mut self, out: &mut Vec<u8>, read: Option<(usize, usize)>) {
        let is_early = self.reading_told.is_some_and(|told| told.elapsed() < READING_TIME);
        if let Some((tokens, of)) = read
            && !is_early
        {
            reply::comment(out, &format!("reading {tokens}/{of}"));
            self.reading_told = Some(Instant::now());
        }
    }
}
