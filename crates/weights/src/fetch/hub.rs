//! A file of the hub, over HTTP: goes on where the last try ended, and tries again while that brings something.

#[cfg(test)]
mod tests;

use std::time::Duration;

use bytes::Bytes;
use reqwest::{Client, Response, Url};
use tokio::sync::mpsc;

use super::attempt::{self, Coming, Have, Refusal};
use super::{Job, address};
use crate::fault::{FetchFault, WeightsFault};
use crate::part::Part;
use crate::progress::{Reporter, Step};
use crate::source::HubFile;

/// Blocks on their way from the socket to the disk.
const BLOCKS_WAITING_MAX: usize = 16;

pub(super) async fn fetch(
    file: &HubFile,
    job: &Job<'_>,
    reporter: &mut Reporter<'_>,
) -> Result<Part, FetchFault> {
    let base = job.options.hub_base.as_deref().ok_or_else(|| {
        FetchFault::source(
            "nobody says where the hub is: set HF_ENDPOINT in the environment, as in https://HOST",
        )
    })?;
    let url = address::of_file(base, file).map_err(FetchFault::Source)?;
    let part = match job.begun() {
        Some(_) => Some(job.open_part(reporter).await?),
        None => None,
    };
    let mut download = Download { client: client(job)?, url, job, part, tries_in_vain: 0 };
    match download.run(reporter).await {
        Ok(()) => download.into_part(),
        Err(fault) => {
            if let Some(part) = download.part {
                part.leave()?;
            }
            Err(fault)
        }
    }
}

fn client(job: &Job<'_>) -> Result<Client, FetchFault> {
    // An error means that a provider is installed already, which is all that is wanted.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .connect_timeout(job.options.connect)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build()
        .map_err(|fault| FetchFault::source(format!("no HTTP client can be made: {fault}")))
}

/// A download over several tries.
struct Download<'a> {
    client: Client,
    url: Url,
    job: &'a Job<'a>,
    /// Nothing until a server has promised something: what another source has brought is not thrown away for nothing.
    part: Option<Part>,
    tries_in_vain: u32,
}

/// What a try ends with when it is not the whole file.
enum Trouble {
    Retry { why: String, after: Option<Duration> },
    Final(FetchFault),
}

impl From<FetchFault> for Trouble {
    fn from(fault: FetchFault) -> Self {
        Self::Final(fault)
    }
}

impl Download<'_> {
    async fn run(&mut self, reporter: &mut Reporter<'_>) -> Result<(), FetchFault> {
        loop {
            match self.go_on(reporter).await {
                Ok(()) => return Ok(()),
                Err(Trouble::Final(fault)) => return Err(fault),
                Err(Trouble::Retry { why, after }) => self.wait(&why, after, reporter).await?,
            }
        }
    }

    /// One try: asks for what is missing and takes what comes.
    async fn go_on(&mut self, reporter: &mut Reporter<'_>) -> Result<(), Trouble> {
        let have = self
            .part
            .as_ref()
            .map_or_else(Have::default, |part| Have { bytes: part.bytes(), etag: part.journal.etag.clone() });
        let known = self.part.as_ref().and_then(|part| part.journal.total_bytes);
        if have.bytes > 0 && known == Some(have.bytes) {
            return Ok(());
        }
        let coming = self.ask(&have).await?;
        self.check(&coming)?;
        let mut part = match self.part.take() {
            Some(part) => part,
            None => self.job.open_part(reporter).await?,
        };
        if coming.from_bytes == 0 {
            part.begin_again()?;
        }
        self.job.need_space(coming.total_bytes - coming.from_bytes)?;
        part.journal.etag = coming.etag;
        part.journal.total_bytes = Some(coming.total_bytes);
        part.journal.told_sum = coming.told_sum;
        reporter.total(coming.total_bytes);
        self.take(coming.response, part, coming.total_bytes, reporter).await
    }

    async fn ask(&mut self, have: &Have) -> Result<Coming, Trouble> {
        let asking = tokio::time::timeout(self.job.options.idle, attempt::ask(&self.client, &self.url, have));
        let asked = tokio::select! {
            biased;
            () = self.job.options.cancel.cancelled() => return Err(FetchFault::Cancelled.into()),
            asked = asking => asked,
        };
        let silent = |_| Refusal::Later { why: "the server does not answer in time".to_owned(), after: None };
        match asked.map_err(silent).flatten() {
            Ok(coming) => Ok(coming),
            Err(Refusal::Later { why, after }) => Err(Trouble::Retry { why, after }),
            Err(Refusal::Anew { why }) => {
                if let Some(part) = &mut self.part {
                    part.begin_again()?;
                }
                Err(Trouble::Retry { why, after: None })
            }
            Err(Refusal::Final(why)) => Err(Trouble::Final(FetchFault::Source(why))),
        }
    }

    /// Refuses another file before it comes.
    fn check(&self, coming: &Coming) -> Result<(), FetchFault> {
        let (total_bytes, wanted) = (coming.total_bytes, self.job.wanted);
        if let Some(bytes) = wanted.bytes.filter(|bytes| *bytes != total_bytes) {
            return Err(FetchFault::source(format!(
                "the server's file has {total_bytes} bytes and should have {bytes}"
            )));
        }
        let limit_bytes = self.job.limit_bytes();
        if total_bytes > limit_bytes || total_bytes == 0 {
            return Err(FetchFault::source(format!(
                "the server's file has {total_bytes} bytes; it may have 1 to {limit_bytes}"
            )));
        }
        match (wanted.sum, coming.told_sum) {
            (Some(sum), Some(told)) if sum != told => {
                Err(FetchFault::source(format!("the hub's file has the sha256 {told} and should have {sum}")))
            }
            _ => Ok(()),
        }
    }

    /// Writes what comes; the part is back in its place afterwards, with all of it made safe.
    async fn take(
        &mut self,
        response: Response,
        part: Part,
        total_bytes: u64,
        reporter: &mut Reporter<'_>,
    ) -> Result<(), Trouble> {
        let before_bytes = part.bytes();
        let (blocks, waiting) = mpsc::channel(BLOCKS_WAITING_MAX);
        let writer = tokio::task::spawn_blocking(move || write(part, waiting, total_bytes));
        let end = self.pump(response, blocks, before_bytes, reporter).await;
        let broke = |_| FetchFault::Here(WeightsFault::BrokeOff(self.job.id().clone()));
        let (part, written) = writer.await.map_err(broke)?;
        let bytes = part.bytes();
        self.part = Some(part);
        written?;
        if bytes > before_bytes {
            self.tries_in_vain = 0;
        }
        match end {
            End::Whole if bytes == total_bytes => Ok(()),
            End::Whole => Err(Trouble::Retry { why: "the server ended too early".to_owned(), after: None }),
            End::Broken(why) => Err(Trouble::Retry { why, after: None }),
            End::Cancelled => Err(FetchFault::Cancelled.into()),
        }
    }

    async fn pump(
        &self,
        mut response: Response,
        blocks: mpsc::Sender<Bytes>,
        mut bytes: u64,
        reporter: &mut Reporter<'_>,
    ) -> End {
        loop {
            let block = tokio::select! {
                biased;
                () = self.job.options.cancel.cancelled() => return End::Cancelled,
                block = tokio::time::timeout(self.job.options.idle, response.chunk()) => block,
            };
            match block {
                Ok(Ok(Some(block))) => {
                    bytes += block.len() as u64;
                    if blocks.send(block).await.is_err() {
                        return End::Whole;
                    }
                    reporter.at(Step::Downloading { part: 1, parts: 1 }, bytes);
                }
                Ok(Ok(None)) => return End::Whole,
                Ok(Err(fault)) => return End::Broken(attempt::unreachable_server(&fault)),
                Err(_) => return End::Broken("the server stopped in the middle".to_owned()),
            }
        }
    }

    async fn wait(
        &mut self,
        why: &str,
        after: Option<Duration>,
        reporter: &mut Reporter<'_>,
    ) -> Result<(), FetchFault> {
        let options = self.job.options;
        if self.tries_in_vain >= options.retries_max {
            return Err(FetchFault::source(format!("{why}; tried {} times", self.tries_in_vain + 1)));
        }
        let doubled = options.retry_first.saturating_mul(1 << self.tries_in_vain.min(16));
        let wait = after.unwrap_or(doubled).min(options.retry_wait_max);
        self.tries_in_vain += 1;
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        reporter.note(Step::Waiting { why: why.to_owned(), wait_ms });
        tokio::select! {
            biased;
            () = options.cancel.cancelled() => Err(FetchFault::Cancelled),
            () = tokio::time::sleep(wait) => Ok(()),
        }
    }

    fn into_part(self) -> Result<Part, FetchFault> {
        let broke = || FetchFault::Here(WeightsFault::BrokeOff(self.job.id().clone()));
        self.part.ok_or_else(broke)
    }
}

/// How a stream of blocks ended.
enum End {
    Whole,
    Broken(String),
    Cancelled,
}

/// The thread that writes: ends with the blocks, or when they are too many.
fn write(
    mut part: Part,
    mut blocks: mpsc::Receiver<Bytes>,
    limit_bytes: u64,
) -> (Part, Result<(), FetchFault>) {
    let mut written = Ok(());
    while let Some(block) = blocks.blocking_recv() {
        if part.bytes() + block.len() as u64 > limit_bytes {
            let why = format!("the server sent more than the {limit_bytes} bytes it promised");
            return (part, Err(FetchFault::Wrong(why)));
        }
        written = part.write(&block).and_then(|()| part.keep_now_and_then());
        if written.is_err() {
            break;
        }
    }
    // What came before a full disk is kept too, as far as the disk lets us.
    let kept = part.keep();
    (part, written.and(kept))
}
