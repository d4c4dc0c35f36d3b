//! Appends content to a file with a single write, and returns once it is on disk. A file with other hard links or with
//! a set-user-id or set-group-id bit is copied and replaced instead: its other links retain the old content.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use agent::ToolOutcome;
use agent::outside::Entropy;
use rustix::fs::{Mode, OFlags, Stat};
use rustix::io::Errno;

use super::writable_file::{Content, LockedTarget};
use super::{PermittedPath, ResolvedFile};
use crate::blocking::CancelFlag;
use crate::definition::execution_failed;

impl LockedTarget<'_> {
    /// Appends to the file, or creates it. Returns the number of bytes written.
    pub(crate) fn append(
        &self,
        content: String,
        on_new_line: bool,
        entropy: &dyn Entropy,
        stop: &CancelFlag,
    ) -> Result<usize, ToolOutcome> {
        let path = self.path;
        let Some(old) = self.find()? else {
            return self.create_with_content(&content, stop);
        };
        old.require_regular(path)?;
        let content =
            if on_new_line && lacks_final_newline(path, &old)? { format!("\n{content}") } else { content };
        if can_append_in_place(old.stat()) {
            let mut file =
                old.open(OFlags::WRONLY | OFlags::APPEND).map_err(|errno| path.errno_outcome(errno))?;
            self.record_append(content.as_bytes())?;
            stop.check()?;
            write_synced(path, &mut file, content.as_bytes())?;
        } else {
            self.replace(&Content { text: &content, is_appended: true }, entropy, stop)?;
        }
        Ok(content.len())
    }

    fn create_with_content(&self, content: &str, stop: &CancelFlag) -> Result<usize, ToolOutcome> {
        self.record_append(content.as_bytes())?;
        stop.check()?;
        let access = OFlags::WRONLY | OFlags::APPEND;
        let created = self.create(self.file_name(), access, Mode::from_raw_mode(0o666));
        let mut file = created.map_err(|errno| match errno {
            // Another process created the file meanwhile, without our locks.
            Errno::EXIST => self.path.errno_outcome(Errno::AGAIN),
            errno => self.path.errno_outcome(errno),
        })?;
        if let Err(outcome) = write_synced(self.path, &mut file, content.as_bytes()) {
            self.remove_incomplete(self.file_name());
            return Err(outcome);
        }
        self.sync()?;
        Ok(content.len())
    }
}

/// Whether the file can be appended to directly: it has a single link and no set-id or sticky bit.
fn can_append_in_place(stat: &Stat) -> bool {
    stat.st_nlink == 1 && stat.st_mode & 0o7000 == 0
}

fn lacks_final_newline(path: &PermittedPath, old: &ResolvedFile) -> Result<bool, ToolOutcome> {
    let to_outcome = |fault: io::Error| path.io_outcome(&fault);
    let file = old.open(OFlags::RDONLY).map_err(|errno| path.errno_outcome(errno))?;
    let Some(last) = file.metadata().map_err(to_outcome)?.len().checked_sub(1) else { return Ok(false) };
    let mut byte = [0];
    let read = file.read_at(&mut byte, last).map_err(to_outcome)?;
    Ok(read == 1 && byte != *b"\n")
}

/// Writes all bytes and syncs. The kernel accepts them at once unless the disk is full; then a partial write is undone.
fn write_synced(path: &PermittedPath, file: &mut File, bytes: &[u8]) -> Result<(), ToolOutcome> {
    let to_outcome = |fault: io::Error| path.io_outcome(&fault);
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
                        path.requested_path,
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
