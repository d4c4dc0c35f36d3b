//! Puts content at a file's end, in one write, and says so when it is on the disk. A file that has other names, or acts
//! as its owner, is copied instead: its other names keep the old content.

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

/// Says how many bytes it has written.
pub(super) fn append(
    place: &PermittedPath,
    content: String,
    on_new_line: bool,
    entropy: &dyn Entropy,
    stop: &CancelFlag,
) -> Result<usize, ToolOutcome> {
    let seat = place.open_target()?;
    let _lock = lock_target(place, &seat)?;
    let Some(old) = place.find_target_file(&seat)? else {
        return create_with_content(place, &seat, &content, stop);
    };
    old.require_regular(place)?;
    let content =
        if on_new_line && lacks_final_newline(place, &old)? { format!("\n{content}") } else { content };
    if can_append_in_place(old.stat()) {
        let mut file =
            old.open(OFlags::WRONLY | OFlags::APPEND).map_err(|errno| place.errno_outcome(errno))?;
        stop.check()?;
        write_synced(place, &mut file, content.as_bytes())?;
    } else {
        replace_locked(place, &seat, &Content { text: &content, is_appended: true }, entropy, stop)?;
    }
    Ok(content.len())
}

/// One name, and nothing in its mode that would give new content the owner's rights.
fn can_append_in_place(stat: &Stat) -> bool {
    stat.st_nlink == 1 && stat.st_mode & 0o7000 == 0
}

fn lacks_final_newline(place: &PermittedPath, old: &ResolvedFile) -> Result<bool, ToolOutcome> {
    let tell = |fault: io::Error| execution_failed(format!("{}: {fault}", place.requested_path()));
    let file = old.open(OFlags::RDONLY).map_err(|errno| place.errno_outcome(errno))?;
    let Some(last) = file.metadata().map_err(tell)?.len().checked_sub(1) else { return Ok(false) };
    let mut byte = [0];
    let read = file.read_at(&mut byte, last).map_err(tell)?;
    Ok(read == 1 && byte != *b"\n")
}

fn create_with_content(
    place: &PermittedPath,
    seat: &TargetDirectory,
    content: &str,
    stop: &CancelFlag,
) -> Result<usize, ToolOutcome> {
    stop.check()?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW;
    let mode = Mode::from_raw_mode(0o666);
    let made = rustix::fs::openat(&seat.directory, &seat.file_name, flags | OFlags::CLOEXEC, mode);
    let made = made.map_err(|errno| match errno {
        // Somebody made it in this moment, who knows nothing of our locks.
        Errno::EXIST => place.errno_outcome(Errno::AGAIN),
        errno => place.errno_outcome(errno),
    })?;
    let mut file = File::from(made);
    if let Err(outcome) = write_synced(place, &mut file, content.as_bytes()) {
        // Half a file that nobody had before is worth less than none. If it stays, the text says why.
        let _ = rustix::fs::unlinkat(seat.directory.as_fd(), &seat.file_name, AtFlags::empty());
        return Err(outcome);
    }
    seat.sync().map_err(|errno| place.errno_outcome(errno))?;
    Ok(content.len())
}

/// The kernel takes all of it at once unless the disk is full. Then what it took is taken back.
fn write_synced(place: &PermittedPath, file: &mut File, bytes: &[u8]) -> Result<(), ToolOutcome> {
    let tell = |fault: io::Error| execution_failed(format!("{}: {fault}", place.requested_path()));
    let before = file.metadata().map_err(tell)?.len();
    let mut written = 0;
    while written < bytes.len() {
        match file.write(&bytes[written..]) {
            Ok(more) if more > 0 => written += more,
            Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
            stuck => {
                let fault = stuck.err().unwrap_or_else(|| io::ErrorKind::WriteZero.into());
                undo_partial_write(file, before, written).map_err(|kept| {
                    execution_failed(format!(
                        "{}: only {kept} of {} bytes were written: {fault}",
                        place.requested_path(),
                        bytes.len()
                    ))
                })?;
                return Err(tell(fault));
            }
        }
    }
    file.sync_all().map_err(tell)
}

/// Says how much stays, when somebody else has written after it and nothing can be taken back.
fn undo_partial_write(file: &File, before: u64, written: usize) -> Result<(), usize> {
    let is_last = file.metadata().is_ok_and(|metadata| metadata.len() == before + written as u64);
    if is_last && file.set_len(before).is_ok() { Ok(()) } else { Err(written) }
}
