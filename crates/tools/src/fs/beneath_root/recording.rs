//! Records what a call replaces, before it takes effect, so that its turn can be undone.

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};

use agent::ToolOutcome;
use agent::outside::{FileChange, FileState, NewChanges, StateDigest, TurnChanges, UNDO_FILE_BYTES_MAX};
use agent::permission::FilePath;
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::entry::{EntryKind, EntryNames, EntryStat, open_listing, open_regular};
use super::replace::TemporaryFile;
use super::target_directory::CreatedDirectories;
use super::writable_file::LockedTarget;
use super::{PermittedPath, real_path};
use crate::definition::execution_failed;

/// The changes of a call.
#[derive(Default)]
pub(super) struct ChangeSet {
    changes: Vec<FileChange>,
    bytes: usize,
}

/// Why changes are not collected.
pub(super) enum NotCollected {
    /// They cannot be undone, for this reason.
    NotUndoable(String),
    Errno(Errno),
}

impl From<Errno> for NotCollected {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl PermittedPath {
    /// Collects the changes of a call and records them; returns once they are committed.
    pub(super) fn record(
        &self,
        collect: impl FnOnce(&mut ChangeSet) -> Result<(), NotCollected>,
    ) -> Result<(), ToolOutcome> {
        if !self.changes.is_recording() {
            return Ok(());
        }
        let mut set = ChangeSet::default();
        let changes = match collect(&mut set) {
            Ok(()) => NewChanges::Recorded(set.changes),
            Err(NotCollected::NotUndoable(why)) => NewChanges::NotUndoable(why),
            Err(NotCollected::Errno(errno)) => return Err(self.errno_outcome(errno)),
        };
        let failed = |why| {
            format!("{}: not changed, because what it replaces cannot be stored: {why}", self.requested_path)
        };
        self.changes.record(changes).map_err(|why| execution_failed(failed(why)))
    }

    /// Records the directories that the call has created.
    pub(super) fn record_directories(&self, created: &CreatedDirectories) -> Result<(), ToolOutcome> {
        self.record(|set| set.add_directories(created))
    }
}

impl LockedTarget<'_> {
    /// Records that an entry of the target's directory will replace the target.
    pub(super) fn record_replacement(&self, name: &str) -> Result<(), ToolOutcome> {
        self.path.record(|set| self.collect_replacement(set, name))
    }

    fn collect_replacement(&self, set: &mut ChangeSet, name: &str) -> Result<(), NotCollected> {
        self.collect_arrival(set, self.target.directory.as_fd(), name)
    }

    /// Collects that an entry of another directory will replace the target.
    pub(super) fn collect_arrival(
        &self,
        set: &mut ChangeSet,
        from: BorrowedFd<'_>,
        name: &str,
    ) -> Result<(), NotCollected> {
        set.add_directories(self.created_directories())?;
        let directory = self.target.directory.as_fd();
        let path = entry_path(directory, self.file_name())?;
        let before = read_state(directory, self.file_name(), &path)?;
        set.add_created(from, name, &path, before)
    }

    fn collect_removal(&self, set: &mut ChangeSet) -> Result<(), NotCollected> {
        let directory = self.target.directory.as_fd();
        set.add_removed(directory, self.file_name(), &entry_path(directory, self.file_name())?)
    }

    /// Records that bytes will be appended to the target, or that it will be created with them.
    pub(super) fn record_append(&self, appended: &[u8]) -> Result<(), ToolOutcome> {
        self.path.record(|set| {
            set.add_directories(self.created_directories())?;
            let directory = self.target.directory.as_fd();
            let path = entry_path(directory, self.file_name())?;
            let before = read_state(directory, self.file_name(), &path)?;
            let old: &[u8] = match &before {
                FileState::File { content, .. } => content,
                _ => &[],
            };
            let after = Sha256::new_with_prefix(FILE_PREFIX).chain_update(old).chain_update(appended);
            set.push(path, before, after.finalize().into())
        })
    }
}

/// Records the changes of several files at once: each is replaced by its temporary file, or removed.
pub(crate) fn record_all(
    targets: &[LockedTarget<'_>],
    prepared: &[Option<TemporaryFile<'_>>],
) -> Result<(), ToolOutcome> {
    let Some(first) = targets.first() else { return Ok(()) };
    first.path.record(|set| {
        targets.iter().zip(prepared).try_for_each(|(target, temporary)| match temporary {
            Some(temporary) => target.collect_replacement(set, temporary.name()),
            None => target.collect_removal(set),
        })
    })
}

impl ChangeSet {
    fn push(&mut self, path: FilePath, before: FileState, after: StateDigest) -> Result<(), NotCollected> {
        let last_before = digest_state(&before);
        let change = FileChange { path, before, last_before, after };
        self.bytes += change.bytes();
        self.changes.push(change);
        // Not only when the call is recorded: the contents are in memory until then.
        match TurnChanges::excess(self.changes.len(), self.bytes) {
            Some(why) => Err(NotCollected::NotUndoable(why)),
            None => Ok(()),
        }
    }

    /// Adds an entry that will be removed, with everything below it.
    pub(super) fn add_removed(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &str,
        path: &FilePath,
    ) -> Result<(), NotCollected> {
        visit(parent, name, path, &mut |parent, name, path| {
            self.push(path.clone(), read_state(parent, name, path)?, digest_state(&FileState::Absent))
        })
    }

    /// Adds a path that will have an entry which is elsewhere now, with everything below it.
    pub(super) fn add_created(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &str,
        path: &FilePath,
        before: FileState,
    ) -> Result<(), NotCollected> {
        let mut before = Some(before);
        visit(parent, name, path, &mut |parent, name, path| {
            let after = digest_entry(parent, name)?;
            self.push(path.clone(), before.take().unwrap_or(FileState::Absent), after)
        })
    }

    fn add_directories(&mut self, created: &CreatedDirectories) -> Result<(), NotCollected> {
        let after = digest_state(&FileState::Directory { mode: 0 });
        created.iter().try_for_each(|(parent, name)| {
            self.push(entry_path(parent.as_fd(), name)?, FileState::Absent, after)
        })
    }
}

/// The path of an entry by the real path of its directory.
pub(super) fn entry_path(directory: BorrowedFd<'_>, name: &str) -> Result<FilePath, Errno> {
    let directory = real_path(directory).ok_or(Errno::ILSEQ)?;
    FilePath::resolve(name, &directory).map_err(|_| Errno::ILSEQ)
}

type Visitor<'a> = dyn FnMut(BorrowedFd<'_>, &str, &FilePath) -> Result<(), NotCollected> + 'a;

/// Visits an entry and everything below it. Paths are those that the entries have or will have.
fn visit(
    parent: BorrowedFd<'_>,
    name: &str,
    path: &FilePath,
    visitor: &mut Visitor<'_>,
) -> Result<(), NotCollected> {
    visitor(parent, name, path)?;
    if EntryStat::read(parent, name)?.kind != EntryKind::Directory {
        return Ok(());
    }
    let directory = open_listing(parent, name)?;
    for name in EntryNames::read(&directory)?.names {
        let path = FilePath::resolve(&name, path).map_err(|_| Errno::ILSEQ)?;
        visit(directory.as_fd(), &name, &path, visitor)?;
    }
    Ok(())
}

/// Reads what is at an entry of a directory.
pub(super) fn read_state(
    directory: BorrowedFd<'_>,
    name: &str,
    path: &FilePath,
) -> Result<FileState, NotCollected> {
    let stat = match EntryStat::read(directory, name) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(FileState::Absent),
        Err(errno) => return Err(errno.into()),
    };
    let mode = stat.mode & 0o777;
    match stat.kind {
        EntryKind::Directory => Ok(FileState::Directory { mode }),
        EntryKind::Link => Ok(FileState::Link { target: read_link(directory, name)? }),
        EntryKind::File => {
            let (file, _) = match open_regular(directory, name) {
                Err(Errno::ACCESS) => {
                    return Err(NotCollected::NotUndoable(format!("{path} could not be read")));
                }
                opened => opened?,
            };
            let mut content = Vec::new();
            let read = file.take(UNDO_FILE_BYTES_MAX as u64 + 1).read_to_end(&mut content);
            read.map_err(|fault| Errno::from_io_error(&fault).unwrap_or(Errno::IO))?;
            if content.len() > UNDO_FILE_BYTES_MAX {
                let mebibytes = UNDO_FILE_BYTES_MAX >> 20;
                return Err(NotCollected::NotUndoable(format!("{path} was larger than {mebibytes} MiB")));
            }
            Ok(FileState::File { mode, content })
        }
        kind => Err(NotCollected::NotUndoable(format!("{path} was {}", kind.description()))),
    }
}

const FILE_PREFIX: &[u8] = b"file\0";

/// The digest of a state.
pub(super) fn digest_state(state: &FileState) -> StateDigest {
    match state {
        FileState::Absent => Sha256::digest(b"absent"),
        FileState::Directory { .. } => Sha256::digest(b"directory"),
        FileState::Link { target } => Sha256::new_with_prefix(b"link\0").chain_update(target).finalize(),
        FileState::File { content, .. } => {
            Sha256::new_with_prefix(FILE_PREFIX).chain_update(content).finalize()
        }
    }
    .into()
}

/// The digest of what is at an entry of a directory, whatever its size.
pub(super) fn digest_entry(directory: BorrowedFd<'_>, name: &str) -> Result<StateDigest, Errno> {
    let kind = match EntryStat::read(directory, name) {
        Ok(stat) => stat.kind,
        Err(Errno::NOENT) => return Ok(digest_state(&FileState::Absent)),
        Err(errno) => return Err(errno),
    };
    match kind {
        EntryKind::Directory => Ok(digest_state(&FileState::Directory { mode: 0 })),
        EntryKind::Link => Ok(digest_state(&FileState::Link { target: read_link(directory, name)? })),
        EntryKind::File => {
            let (mut file, _) = open_regular(directory, name)?;
            let mut hasher = Sha256::new_with_prefix(FILE_PREFIX);
            let mut chunk = vec![0; 64 << 10];
            loop {
                match file.read(&mut chunk) {
                    Ok(0) => return Ok(hasher.finalize().into()),
                    Ok(count) => hasher.update(&chunk[..count]),
                    Err(fault) if fault.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(fault) => return Err(Errno::from_io_error(&fault).unwrap_or(Errno::IO)),
                }
            }
        }
        kind => Ok(Sha256::digest(kind.description()).into()),
    }
}

fn read_link(directory: BorrowedFd<'_>, name: &str) -> Result<String, Errno> {
    let target = rustix::fs::readlinkat(directory, name, Vec::new())?;
    target.into_string().map_err(|_| Errno::ILSEQ)
}
