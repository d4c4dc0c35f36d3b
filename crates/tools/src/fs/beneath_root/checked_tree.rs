//! A tree that one call moves, copies or removes. Each entry is checked: a tree that contains something blocked or
//! protected, or another mount, is refused.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use agent::ToolOutcome;
use agent::permission::FilePath;
use rustix::io::Errno;

use super::blocked::{BlockedFiles, mount_id};
use super::entry::{EntryKind, EntryNames, EntryStat, open_listing};
use super::protected::is_protected;
use super::target_directory::TargetDirectory;
use super::{PermittedPath, ResolvedFile};
use crate::blocking::CancelFlag;
use crate::definition::execution_failed;

/// Maximum number of entries that one call moves, copies or removes.
const ENTRIES_MAX: usize = 10_000;

/// Maximum depth of a tree that is moved, copied or removed.
const DEPTH_MAX: usize = 64;

/// What is done with the entries of a tree, each after its check.
pub(super) trait TreeAction {
    /// Begins a directory, which is open.
    fn enter(&mut self, _directory: &OwnedFd, _name: &str) -> Result<(), ToolOutcome> {
        Ok(())
    }

    /// Handles a file or link of a directory.
    fn leaf(&mut self, _directory: &OwnedFd, _name: &str, _stat: &EntryStat) -> Result<(), ToolOutcome> {
        Ok(())
    }

    /// Ends a directory, which is in `parent`.
    fn leave(&mut self, _parent: &OwnedFd, _name: &str) -> Result<(), ToolOutcome> {
        Ok(())
    }
}

/// Checks only.
pub(super) struct CheckOnly;

impl TreeAction for CheckOnly {}

/// A file, link or directory with everything below it.
pub(super) struct CheckedTree<'a> {
    path: &'a PermittedPath,
    stop: &'a CancelFlag,
    blocked: BlockedFiles,
    pub(super) stat: EntryStat,
    pub(super) real: String,
    /// The mount that all entries have to be on.
    mount: Option<u64>,
    /// Entries so far.
    pub(super) entries: usize,
    /// The new place of the tree, where nothing may become protected or blocked.
    pub(super) target: Option<String>,
    /// What a denial says about the tree.
    refusal: &'static str,
}

impl<'a> CheckedTree<'a> {
    /// The entry of a directory, to be moved or removed.
    pub(super) fn of_entry(
        path: &'a PermittedPath,
        entry: &TargetDirectory,
        stop: &'a CancelFlag,
    ) -> Result<Self, ToolOutcome> {
        let directory = entry.directory.as_fd();
        let stat = EntryStat::read(directory, &entry.file_name).map_err(|errno| path.errno_outcome(errno))?;
        let mount = mount_id(directory).map_err(|errno| path.errno_outcome(errno))?;
        Self::new(path, stat, path.real_entry_path(entry)?, mount, "stays as it is", stop)
    }

    /// A directory to be copied.
    pub(super) fn of_source(
        path: &'a PermittedPath,
        found: &ResolvedFile,
        stop: &'a CancelFlag,
    ) -> Result<Self, ToolOutcome> {
        let stat = EntryStat::read(found.handle.as_fd(), "").map_err(|errno| path.errno_outcome(errno))?;
        let mount = stat.mount;
        Self::new(path, stat, found.real_path.to_string(), mount, "is not copied", stop)
    }

    fn new(
        path: &'a PermittedPath,
        stat: EntryStat,
        real: String,
        mount: Option<u64>,
        refusal: &'static str,
        stop: &'a CancelFlag,
    ) -> Result<Self, ToolOutcome> {
        let blocked = BlockedFiles::open(&path.blocked).map_err(|errno| path.errno_outcome(errno))?;
        Ok(Self { path, stop, blocked, stat, real, mount, entries: 0, target: None, refusal })
    }

    /// Opens the directory by its name in `parent`, if it is still the one that was described.
    pub(super) fn open_directory(&self, parent: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, ToolOutcome> {
        open_same(parent, name, &self.stat).map_err(|errno| self.path.errno_outcome(errno))
    }

    /// Checks the tree and passes its entries to the action; `directory` is the tree itself, if it is one.
    pub(super) fn visit(
        &mut self,
        directory: Option<&OwnedFd>,
        action: &mut dyn TreeAction,
    ) -> Result<(), ToolOutcome> {
        self.entries = 0;
        let mut real = self.real.clone();
        self.check_entry(&self.stat.clone(), &real)?;
        directory.map_or(Ok(()), |directory| self.visit_directory(directory, &mut real, 1, action))
    }

    fn visit_directory(
        &mut self,
        directory: &OwnedFd,
        real: &mut String,
        depth: usize,
        action: &mut dyn TreeAction,
    ) -> Result<(), ToolOutcome> {
        let path = self.path;
        let to_outcome = |errno| path.errno_outcome(errno);
        let names = EntryNames::read(directory).map_err(to_outcome)?;
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
            // Also in a second visit: it may be another entry by now.
            let stat = EntryStat::read(directory.as_fd(), name).map_err(to_outcome)?;
            self.check_entry(&stat, real)?;
            if stat.kind == EntryKind::Directory {
                let below = open_same(directory.as_fd(), name, &stat).map_err(to_outcome)?;
                action.enter(&below, name)?;
                self.visit_directory(&below, real, depth + 1, action)?;
                action.leave(directory, name)?;
            } else {
                action.leaf(directory, name, &stat)?;
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
        if self.is_closed_at_target(real) {
            return Err(self.refused(real, "would be protected or blocked there"));
        }
        if stat.mount != self.mount {
            return Err(self.refused(real, "is on another mount"));
        }
        match stat.kind {
            EntryKind::File | EntryKind::Directory | EntryKind::Link => Ok(()),
            kind => Err(self.refused(real, &format!("is {}", kind.description()))),
        }
    }

    /// Whether the entry would have a protected or blocked path: `fish` becomes protected in `.config`.
    fn is_closed_at_target(&self, real: &str) -> bool {
        let Some(target) = &self.target else { return false };
        let there = format!("{target}{}", real.strip_prefix(&self.real).unwrap_or_default());
        let is_blocked = |there: FilePath| self.path.is_blocked(&there);
        is_protected(&there) || FilePath::resolve(&there, &FilePath::root()).map_or(true, is_blocked)
    }

    /// The denial because of an entry. Blocked ones are not named.
    fn refused(&self, real: &str, why: &str) -> ToolOutcome {
        let requested = &self.path.requested_path;
        let what = match real.strip_prefix(&self.real) {
            Some("") | None => format!("it {why}"),
            Some(_) if why == "is blocked" => "it contains a blocked file".to_owned(),
            Some(below) => format!("{requested}{below} {why}"),
        };
        ToolOutcome::Denied(format!("Permission denied: {requested} {}: {what}", self.refusal))
    }

    fn too_large(&self) -> ToolOutcome {
        let requested = &self.path.requested_path;
        execution_failed(format!(
            "{requested} has more than {ENTRIES_MAX} entries or is more than {DEPTH_MAX} directories deep; begin with \
             a directory further down"
        ))
    }
}

/// Opens a directory, if it is still the one that was described.
fn open_same(parent: BorrowedFd<'_>, name: &str, stat: &EntryStat) -> Result<OwnedFd, Errno> {
    let directory = open_listing(parent, name)?;
    let opened = EntryStat::read(directory.as_fd(), "")?;
    if opened.id == stat.id { Ok(directory) } else { Err(Errno::AGAIN) }
}
