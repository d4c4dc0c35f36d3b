//! Removes and moves entries. Before a directory is touched, everything in it is checked: a directory that contains
//! something blocked or protected, or another mount, stays.

use std::os::fd::{AsFd, OwnedFd};

use agent::ToolOutcome;
use agent::permission::Permit;
use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;

use super::blocked::{BlockedFiles, mount_id};
use super::entry::{EntryKind, EntryNames, EntryStat, open_listing};
use super::protected::is_protected;
use super::target_directory::TargetDirectory;
use super::{PermittedPath, WritableFile};
use crate::blocking::CancelFlag;
use crate::definition::execution_failed;

/// Maximum number of entries that one call removes or moves.
const ENTRIES_MAX: usize = 10_000;

/// Maximum depth of a directory that is removed or moved.
const DEPTH_MAX: usize = 64;

/// A permitted entry of a call that removes or moves it.
pub(crate) struct RemovableEntry(PermittedPath);

impl RemovableEntry {
    /// The entry that the permit allows to write.
    pub(crate) fn from_permit(permit: &Permit, requested: &str) -> Result<Self, ToolOutcome> {
        let file = permit.writable.first().map(|write| write.file());
        PermittedPath::new(file, requested).map(Self)
    }

    /// Removes a file, a link or a directory. Returns how many entries were removed.
    pub(crate) fn remove(&self, is_recursive: bool, stop: &CancelFlag) -> Result<usize, ToolOutcome> {
        let Self(path) = self;
        let to_outcome = |errno| path.errno_outcome(errno);
        let entry = path.open_entry()?;
        let mut tree = CheckedTree::open(path, &entry, stop)?;
        if tree.stat.kind == EntryKind::Directory {
            let listing = open_listing(entry.directory.as_fd(), &entry.file_name).map_err(to_outcome)?;
            if !is_recursive && EntryNames::read(&listing).map_err(to_outcome)? != EntryNames::default() {
                let requested = &path.requested_path;
                return Err(execution_failed(format!(
                    "{requested} is not empty; set `recursive` to delete its contents"
                )));
            }
            tree.check(&listing)?;
            tree.remove_contents(&listing, &mut tree.real.clone())?;
            rustix::fs::unlinkat(&entry.directory, &entry.file_name, AtFlags::REMOVEDIR)
                .map_err(to_outcome)?;
        } else {
            rustix::fs::unlinkat(&entry.directory, &entry.file_name, AtFlags::empty()).map_err(to_outcome)?;
        }
        entry.sync().map_err(to_outcome)?;
        Ok(tree.entries)
    }

    /// Moves a file, a link or a directory.
    pub(crate) fn move_to(
        &self,
        target: &WritableFile,
        overwrite: bool,
        stop: &CancelFlag,
    ) -> Result<(), ToolOutcome> {
        let Self(path) = self;
        let entry = path.open_entry()?;
        let mut tree = CheckedTree::open(path, &entry, stop)?;
        if tree.stat.kind == EntryKind::Directory {
            let listing = open_listing(entry.directory.as_fd(), &entry.file_name);
            tree.check(&listing.map_err(|errno| path.errno_outcome(errno))?)?;
        }
        let target = target.lock()?;
        if overwrite && let Some(old) = target.find()? {
            old.require_regular(target.path)?;
        }
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

/// An entry with everything below it, as far as it was checked.
struct CheckedTree<'a> {
    path: &'a PermittedPath,
    stop: &'a CancelFlag,
    blocked: BlockedFiles,
    stat: EntryStat,
    real: String,
    /// The mount of the directory around the entry.
    mount: Option<u64>,
    entries: usize,
}

impl<'a> CheckedTree<'a> {
    fn open(
        path: &'a PermittedPath,
        entry: &TargetDirectory,
        stop: &'a CancelFlag,
    ) -> Result<Self, ToolOutcome> {
        let to_outcome = |errno| path.errno_outcome(errno);
        let directory = entry.directory.as_fd();
        let real =
            format!("{}/{}", path.real_path(directory)?.as_str().trim_end_matches('/'), entry.file_name);
        let mut tree = Self {
            path,
            stop,
            blocked: BlockedFiles::open(&path.blocked).map_err(to_outcome)?,
            stat: EntryStat::read(directory, &entry.file_name).map_err(to_outcome)?,
            mount: mount_id(directory).map_err(to_outcome)?,
            real,
            entries: 0,
        };
        tree.check_entry(&tree.stat.clone(), &tree.real.clone())?;
        Ok(tree)
    }

    /// Checks everything in the directory.
    fn check(&mut self, listing: &OwnedFd) -> Result<(), ToolOutcome> {
        self.visit(listing, &mut self.real.clone(), 1, false)
    }

    /// Removes everything in the directory. Each entry is checked again: it may be another one by now.
    fn remove_contents(&mut self, listing: &OwnedFd, real: &mut String) -> Result<(), ToolOutcome> {
        self.entries = 1;
        self.visit(listing, real, 1, true)
    }

    fn visit(
        &mut self,
        listing: &OwnedFd,
        real: &mut String,
        depth: usize,
        is_removal: bool,
    ) -> Result<(), ToolOutcome> {
        let path = self.path;
        let to_outcome = |errno| path.errno_outcome(errno);
        let names = EntryNames::read(listing).map_err(to_outcome)?;
        if names.is_truncated || depth > DEPTH_MAX {
            return Err(self.too_large());
        }
        if names.unnamable > 0 {
            return Err(self.refused(real, "has an entry whose name is not UTF-8"));
        }
        let length = real.len();
        for name in &names.names {
            self.stop.check()?;
            real.truncate(length);
            real.push('/');
            real.push_str(name);
            let stat = EntryStat::read(listing.as_fd(), name).map_err(to_outcome)?;
            self.check_entry(&stat, real)?;
            let is_directory = stat.kind == EntryKind::Directory;
            if is_directory {
                let below = open_listing(listing.as_fd(), name).map_err(to_outcome)?;
                let opened = EntryStat::read(below.as_fd(), "").map_err(to_outcome)?;
                if opened.id != stat.id {
                    return Err(to_outcome(Errno::AGAIN));
                }
                self.visit(&below, real, depth + 1, is_removal)?;
            }
            if is_removal {
                let flags = if is_directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                rustix::fs::unlinkat(listing, name, flags).map_err(to_outcome)?;
            }
        }
        real.truncate(length);
        Ok(())
    }

    fn check_entry(&mut self, stat: &EntryStat, real: &str) -> Result<(), ToolOutcome> {
        self.entries += 1;
        if self.entries > ENTRIES_MAX {
            return Err(self.too_large());
        }
        let is_blocked_path = self.path.blocked.iter().any(|blocked| blocked.as_str() == real);
        let is_blocked = self.blocked.contain_entry(stat).map_err(|errno| self.path.errno_outcome(errno))?;
        if is_blocked_path || is_blocked {
            return Err(self.refused(real, "is blocked"));
        }
        if is_protected(real) {
            return Err(self.refused(real, "is protected"));
        }
        if stat.mount != self.mount {
            return Err(self.refused(real, "is on another mount"));
        }
        match stat.kind {
            EntryKind::File | EntryKind::Directory | EntryKind::Link => Ok(()),
            kind => Err(self.refused(real, &format!("is {}", kind.description()))),
        }
    }

    /// The denial because of an entry. Blocked ones are not named.
    fn refused(&self, real: &str, why: &str) -> ToolOutcome {
        let requested = &self.path.requested_path;
        let what = match real.strip_prefix(&self.real) {
            Some("") | None => format!("it {why}"),
            Some(_) if why == "is blocked" => "it contains a blocked file".to_owned(),
            Some(below) => format!("{requested}{below} {why}"),
        };
        ToolOutcome::Denied(format!("Permission denied: {requested} stays as it is: {what}"))
    }

    fn too_large(&self) -> ToolOutcome {
        let requested = &self.path.requested_path;
        execution_failed(format!(
            "{requested} has more than {ENTRIES_MAX} entries or is more than {DEPTH_MAX} directories deep; begin with \
             a directory further down"
        ))
    }
}
