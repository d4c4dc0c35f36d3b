//! Walks a directory tree from handle to handle: each directory is opened relative to its parent's handle, without
//! links, so that no rename and no link leads out. Blocked directories and files of processes are not visited.

use std::io::Read;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use agent::ToolOutcome;
use agent::permission::{FilePath, Permit};
use rustix::fs::{Access, AtFlags, OFlags};

use super::PermittedPath;
use super::blocked::BlockedFiles;
use super::entry::{EntryKind, EntryNames, EntryStat, open_listing, open_regular};
use super::protected::is_credential;
use crate::blocking::CancelFlag;
use crate::fs::ignore_rules::{IgnoreRules, RULE_FILE_BYTES_MAX, RULE_FILES};

/// Maximum depth of a walk; deeper directories are not visited.
pub(super) const DEPTH_MAX: usize = 64;

/// Maximum number of entries that one walk visits.
pub(super) const ENTRIES_MAX: usize = 200_000;

/// A permitted file or directory of a call that reads, with everything below it.
pub(crate) struct ReadableTree(PermittedPath);

/// What a walk visits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WalkOptions {
    /// Maximum depth: 1 for the entries of the directory alone.
    pub(crate) depth_max: usize,
    /// Whether ignore rules and the directory `.git` are without effect.
    pub(crate) include_ignored: bool,
}

/// What a walk left out.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct WalkReport {
    /// Whether a limit ended it early.
    pub(crate) is_truncated: bool,
    /// Entries whose name is not UTF-8, and directories that cannot be opened.
    pub(crate) skipped: usize,
}

/// An entry of the tree.
pub(crate) struct WalkEntry<'a> {
    /// The path relative to the tree; empty for the tree itself, if it is a file.
    pub(crate) relative: &'a str,
    pub(crate) stat: &'a EntryStat,
    name: &'a str,
    /// The path from the permitted directory's real path.
    real: &'a str,
    directory: BorrowedFd<'a>,
    blocked: &'a BlockedFiles,
}

type Visit<'v> = dyn FnMut(&WalkEntry<'_>) -> Result<ControlFlow<()>, ToolOutcome> + 'v;

impl ReadableTree {
    /// The file or directory that the permit allows to read.
    pub(crate) fn from_permit(permit: &Permit, requested: &str) -> Result<Self, ToolOutcome> {
        let file = permit.readable.first().map(|read| read.file());
        PermittedPath::new(file, requested).map(Self)
    }

    /// The path as the model wrote it, truncated for messages.
    pub(crate) fn requested_path(&self) -> &str {
        &self.0.requested_path
    }

    /// The path of an entry as the model would write it.
    pub(crate) fn display_path(&self, relative: &str) -> String {
        match (self.0.requested_path.trim_end_matches('/'), relative) {
            ("." | "./", relative) => relative.to_owned(),
            (requested, "") => requested.to_owned(),
            (requested, relative) => format!("{requested}/{relative}"),
        }
    }

    /// Visits the entries, sorted by name within each directory; a single file is visited as itself.
    pub(crate) fn walk(
        &self,
        options: WalkOptions,
        stop: &CancelFlag,
        visit: &mut Visit<'_>,
    ) -> Result<WalkReport, ToolOutcome> {
        let Self(path) = self;
        let to_outcome = |errno| path.errno_outcome(errno);
        let root = path.find()?.ok_or_else(|| path.not_found())?;
        let blocked = BlockedFiles::open(&path.blocked).map_err(to_outcome)?;
        let stat = EntryStat::read(root.handle.as_fd(), "").map_err(to_outcome)?;
        let mut walk = Walk {
            path,
            options,
            stop,
            blocked: &blocked,
            rules: Vec::new(),
            entries_left: ENTRIES_MAX,
            report: WalkReport::default(),
        };
        if stat.kind != EntryKind::Directory {
            root.require_regular(path)?;
            let real = root.real_path.as_str();
            let _ = visit(&WalkEntry {
                relative: "",
                stat: &stat,
                name: "",
                real,
                directory: root.handle.as_fd(),
                blocked: &blocked,
            })?;
            return Ok(walk.report);
        }
        if !options.include_ignored {
            walk.load_rules_above(&root.real_path)?;
        }
        let listing = open_listing(root.handle.as_fd(), ".").map_err(to_outcome)?;
        let mut position =
            Position { real: root.real_path.as_str().trim_end_matches('/').to_owned(), start: 0, depth: 1 };
        position.start = position.real.len() + 1;
        let _ = walk.visit_directory(&listing, &mut position, visit)?;
        Ok(walk.report)
    }
}

impl WalkEntry<'_> {
    /// Reads a regular file; none if it is longer than the limit, blocked, a credential, or cannot be opened.
    pub(crate) fn read(&self, bytes_max: u64) -> Option<Vec<u8>> {
        if is_credential(self.real) {
            return None;
        }
        let (file, stat) = if self.name.is_empty() {
            (super::reopen(self.directory, OFlags::RDONLY).ok()?, self.stat.clone())
        } else {
            open_regular(self.directory, self.name).ok()?
        };
        // The file may not be the one that was visited.
        if stat.bytes > bytes_max || self.blocked.contain_entry(&stat) != Ok(false) {
            return None;
        }
        // One byte more than there are, so that the first read finds the end.
        let mut bytes = Vec::with_capacity(usize::try_from(stat.bytes).unwrap_or_default() + 1);
        let read = file.take(bytes_max + 1).read_to_end(&mut bytes).ok()?;
        (read as u64 <= bytes_max).then_some(bytes)
    }
}

/// Where a walk is.
struct Position {
    /// The real path of the directory.
    real: String,
    /// Where the path relative to the tree begins in it.
    start: usize,
    depth: usize,
}

struct Walk<'a> {
    path: &'a PermittedPath,
    options: WalkOptions,
    stop: &'a CancelFlag,
    blocked: &'a BlockedFiles,
    /// The rules of the directories above, each with the length of its directory's path.
    rules: Vec<(usize, IgnoreRules)>,
    entries_left: usize,
    report: WalkReport,
}

impl Walk<'_> {
    fn visit_directory(
        &mut self,
        directory: &OwnedFd,
        position: &mut Position,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, ToolOutcome> {
        let entries = EntryNames::read(directory).map_err(|errno| self.path.errno_outcome(errno))?;
        self.report.skipped += entries.unnamable;
        self.report.is_truncated |= entries.is_truncated;
        let rules_before = self.rules.len();
        if !self.options.include_ignored {
            self.load_rules(directory.as_fd(), position.real.len());
        }
        let length = position.real.len();
        let mut flow = ControlFlow::Continue(());
        for name in &entries.names {
            self.stop.check()?;
            position.real.truncate(length);
            position.real.push('/');
            position.real.push_str(name);
            flow = self.visit_entry(directory, name, position, visit)?;
            if flow.is_break() {
                break;
            }
        }
        position.real.truncate(length);
        self.rules.truncate(rules_before);
        Ok(flow)
    }

    fn visit_entry(
        &mut self,
        directory: &OwnedFd,
        name: &str,
        position: &mut Position,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, ToolOutcome> {
        let Some(left) = self.entries_left.checked_sub(1) else {
            self.report.is_truncated = true;
            return Ok(ControlFlow::Break(()));
        };
        self.entries_left = left;
        // An entry may be gone meanwhile.
        let Ok(stat) = EntryStat::read(directory.as_fd(), name) else { return Ok(ControlFlow::Continue(())) };
        let is_directory = stat.kind == EntryKind::Directory;
        let is_left_out =
            self.is_blocked(&stat, &position.real)? || self.is_ignored(name, &position.real, is_directory);
        if is_left_out {
            return Ok(ControlFlow::Continue(()));
        }
        let (relative, real) = (&position.real[position.start..], position.real.as_str());
        let entry = WalkEntry {
            relative,
            stat: &stat,
            name,
            real,
            directory: directory.as_fd(),
            blocked: self.blocked,
        };
        let flow = visit(&entry)?;
        if flow.is_break() || !is_directory || self.options.depth_max == 1 {
            return Ok(flow);
        }
        self.descend(directory, name, position, visit)
    }

    fn descend(
        &mut self,
        directory: &OwnedFd,
        name: &str,
        position: &mut Position,
        visit: &mut Visit<'_>,
    ) -> Result<ControlFlow<()>, ToolOutcome> {
        if position.depth >= self.options.depth_max.min(DEPTH_MAX) {
            self.report.is_truncated = true;
            return Ok(ControlFlow::Continue(()));
        }
        let Some(listing) = self.open_child(directory, name, &position.real)? else {
            self.report.skipped += 1;
            return Ok(ControlFlow::Continue(()));
        };
        position.depth += 1;
        let flow = self.visit_directory(&listing, position, visit);
        position.depth -= 1;
        flow
    }

    /// Opens a directory of the tree. Its entry may have changed since it was visited, so that the handle is checked.
    fn open_child(&self, parent: &OwnedFd, name: &str, real: &str) -> Result<Option<OwnedFd>, ToolOutcome> {
        let Ok(listing) = open_listing(parent.as_fd(), name) else { return Ok(None) };
        let stat = EntryStat::read(listing.as_fd(), "").map_err(|errno| self.path.errno_outcome(errno))?;
        let is_closed = self.is_blocked(&stat, real)? || is_kernel_directory(listing.as_fd());
        Ok((!is_closed).then_some(listing))
    }

    fn is_blocked(&self, stat: &EntryStat, real: &str) -> Result<bool, ToolOutcome> {
        let is_blocked_path = |blocked: &FilePath| blocked.as_str() == real;
        if self.path.blocked.iter().any(is_blocked_path) {
            return Ok(true);
        }
        self.blocked.contain_entry(stat).map_err(|errno| self.path.errno_outcome(errno))
    }

    fn is_ignored(&self, name: &str, real: &str, is_directory: bool) -> bool {
        if self.options.include_ignored {
            return false;
        }
        let decide =
            |(length, rules): &(usize, IgnoreRules)| rules.is_ignored(&real[length + 1..], is_directory);
        name == ".git" || self.rules.iter().rev().find_map(decide).unwrap_or(false)
    }

    /// Loads the rules of the directories above the tree, up to its repository or the permitting directory.
    fn load_rules_above(&mut self, real: &FilePath) -> Result<(), ToolOutcome> {
        let base = self.path.open_base()?;
        let root = &self.path.rooted.root;
        if !root.contains(real) {
            return Ok(());
        }
        let mut directory = real.as_str();
        let mut found = Vec::new();
        while directory != root.as_str() && found.len() < DEPTH_MAX {
            let Ok(handle) = base.open(directory) else { break };
            if rustix::fs::accessat(&handle, ".git", Access::EXISTS, AtFlags::empty()).is_ok() {
                break;
            }
            directory = super::split_parent(directory).0;
            found.push(directory);
        }
        for directory in found.into_iter().rev() {
            if let Ok(handle) = base.open(directory) {
                self.load_rules(handle.as_fd(), directory.trim_end_matches('/').len());
            }
        }
        Ok(())
    }

    /// Loads the rule files of a directory, whose path has this length.
    fn load_rules(&mut self, directory: BorrowedFd<'_>, length: usize) {
        let read = |name: &&str| -> Option<String> {
            let (file, stat) = open_regular(directory, name).ok()?;
            let mut text = String::new();
            let is_open = stat.bytes <= RULE_FILE_BYTES_MAX && self.blocked.contain_entry(&stat) == Ok(false);
            is_open.then(|| file.take(RULE_FILE_BYTES_MAX).read_to_string(&mut text).ok())??;
            Some(text)
        };
        let texts: Vec<String> = RULE_FILES.iter().filter_map(read).collect();
        let rules = IgnoreRules::parse(texts.iter().map(String::as_str));
        if !rules.is_empty() {
            self.rules.push((length, rules));
        }
    }
}

/// Whether the directory shows the state of the kernel or of processes instead of files.
fn is_kernel_directory(directory: BorrowedFd<'_>) -> bool {
    const SYSFS_MAGIC: rustix::fs::FsWord = 0x6265_6572;
    rustix::fs::fstatfs(directory)
        .map_or(true, |stat| [rustix::fs::PROC_SUPER_MAGIC, SYSFS_MAGIC].contains(&stat.f_type))
}
