//! Download from the hub over HTTP. Resumes with range requests, and retries with backoff until too many consecutive
//! attempts make no progress.

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

/// Capacity of the channel between socket and disk.
const BLOCKS_QUEUED_MAX: usize = 16;

pub(super) async fn fetch(
    file: &HubFile,
    job: &Job<'_>,
    reporter: &mut Reporter<'_>,
) -> Result<PartialDownload, FetchFault> {
    let base = job.options.hub_base.as_deref().ok_or_else(|| {
        FetchFault::source_failed(
            "the address of the hub is not set: set HF_ENDPOINT in the environment, as in https://HOST",
        )
    })?;
    let url = hub_url::file_url(base, file).map_err(FetchFault::SourceFailed)?;
    let partial = match job.resume_state() {
        Some(_) => Some(job.open_partial(reporter).await?),
        None => None,
    };
    let mut download = Download { client: client(job)?, url, job, partial, tries_without_progress: 0 };
    match download.run(reporter).await {
        Ok(()) => download.into_partial(),
        Err(fault) => {
            if let Some(partial) = download.partial {
                partial.suspend()?;
            }
            Err(fault)
        }
    }
}

fn client(job: &Job<'_>) -> Result<Client, FetchFault> {
    // An error means that a crypto provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder()
        .connect_timeout(job.options.connect_timeout)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build()
        .map_err(|fault| FetchFault::source_failed(format!("cannot create an HTTP client: {fault}")))
}

/// A download with retries.
struct Download<'a> {
    client: Client,
    url: Url,
    job: &'a Job<'a>,
    /// Opened only after a successful response: opening discards the partial download of another source.
    partial: Option<PartialDownload>,
    tries_without_progress: u32,
}

/// Error of one attempt.
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

    /// Requests the missing bytes once and receives the body.
    async fn try_once(&mut self, reporter: &mut Reporter<'_>) -> Result<(), DownloadError> {
        let downloaded = self.partial.as_ref().map_or_else(Downloaded::default, |partial| Downloaded {
            bytes: partial.bytes(),
            etag: partial.resume_state.etag.clone(),
        });
        let total_bytes = self.partial.as_ref().and_then(|partial| partial.resume_state.total_bytes);
        if downloaded.bytes > 0 && total_bytes == Some(downloaded.bytes) {
            return Ok(());
        }
        let file_response = self.request(&downloaded).await?;
        self.check_response(&file_response)?;
        let mut partial = match self.partial.take() {
            Some(partial) => partial,
            None => self.job.open_partial(reporter).await?,
        };
        if file_response.offset_bytes == 0 {
            partial.restart()?;
        }
        self.job.require_space(file_response.total_bytes - file_response.offset_bytes)?;
        partial.resume_state.etag = file_response.etag;
        partial.resume_state.total_bytes = Some(file_response.total_bytes);
        partial.resume_state.reported_checksum = file_response.reported_checksum;
        reporter.set_total(file_response.total_bytes);
        self.receive(file_response.response, partial, file_response.total_bytes, reporter).await
    }

    async fn request(&mut self, downloaded: &Downloaded) -> Result<FileResponse, DownloadError> {
        let request = tokio::time::timeout(
            self.job.options.idle_timeout,
            range_request::request(&self.client, &self.url, downloaded),
        );
        let result = tokio::select! {
            biased;
            () = self.job.options.cancel.cancelled() => return Err(FetchFault::Cancelled.into()),
            result = request => result,
        };
        let timeout_failure =
            |_| RequestFailure::Retry { why: "the server does not answer in time".to_owned(), after: None };
        match result.map_err(timeout_failure).flatten() {
            Ok(file_response) => Ok(file_response),
            Err(RequestFailure::Retry { why, after }) => Err(DownloadError::Retry { why, after }),
            Err(RequestFailure::Restart { why }) => {
                if let Some(partial) = &mut self.partial {
                    partial.restart()?;
                }
                Err(DownloadError::Retry { why, after: None })
            }
            Err(RequestFailure::Final(why)) => Err(DownloadError::Final(FetchFault::SourceFailed(why))),
        }
    }

    /// Rejects a file of another size or checksum before it is downloaded.
    fn check_response(&self, file_response: &FileResponse) -> Result<(), FetchFault> {
        let (total_bytes, spec) = (file_response.total_bytes, self.job.spec);
        if let Some(bytes) = spec.bytes.filter(|bytes| *bytes != total_bytes) {
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
        match (spec.checksum, file_response.reported_checksum) {
            (Some(expected), Some(reported)) if expected != reported => Err(FetchFault::source_failed(
                format!("the hub's file has the sha256 {reported} and should have {expected}"),
            )),
            _ => Ok(()),
        }
    }

    /// Writes the body to the partial download, which is fsynced and back in `self` afterwards.
    async fn receive(
        &mut self,
        response: Response,
        partial: PartialDownload,
        total_bytes: u64,
        reporter: &mut Reporter<'_>,
    ) -> Result<(), DownloadError> {
        let before_bytes = partial.bytes();
        let (blocks, receiver) = mpsc::channel(BLOCKS_QUEUED_MAX);
        let writer = tokio::task::spawn_blocking(move || write_blocks(partial, receiver, total_bytes));
        let end = self.read_body(response, blocks, before_bytes, reporter).await;
        let task_failed = |_| FetchFault::Local(WeightsFault::TaskFailed(self.job.id().clone()));
        let (partial, written) = writer.await.map_err(task_failed)?;
        let bytes = partial.bytes();
        self.partial = Some(partial);
        written?;
        if bytes > before_bytes {
            self.tries_without_progress = 0;
        }
        match end {
            StreamEnd::Complete if bytes == total_bytes => Ok(()),
            StreamEnd::Complete => {
                Err(DownloadError::Retry { why: "the response was truncated".to_owned(), after: None })
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
                Err(_) => return StreamEnd::Interrupted("the server stopped sending".to_owned()),
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
        let task_failed = || FetchFault::Local(WeightsFault::TaskFailed(self.job.id().clone()));
        self.partial.ok_or_else(task_failed)
    }
}

/// How a response body ended.
enum StreamEnd {
    Complete,
    Interrupted(String),
    Cancelled,
}

/// Writes the received blocks on a blocking thread, until the channel closes or the file exceeds its size.
fn write_blocks(
    mut partial: PartialDownload,
    mut blocks: mpsc::Receiver<Bytes>,
    limit_bytes: u64,
) -> (PartialDownload, Result<(), FetchFault>) {
    let mut written = Ok(());
    while let Some(block) = blocks.blocking_recv() {
        if partial.bytes() + block.len() as u64 > limit_bytes {
            let why = format!("the server sent more than the {limit_bytes} bytes it promised");
            return (partial, Err(FetchFault::ContentMismatch(why)));
        }
        written = partial.write(&block).and_then(|()| partial.sync_if_due());
        if written.is_err() {
            break;
        }
    }
    // Sync also after a write error, such as a full disk, to resume from there.
    let synced = partial.sync();
    (partial, written.and(synced))
}
