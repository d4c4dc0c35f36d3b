//! A file of the hub, over HTTP: goes on where the last try ended, and tries again while that brings something.

#[cfg(test)]
mod tests;

use std::time::Duration;

use bytes::Bytes;
use reqwest::{Client, Response, Url};
use tokio::sync::mpsc;

use super::range_request::{self, Downloaded, FileResponse, RequestFailure};
use super::{Job, hub_url};
use crate::fault::{FetchFault, WeightsFault};
use crate::partial_download::PartialDownload;
use crate::progress::{PullStep, Reporter};
use crate::source::HubFile;

/// Blocks on their way from the socket to the disk.
const BLOCKS_QUEUED_MAX: usize = 16;

pub(super) async fn fetch(
    file: &HubFile,
    job: &Job<'_>,
    reporter: &mut Reporter<'_>,
) -> Result<PartialDownload, FetchFault> {
    let base = job.options.hub_base.as_deref().ok_or_else(|| {
        FetchFault::source_failed(
            "nobody says where the hub is: set HF_ENDPOINT in the environment, as in https://HOST",
        )
    })?;
    let url = hub_url::file_url(base, file).map_err(FetchFault::SourceFailed)?;
    let part = match job.resume_state() {
        Some(_) => Some(job.open_partial(reporter).await?),
        None => None,
    };
    let mut download = Download { client: client(job)?, url, job, partial: part, tries_without_progress: 0 };
    match download.run(reporter).await {
        Ok(()) => download.into_partial(),
        Err(fault) => {
            if let Some(part) = download.partial {
                part.suspend()?;
            }
            Err(fault)
        }
    }
}

fn client(job: &Job<'_>) -> Result<Client, FetchFault> {
    // An error means that a provider is installed already, which is all that is wanted.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .connect_timeout(job.options.connect_timeout)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build()
        .map_err(|fault| FetchFault::source_failed(format!("no HTTP client can be made: {fault}")))
}

/// A download over several tries.
struct Download<'a> {
    client: Client,
    url: Url,
    job: &'a Job<'a>,
    /// Nothing until a server has promised something: what another source has brought is not thrown away for nothing.
    partial: Option<PartialDownload>,
    tries_without_progress: u32,
}

/// What a try ends with when it is not the whole file.
enum DownloadError {
    Retry { why: String, after: Option<Duration> },
    Final(FetchFault),
}

impl From<FetchFault> for DownloadError {
    fn from(fault: FetchFault) -> Self {
        Self::Final(fault)
    }
}

impl Download<'_> {
    async fn run(&mut self, reporter: &mut Reporter<'_>) -> Result<(), FetchFault> {
        loop {
            match self.try_once(reporter).await {
                Ok(()) => return Ok(()),
                Err(DownloadError::Final(fault)) => return Err(fault),
                Err(DownloadError::Retry { why, after }) => self.back_off(&why, after, reporter).await?,
            }
        }
    }

    /// One try: asks for what is missing and takes what comes.
    async fn try_once(&mut self, reporter: &mut Reporter<'_>) -> Result<(), DownloadError> {
        let have = self.partial.as_ref().map_or_else(Downloaded::default, |part| Downloaded {
            bytes: part.bytes(),
            etag: part.resume_state.etag.clone(),
        });
        let known = self.partial.as_ref().and_then(|part| part.resume_state.total_bytes);
        if have.bytes > 0 && known == Some(have.bytes) {
            return Ok(());
        }
        let coming = self.request(&have).await?;
        self.check_response(&coming)?;
        let mut part = match self.partial.take() {
            Some(part) => part,
            None => self.job.open_partial(reporter).await?,
        };
        if coming.offset_bytes == 0 {
            part.restart()?;
        }
        self.job.require_space(coming.total_bytes - coming.offset_bytes)?;
        part.resume_state.etag = coming.etag;
        part.resume_state.total_bytes = Some(coming.total_bytes);
        part.resume_state.reported_checksum = coming.reported_checksum;
        reporter.set_total(coming.total_bytes);
        self.receive(coming.response, part, coming.total_bytes, reporter).await
    }

    async fn request(&mut self, have: &Downloaded) -> Result<FileResponse, DownloadError> {
        let asking = tokio::time::timeout(
            self.job.options.idle_timeout,
            range_request::request(&self.client, &self.url, have),
        );
        let asked = tokio::select! {
            biased;
            () = self.job.options.cancel.cancelled() => return Err(FetchFault::Cancelled.into()),
            asked = asking => asked,
        };
        let silent =
            |_| RequestFailure::Retry { why: "the server does not answer in time".to_owned(), after: None };
        match asked.map_err(silent).flatten() {
            Ok(coming) => Ok(coming),
            Err(RequestFailure::Retry { why, after }) => Err(DownloadError::Retry { why, after }),
            Err(RequestFailure::Restart { why }) => {
                if let Some(part) = &mut self.partial {
                    part.restart()?;
                }
                Err(DownloadError::Retry { why, after: None })
            }
            Err(RequestFailure::Final(why)) => Err(DownloadError::Final(FetchFault::SourceFailed(why))),
        }
    }

    /// Refuses another file before it comes.
    fn check_response(&self, coming: &FileResponse) -> Result<(), FetchFault> {
        let (total_bytes, wanted) = (coming.total_bytes, self.job.spec);
        if let Some(bytes) = wanted.bytes.filter(|bytes| *bytes != total_bytes) {
            return Err(FetchFault::source_failed(format!(
                "the server's file has {total_bytes} bytes and should have {bytes}"
            )));
        }
        let limit_bytes = self.job.limit_bytes();
        if total_bytes > limit_bytes || total_bytes == 0 {
            return Err(FetchFault::source_failed(format!(
                "the server's file has {total_bytes} bytes; it may have 1 to {limit_bytes}"
            )));
        }
        match (wanted.checksum, coming.reported_checksum) {
            (Some(sum), Some(told)) if sum != told => Err(FetchFault::source_failed(format!(
                "the hub's file has the sha256 {told} and should have {sum}"
            ))),
            _ => Ok(()),
        }
    }

    /// Writes what comes; the part is back in its place afterwards, with all of it made safe.
    async fn receive(
        &mut self,
        response: Response,
        part: PartialDownload,
        total_bytes: u64,
        reporter: &mut Reporter<'_>,
    ) -> Result<(), DownloadError> {
        let before_bytes = part.bytes();
        let (blocks, waiting) = mpsc::channel(BLOCKS_QUEUED_MAX);
        let writer = tokio::task::spawn_blocking(move || write_blocks(part, waiting, total_bytes));
        let end = self.read_body(response, blocks, before_bytes, reporter).await;
        let broke = |_| FetchFault::Local(WeightsFault::TaskFailed(self.job.id().clone()));
        let (part, written) = writer.await.map_err(broke)?;
        let bytes = part.bytes();
        self.partial = Some(part);
        written?;
        if bytes > before_bytes {
            self.tries_without_progress = 0;
        }
        match end {
            StreamEnd::Complete if bytes == total_bytes => Ok(()),
            StreamEnd::Complete => {
                Err(DownloadError::Retry { why: "the server ended too early".to_owned(), after: None })
            }
            StreamEnd::Interrupted(why) => Err(DownloadError::Retry { why, after: None }),
            StreamEnd::Cancelled => Err(FetchFault::Cancelled.into()),
        }
    }

    async fn read_body(
        &self,
        mut response: Response,
        blocks: mpsc::Sender<Bytes>,
        mut bytes: u64,
        reporter: &mut Reporter<'_>,
    ) -> StreamEnd {
        loop {
            let block = tokio::select! {
                biased;
                () = self.job.options.cancel.cancelled() => return StreamEnd::Cancelled,
                block = tokio::time::timeout(self.job.options.idle_timeout, response.chunk()) => block,
            };
            match block {
                Ok(Ok(Some(block))) => {
                    bytes += block.len() as u64;
                    if blocks.send(block).await.is_err() {
                        return StreamEnd::Complete;
                    }
                    reporter.report(PullStep::Downloading { part: 1, parts: 1 }, bytes);
                }
                Ok(Ok(None)) => return StreamEnd::Complete,
                Ok(Err(fault)) => return StreamEnd::Interrupted(range_request::error_text(&fault)),
                Err(_) => return StreamEnd::Interrupted("the server stopped in the middle".to_owned()),
            }
        }
    }

    async fn back_off(
        &mut self,
        why: &str,
        after: Option<Duration>,
        reporter: &mut Reporter<'_>,
    ) -> Result<(), FetchFault> {
        let options = self.job.options;
        if self.tries_without_progress >= options.retries_max {
            return Err(FetchFault::source_failed(format!(
                "{why}; tried {} times",
                self.tries_without_progress + 1
            )));
        }
        let doubled = options.backoff_first.saturating_mul(1 << self.tries_without_progress.min(16));
        let wait = after.unwrap_or(doubled).min(options.backoff_max);
        self.tries_without_progress += 1;
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        reporter.report_step(PullStep::Waiting { why: why.to_owned(), wait_ms });
        tokio::select! {
            biased;
            () = options.cancel.cancelled() => Err(FetchFault::Cancelled),
            () = tokio::time::sleep(wait) => Ok(()),
        }
    }

    fn into_partial(self) -> Result<PartialDownload, FetchFault> {
        let broke = || FetchFault::Local(WeightsFault::TaskFailed(self.job.id().clone()));
        self.partial.ok_or_else(broke)
    }
}

/// How a stream of blocks ended.
enum StreamEnd {
    Complete,
    Interrupted(String),
    Cancelled,
}

/// The thread that writes: ends with the blocks, or when they are too many.
fn write_blocks(
    mut part: PartialDownload,
    mut blocks: mpsc::Receiver<Bytes>,
    limit_bytes: u64,
) -> (PartialDownload, Result<(), FetchFault>) {
    let mut written = Ok(());
    while let Some(block) = blocks.blocking_recv() {
        if part.bytes() + block.len() as u64 > limit_bytes {
            let why = format!("the server sent more than the {limit_bytes} bytes it promised");
            return (part, Err(FetchFault::ContentMismatch(why)));
        }
        written = part.write(&block).and_then(|()| part.sync_if_due());
        if written.is_err() {
            break;
        }
    }
    // What came before a full disk is kept too, as far as the disk lets us.
    let kept = part.sync();
    (part, written.and(kept))
}
