//! Appends content to a file with a single write, and returns once it is on disk. A file with other hard links or with
//! a set-user-id or set-group-id bit is copied and replaced instead: its other links retain the old content.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use agent::ToolOutcome;
use agent::outside::Entropy;
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::beneath_root::{PermittedPath, ResolvedFile, TargetDirectory};
use super::replace::{Content, lock_target, replace_locked};
use crate::blocking::CancelFlag;
use crate::definition::execution_failed;

/// Appends to the file, or creates it. Returns the number of bytes written.
pub(super) fn append(
    path: &PermittedPath,
    content: String,
    on_new_line: bool,
    entropy: &dyn Entropy,
    stop: &CancelFlag,
) -> Result<usize, ToolOutcome> {
    let target = path.open_target()?;
    let _lock = lock_target(path, &target)?;
    let Some(old) = path.find_target_file(&target)? else {
        return create_with_content(path, &target, &content, stop);
    };
    old.require_regular(path)?;
    let content =
        if on_new_line && lacks_final_newline(path, &old)? { format!("\n{content}") } else { content };
    if can_append_in_place(old.stat()) {
        let mut file =
            old.open(OFlags::WRONLY | OFlags::APPEND).map_err(|errno| path.errno_outcome(errno))?;
        stop.check()?;
        write_synced(path, &mut file, content.as_bytes())?;
    } else {
        replace_locked(path, &target, &Content { text: &content, is_appended: true }, entropy, stop)?;
    }
    Ok(content.len())
}

/// Whether the file can be appended to directly: it has a single link and no set-id or sticky bit.
fn can_append_in_place(stat: &Stat) -> bool {
    stat.st_nlink == 1 && stat.st_mode & 0o7000 == 0
}

fn lacks_final_newline(path: &PermittedPath, old: &ResolvedFile) -> Result<bool, ToolOutcome> {
    let to_outcome = |fault: io::Error| execution_failed(format!("{}: {fault}", path.requested_path()));
    let file = old.open(OFlags::RDONLY).map_err(|errno| path.errno_outcome(errno))?;
    let Some(last) = file.metadata().map_err(to_outcome)?.len().checked_sub(1) else { return Ok(false) };
    let mut byte = [0];
    let read = file.read_at(&mut byte, last).map_err(to_outcome)?;
    Ok(read == 1 && byte != *b"\n")
}

fn create_with_content(
    path: &PermittedPath,
    target: &TargetDirectory,
    content: &str,
    stop: &CancelFlag,
) -> Result<usize, ToolOutcome> {
    stop.check()?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW;
    let mode = Mode::from_raw_mode(0o666);
    let created = rustix::fs::openat(&target.directory, &target.file_name, flags | OFlags::CLOEXEC, mode);
    let created = created.map_err(|errno| match errno {
        // Another process created the file meanwhile, without our locks.
        Errno::EXIST => path.errno_outcome(Errno::AGAIN),
        errno => path.errno_outcome(errno),
    })?;
    let mut file = File::from(created);
    if let Err(outcome) = write_synced(path, &mut file, content.as_bytes()) {
        // Removes the partial new file. If that fails too, the outcome still reports the error.
        let _ = rustix::fs::unlinkat(target.directory.as_fd(), &target.file_name, AtFlags::empty());
        return Err(outcome);
    }
    target.sync().map_err(|errno| path.errno_outcome(errno))?;
    Ok(content.len())
}

/// Writes all bytes and syncs. The kernel accepts them at once unless the disk is full; then a partial write is undone.
fn write_synced(path: &PermittedPath, file: &mut File, bytes: &[u8]) -> Result<(), ToolOutcome> {
    let to_outcome = |fault: io::Error| execution_failed(format!("{}: {fault}", path.requested_path()));
    let before = file.metadata().map_err(to_outcome)?.len();
    let mut written = 0;
    while written < bytes.len() {
        match file.write(&bytes[written..]) {
            Ok(count) if count > 0 => written += count,
            Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
            failure => {
                let fault = failure.err().unwrap_or_else(|| io::ErrorKind::WriteZero.into());
                undo_partial_write(file, before, written).map_err(|remaining| {
                    execution_failed(format!(
                        "{}: only {remaining} of {} bytes were written: {fault}",
                        path.requested_path(),
                        bytes.len()
                    ))
                })?;
                return Err(to_outcome(fault));
            }
        }
    }
    file.sync_all().map_err(to_outcome)
}

/// Truncates the file to its old length. Returns the bytes that remain if another process has appended after them.
fn undo_partial_write(file: &File, before: u64, written: usize) -> Result<(), usize> {
    let is_last = file.metadata().is_ok_and(|metadata| metadata.len() == before + written as u64);
    if is_last && file.set_len(before).is_ok() { Ok(()) } else { Err(written) }
}
