//! Restores what the tools of a turn replaced: checks all paths, prepares all files, then renames them into place. If
//! that fails, what was renamed is put back.

use std::io::Write as _;
use std::os::fd::AsFd;

use agent::ToolOutcome;
use agent::outside::{Entropy, FileChange, FileState, RestoreFault, StateDigest};
use agent::permission::{FilePath, Permit};
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;

use super::WritableFile;
use super::entry::{EntryKind, EntryStat};
use super::recording::{digest_entry, digest_state};
use super::replace::{PublishedChange, TemporaryFile};
use super::stale_files::temporary_name;
use super::version::FileVersion;
use super::writable_file::LockedTarget;
use crate::definition::failure_reason;

/// Restores the state before the changes, all or nothing; returns the paths that were changed.
pub(crate) fn restore(
    changes: &[FileChange],
    permit: &Permit,
    entropy: &dyn Entropy,
) -> Result<Vec<FilePath>, RestoreFault> {
    let open = |(index, change): (usize, &FileChange)| {
        WritableFile::nth_of_permit(permit, index, change.path.as_str())
    };
    let files = changes
        .iter()
        .enumerate()
        .map(open)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|outcome| failed(&outcome))?;
    let mut differing = Vec::new();
    let mut conflicts = Vec::new();
    for (change, file) in changes.iter().zip(&files) {
        let current = file.current_digest().map_err(|outcome| failed(&outcome))?;
        if !is_expected(change, &current) {
            conflicts.push(change.path.clone());
        } else if current != digest_state(&change.before) {
            differing.push((change, file));
        }
    }
    if !conflicts.is_empty() {
        return Err(RestoreFault::ChangedSince(conflicts));
    }
    let targets = WritableFile::lock_entries(differing.iter().map(|(_, file)| *file))
        .map_err(|outcome| failed(&outcome))?;
    let differing: Vec<_> = differing.iter().map(|(change, _)| *change).zip(&targets).collect();
    check_locked(&differing)?;
    let left = Restoration::default().run(&differing, entropy).map_err(|outcome| failed(&outcome))?;
    let is_restored = |path: &FilePath| !left.contains(path);
    Ok(differing.into_iter().map(|(change, _)| change.path.clone()).filter(is_restored).collect())
}

fn failed(outcome: &ToolOutcome) -> RestoreFault {
    RestoreFault::Failed(failure_reason(outcome).to_owned())
}

/// Whether a path has the state after the turn, or one before a change that was recorded and never made.
fn is_expected(change: &FileChange, current: &StateDigest) -> bool {
    [change.after, change.last_before, digest_state(&change.before)].contains(current)
}

/// Checks the paths again, now that no other call can write them.
fn check_locked(differing: &[(&FileChange, &LockedTarget<'_>)]) -> Result<(), RestoreFault> {
    let mut conflicts = Vec::new();
    for (change, target) in differing {
        let current = digest_entry(target.target.directory.as_fd(), target.file_name());
        let current = current.map_err(|errno| failed(&target.path.errno_outcome(errno)))?;
        if !is_expected(change, &current) {
            conflicts.push(change.path.clone());
        }
    }
    if conflicts.is_empty() { Ok(()) } else { Err(RestoreFault::ChangedSince(conflicts)) }
}

/// A restoration, with what was done so far.
#[derive(Default)]
struct Restoration<'a> {
    applied: Vec<Applied<'a>>,
}

/// A step that can be put back.
enum Applied<'a> {
    File(PublishedChange<'a>),
    RemovedDirectory(&'a LockedTarget<'a>, u32),
    CreatedDirectory(&'a LockedTarget<'a>),
    CreatedLink(&'a LockedTarget<'a>),
}

type Step<'a> = (&'a FileChange, &'a LockedTarget<'a>);

impl<'a> Restoration<'a> {
    /// Restores the paths; returns the directories that stay because they have other entries by now.
    fn run(mut self, steps: &[Step<'a>], entropy: &dyn Entropy) -> Result<Vec<FilePath>, ToolOutcome> {
        let mut prepared = Vec::new();
        for (change, target) in steps {
            prepared.push(prepare(change, target, entropy)?);
        }
        if let Err(outcome) = self.apply(steps, prepared, entropy) {
            self.applied.into_iter().rev().for_each(Applied::put_back);
            return Err(outcome);
        }
        for applied in self.applied {
            if let Applied::File(change) = applied {
                change.complete();
            }
        }
        Ok(remove_directories(steps))
    }

    fn apply(
        &mut self,
        steps: &[Step<'a>],
        prepared: Vec<Option<TemporaryFile<'a>>>,
        entropy: &dyn Entropy,
    ) -> Result<(), ToolOutcome> {
        // The deepest first: the contents of a directory go before it.
        for (change, target) in steps.iter().rev() {
            self.clear(change, target, entropy)?;
        }
        for ((change, target), temporary) in steps.iter().zip(prepared) {
            self.create(change, target, temporary, entropy)?;
        }
        // After the contents: a directory may be read-only.
        for (change, target) in steps.iter().rev() {
            if let FileState::Directory { mode } = change.before {
                set_mode(target, mode).map_err(|errno| target.path.errno_outcome(errno))?;
            }
        }
        steps.iter().try_for_each(|(_, target)| target.sync())
    }

    /// Removes what is at the path, unless it is replaced by a rename or stays.
    fn clear(
        &mut self,
        change: &FileChange,
        target: &'a LockedTarget<'a>,
        entropy: &dyn Entropy,
    ) -> Result<(), ToolOutcome> {
        let to_outcome = |errno| target.path.errno_outcome(errno);
        let directory = &target.target.directory;
        let Some(stat) = current(target)? else { return Ok(()) };
        match (&change.before, stat.kind) {
            (FileState::Directory { .. }, EntryKind::Directory)
            | (FileState::File { .. }, EntryKind::File) => {}
            // It may have other entries, or those of this call that are still to be removed.
            (FileState::Absent, EntryKind::Directory) if !remove_empty(target) => {}
            (FileState::Absent, EntryKind::Directory) => {
                self.applied.push(Applied::RemovedDirectory(target, stat.mode & 0o777));
            }
            (_, EntryKind::Directory) => {
                rustix::fs::unlinkat(directory, target.file_name(), AtFlags::REMOVEDIR)
                    .map_err(to_outcome)?;
                self.applied.push(Applied::RemovedDirectory(target, stat.mode & 0o777));
            }
            _ => {
                let old = temporary_name(entropy)?;
                rustix::fs::renameat(directory, target.file_name(), directory, &old).map_err(to_outcome)?;
                self.applied.push(Applied::File(PublishedChange::removed(target, old)));
            }
        }
        Ok(())
    }

    fn create(
        &mut self,
        change: &FileChange,
        target: &'a LockedTarget<'a>,
        temporary: Option<TemporaryFile<'a>>,
        entropy: &dyn Entropy,
    ) -> Result<(), ToolOutcome> {
        let to_outcome = |errno| target.path.errno_outcome(errno);
        let (directory, name) = (&target.target.directory, target.file_name());
        match (&change.before, temporary) {
            (FileState::File { .. }, Some(temporary)) => {
                let version = target.find()?.map(|file| FileVersion::from_stat(file.stat()));
                self.applied.push(Applied::File(temporary.publish(version.as_ref(), entropy)?));
            }
            (FileState::Directory { .. }, _) => {
                match rustix::fs::mkdirat(directory, name, Mode::from_raw_mode(0o700)) {
                    Ok(()) => self.applied.push(Applied::CreatedDirectory(target)),
                    // Created with the lock of an entry below it.
                    Err(Errno::EXIST) => {}
                    Err(errno) => return Err(to_outcome(errno)),
                }
            }
            (FileState::Link { target: content }, _) => {
                rustix::fs::symlinkat(content, directory, name).map_err(to_outcome)?;
                self.applied.push(Applied::CreatedLink(target));
            }
            (FileState::Absent | FileState::File { .. }, _) => {}
        }
        Ok(())
    }
}

impl Applied<'_> {
    /// Puts the earlier state back. The caller reports the error that made it necessary, so a second one is ignored.
    fn put_back(self) {
        let remove = |target: &LockedTarget<'_>, flags| {
            let _ = rustix::fs::unlinkat(&target.target.directory, target.file_name(), flags);
        };
        match self {
            Applied::File(change) => drop(change.undo()),
            Applied::CreatedDirectory(target) => remove(target, AtFlags::REMOVEDIR),
            Applied::CreatedLink(target) => remove(target, AtFlags::empty()),
            Applied::RemovedDirectory(target, mode) => {
                let restrictive = Mode::from_raw_mode(0o700);
                let _ = rustix::fs::mkdirat(&target.target.directory, target.file_name(), restrictive);
                let _ = set_mode(target, mode);
            }
        }
    }
}

/// Writes the content of a file to restore to a temporary file.
fn prepare<'a>(
    change: &FileChange,
    target: &'a LockedTarget<'a>,
    entropy: &dyn Entropy,
) -> Result<Option<TemporaryFile<'a>>, ToolOutcome> {
    let FileState::File { mode, content } = &change.before else { return Ok(None) };
    let is_file = current(target)?.is_some_and(|stat| stat.kind == EntryKind::File);
    let old = if is_file { target.find()? } else { None };
    let mut temporary = TemporaryFile::create_with_mode(target, old.as_ref(), 0o600, entropy)?;
    let file = temporary.file_mut();
    let written = file.write_all(content).and_then(|()| {
        rustix::fs::fchmod(&*file, Mode::from_raw_mode(*mode))?;
        file.sync_all()
    });
    written.map_err(|fault| target.path.io_outcome(&fault))?;
    Ok(Some(temporary))
}

/// Removes the directories that the turn created; returns those that are not empty.
fn remove_directories(steps: &[Step<'_>]) -> Vec<FilePath> {
    let mut left = Vec::new();
    for (change, target) in steps.iter().rev() {
        if change.before == FileState::Absent
            && matches!(current(target), Ok(Some(stat)) if stat.kind == EntryKind::Directory)
            && !remove_empty(target)
        {
            left.push(change.path.clone());
        }
    }
    left
}

/// Removes a directory if it is empty; returns whether it was.
fn remove_empty(target: &LockedTarget<'_>) -> bool {
    let directory = &target.target.directory;
    rustix::fs::unlinkat(directory, target.file_name(), AtFlags::REMOVEDIR).is_ok()
}

/// What is at the path of a target.
fn current(target: &LockedTarget<'_>) -> Result<Option<EntryStat>, ToolOutcome> {
    match EntryStat::read(target.target.directory.as_fd(), target.file_name()) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(target.path.errno_outcome(errno)),
    }
}

fn set_mode(target: &LockedTarget<'_>, mode: u32) -> Result<(), Errno> {
    let directory = super::entry::open_listing(target.target.directory.as_fd(), target.file_name())?;
    rustix::fs::fchmod(directory, Mode::from_raw_mode(mode))
}
