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

use super::beneath::{Found, Place, Seat};
use super::replace::{Content, lock, replace_seated};
use crate::apart::Stop;
use crate::definition::execution_failed;

/// Says how many bytes it has written.
pub(super) fn append(
    place: &Place,
    content: String,
    on_new_line: bool,
    entropy: &dyn Entropy,
    stop: &Stop,
) -> Result<usize, ToolOutcome> {
    let seat = place.seat()?;
    let _lock = lock(place, &seat)?;
    let Some(old) = place.seated_now(&seat)? else {
        return append_new(place, &seat, &content, stop);
    };
    old.regular(place)?;
    let content =
        if on_new_line && ends_within_line(place, &old)? { format!("\n{content}") } else { content };
    if is_plain(old.stat()) {
        let mut file = old.open(OFlags::WRONLY | OFlags::APPEND).map_err(|errno| place.trouble(errno))?;
        stop.check()?;
        write(place, &mut file, content.as_bytes())?;
    } else {
        replace_seated(place, &seat, &Content { text: &content, is_appended: true }, entropy, stop)?;
    }
    Ok(content.len())
}

/// One name, and nothing in its mode that would give new content the owner's rights.
fn is_plain(stat: &Stat) -> bool {
    stat.st_nlink == 1 && stat.st_mode & 0o7000 == 0
}

fn ends_within_line(place: &Place, old: &Found) -> Result<bool, ToolOutcome> {
    let tell = |fault: io::Error| execution_failed(format!("{}: {fault}", place.given()));
    let file = old.open(OFlags::RDONLY).map_err(|errno| place.trouble(errno))?;
    let Some(last) = file.metadata().map_err(tell)?.len().checked_sub(1) else { return Ok(false) };
    let mut byte = [0];
    let read = file.read_at(&mut byte, last).map_err(tell)?;
    Ok(read == 1 && byte != *b"\n")
}

fn append_new(place: &Place, seat: &Seat, content: &str, stop: &Stop) -> Result<usize, ToolOutcome> {
    stop.check()?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW;
    let mode = Mode::from_raw_mode(0o666);
    let made = rustix::fs::openat(&seat.folder, &seat.name, flags | OFlags::CLOEXEC, mode);
    let made = made.map_err(|errno| match errno {
        // Somebody made it in this moment, who knows nothing of our locks.
        Errno::EXIST => place.trouble(Errno::AGAIN),
        errno => place.trouble(errno),
    })?;
    let mut file = File::from(made);
    if let Err(outcome) = write(place, &mut file, content.as_bytes()) {
        // Half a file that nobody had before is worth less than none. If it stays, the text says why.
        let _ = rustix::fs::unlinkat(seat.folder.as_fd(), &seat.name, AtFlags::empty());
        return Err(outcome);
    }
    seat.sync().map_err(|errno| place.trouble(errno))?;
    Ok(content.len())
}

/// The kernel takes all of it at once unless the disk is full. Then what it took is taken back.
fn write(place: &Place, file: &mut File, bytes: &[u8]) -> Result<(), ToolOutcome> {
    let tell = |fault: io::Error| execution_failed(format!("{}: {fault}", place.given()));
    let before = file.metadata().map_err(tell)?.len();
    let mut written = 0;
    while written < bytes.len() {
        match file.write(&bytes[written..]) {
            Ok(more) if more > 0 => written += more,
            Err(fault) if fault.kind() == io::ErrorKind::Interrupted => {}
            stuck => {
                let fault = stuck.err().unwrap_or_else(|| io::ErrorKind::WriteZero.into());
                take_back(file, before, written).map_err(|kept| {
                    execution_failed(format!(
                        "{}: only {kept} of {} bytes were written: {fault}",
                        place.given(),
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
fn take_back(file: &File, before: u64, written: usize) -> Result<(), usize> {
    let is_last = file.metadata().is_ok_and(|metadata| metadata.len() == before + written as u64);
    if is_last && file.set_len(before).is_ok() { Ok(()) } else { Err(written) }
}
