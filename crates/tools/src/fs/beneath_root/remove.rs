//! Removes and moves entries. Before a directory is touched, everything in it is checked.

use std::os::fd::{AsFd, OwnedFd};

use std::sync::Arc;

use agent::ToolOutcome;
use agent::outside::ChangeRecorder;
use agent::permission::Permit;
use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;

use super::checked_tree::{CheckOnly, CheckedTree, TreeAction};
use super::entry::{EntryKind, EntryNames, EntryStat};
use super::recording::entry_path;
use super::target_directory::TargetDirectory;
use super::{PermittedPath, ReadableFile, WritableFile};
use crate::blocking::CancelFlag;
use crate::definition::execution_failed;

/// A permitted entry of a call that removes or moves it.
pub(crate) struct RemovableEntry(PermittedPath);

impl RemovableEntry {
    /// The entry of the permit's write effect with this index.
    pub(crate) fn nth_of_permit(permit: &Permit, index: usize, requested: &str) -> Result<Self, ToolOutcome> {
        let file = permit.writable.get(index).map(|write| write.file());
        PermittedPath::new(file, requested).map(Self)
    }

    /// The same entry, whose changes are recorded.
    pub(crate) fn recorded_by(mut self, changes: &Arc<dyn ChangeRecorder>) -> Self {
        self.0.changes = Arc::clone(changes);
        self
    }

    /// Records that the entry will be removed with everything below it.
    fn record_removal(&self, entry: &TargetDirectory) -> Result<(), ToolOutcome> {
        let (directory, name) = (entry.directory.as_fd(), &entry.file_name);
        self.0.record(|set| set.add_removed(directory, name, &entry_path(directory, name)?))
    }

    /// Removes a file, a link or a directory. Returns how many entries were removed.
    pub(crate) fn remove(&self, is_recursive: bool, stop: &CancelFlag) -> Result<usize, ToolOutcome> {
        let Self(path) = self;
        let to_outcome = |errno| path.errno_outcome(errno);
        let entry = path.open_entry()?;
        let (parent, name) = (&entry.directory, &entry.file_name);
        let mut tree = CheckedTree::of_entry(path, &entry, stop)?;
        if tree.stat.kind == EntryKind::Directory {
            let directory = tree.open_directory(parent.as_fd(), name)?;
            if !is_recursive && EntryNames::read(&directory).map_err(to_outcome)? != EntryNames::default() {
                let requested = &path.requested_path;
                return Err(execution_failed(format!(
                    "{requested} is not empty; set `recursive` to delete its contents"
                )));
            }
            tree.visit(Some(&directory), &mut CheckOnly)?;
            self.record_removal(&entry)?;
            stop.check()?;
            tree.visit(Some(&directory), &mut Removal(path))?;
            rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR).map_err(to_outcome)?;
        } else {
            tree.visit(None, &mut CheckOnly)?;
            self.record_removal(&entry)?;
            stop.check()?;
            rustix::fs::unlinkat(parent, name, AtFlags::empty()).map_err(to_outcome)?;
        }
        entry.sync().map_err(to_outcome)?;
        Ok(tree.entries)
    }

    /// Moves a file, a link or a directory, which the call may also read: it can be read at its new place.
    pub(crate) fn move_to(
        &self,
        readable: &ReadableFile,
        target: &WritableFile,
        overwrite: bool,
        stop: &CancelFlag,
    ) -> Result<(), ToolOutcome> {
        let Self(path) = self;
        let entry = path.open_entry()?;
        let mut tree = CheckedTree::of_entry(path, &entry, stop)?;
        if readable.entry_id()? != tree.stat.id {
            return Err(path.errno_outcome(Errno::AGAIN));
        }
        let target = target.lock()?;
        tree.target = Some(target.path.real_entry_path(&target.target)?);
        let directory = match tree.stat.kind {
            EntryKind::Directory => Some(tree.open_directory(entry.directory.as_fd(), &entry.file_name)?),
            _ => None,
        };
        tree.visit(directory.as_ref(), &mut CheckOnly)?;
        if overwrite && let Some(old) = target.find()? {
            old.require_regular(target.path)?;
        }
        path.record(|set| {
            let (directory, name) = (entry.directory.as_fd(), &entry.file_name);
            set.add_removed(directory, name, &entry_path(directory, name)?)?;
            target.collect_arrival(set, directory, name)
        })?;
        stop.check()?;
        let flags = if overwrite { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        let (to, name) = (&target.target.directory, &target.target.file_name);
        let renamed = rustix::fs::renameat_with(&entry.directory, &entry.file_name, to, name, flags);
        renamed.map_err(|errno| target.rename_outcome(errno))?;
        // Another program may have put another entry there after the check.
        if EntryStat::read(to.as_fd(), name).map_or(true, |moved| moved.id != tree.stat.id) {
            let back = RenameFlags::NOREPLACE;
            let _ = rustix::fs::renameat_with(to, name, &entry.directory, &entry.file_name, back);
            return Err(path.errno_outcome(Errno::AGAIN));
        }
        entry.sync().map_err(|errno| path.errno_outcome(errno))?;
        target.sync()
    }
}

/// Removes the contents of a directory.
struct Removal<'a>(&'a PermittedPath);

impl Removal<'_> {
    fn unlink(&self, directory: &OwnedFd, name: &str, flags: AtFlags) -> Result<(), ToolOutcome> {
        rustix::fs::unlinkat(directory, name, flags).map_err(|errno| self.0.errno_outcome(errno))
    }
}

impl TreeAction for Removal<'_> {
    fn leaf(&mut self, directory: &OwnedFd, name: &str, _stat: &EntryStat) -> Result<(), ToolOutcome> {
        self.unlink(directory, name, AtFlags::empty())
    }

    fn leave(&mut self, parent: &OwnedFd, name: &str) -> Result<(), ToolOutcome> {
        self.unlink(parent, name, AtFlags::REMOVEDIR)
    }
}
