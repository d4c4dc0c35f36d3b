//! Finds the git repository of a permitted path: the nearest directory with a `.git` at or above the path and within the
//! directory that permits it. The directories of the repository outside its working tree have to be permitted too.

use std::io::Read;

use agent::ToolOutcome;
use agent::permission::{FilePath, FilePermit, Permit, RootedPath};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::protected::is_credential;
use super::{
    DirectoryHandle, EntryKind, PermittedPath, ResolvedFile, path_denied, split_parent, truncate_for_display,
};
use crate::definition::execution_failed;

/// Maximum length of a `.git` or `commondir` file.
const POINTER_BYTES_MAX: u64 = 4_096;

/// A permitted path whose repository may be read.
pub(crate) struct ReadableRepository {
    file: FilePermit,
    requested: String,
    is_path_given: bool,
}

/// The open directories of a repository.
pub(crate) struct RepositoryDirectories {
    /// The working tree, then the git directories that are not in it.
    pub(crate) directories: Vec<DirectoryHandle>,
    /// The permitted path below the working tree; empty for all, and if no path was given.
    pub(crate) path: String,
    /// Blocked files and directories.
    pub(crate) blocked: Vec<FilePath>,
}

impl ReadableRepository {
    /// The repository of a permit. Without a path the whole repository is meant.
    pub(crate) fn from_permit(
        permit: &Permit,
        requested: &str,
        is_path_given: bool,
    ) -> Result<Self, ToolOutcome> {
        let requested = truncate_for_display(requested);
        let file = permit.readable.first().map(|read| read.file().clone());
        let file = file.ok_or_else(|| path_denied(&requested))?;
        Ok(Self { file, requested, is_path_given })
    }

    /// Finds and opens the directories.
    pub(crate) fn open(&self) -> Result<RepositoryDirectories, ToolOutcome> {
        let RootedPath { root, relative } = &self.file.path;
        if self.is_path_given && is_credential(&format!("{root}/{relative}")) {
            return Err(PermittedPath::new(Some(&self.file), &self.requested)?.credential_denied());
        }
        let mut directory = relative.as_str();
        loop {
            if let Some(found) = self.find(&join(directory, ".git"))? {
                let rest = relative[directory.len()..].trim_start_matches('/');
                let path = if self.is_path_given { rest.to_owned() } else { String::new() };
                let directories = self.open_directories(directory, &found)?;
                return Ok(RepositoryDirectories { directories, path, blocked: self.file.blocked.clone() });
            }
            if directory.is_empty() {
                return Err(execution_failed(format!(
                    "no git repository at or above {} within {root}, which you may read",
                    self.requested
                )));
            }
            directory = split_parent(directory).0;
        }
    }

    /// Resolves a path below the permitting directory; none if there is nothing.
    fn find(&self, relative: &str) -> Result<Option<ResolvedFile>, ToolOutcome> {
        let path = self.permitted(relative)?;
        let base = path.open_base()?;
        let opened = path.open_root(&base).and_then(|root| root.open(&root.relative, OFlags::PATH));
        match opened {
            Ok(handle) => path.inspect(handle).map(Some),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(Errno::XDEV | Errno::LOOP) => Err(self.leads_outside(relative, "a link")),
            Err(errno) => Err(path.errno_outcome(errno)),
        }
    }

    fn permitted(&self, relative: &str) -> Result<PermittedPath, ToolOutcome> {
        let path = RootedPath { root: self.file.path.root.clone(), relative: relative.to_owned() };
        let file = FilePermit { path, ..self.file.clone() };
        PermittedPath::new(Some(&file), &format!("{}/{relative}", self.file.path.root))
    }

    fn open_directories(
        &self,
        worktree: &str,
        dot_git: &ResolvedFile,
    ) -> Result<Vec<DirectoryHandle>, ToolOutcome> {
        let tree = self.find_directory(worktree)?;
        let mut directories = vec![tree];
        match EntryKind::from_mode(dot_git.stat.st_mode) {
            EntryKind::Directory => {
                let handle = dot_git.handle.try_clone().map_err(execution_failed)?;
                add(&mut directories, DirectoryHandle { path: dot_git.real_path.clone(), handle });
            }
            EntryKind::File => {
                let text = self.read_pointer(dot_git)?;
                let target = text.strip_prefix("gitdir:").ok_or_else(|| {
                    execution_failed(format!("{} names no git directory", dot_git.real_path))
                })?;
                let git = self.find_named(target.trim(), &directories[0].path, &dot_git.real_path)?;
                if let Some(pointer) = self.find_in_root(&join(git.path.as_str(), "commondir"))? {
                    let text = self.read_pointer(&pointer)?;
                    let common = self.find_named(text.trim(), &git.path, &pointer.real_path)?;
                    add(&mut directories, common);
                }
                add(&mut directories, git);
            }
            _ => return Err(execution_failed(format!("{} is not a git directory", dot_git.real_path))),
        }
        Ok(directories)
    }

    /// The directory that a file names, relative to `base`.
    fn find_named(
        &self,
        text: &str,
        base: &FilePath,
        named_by: &FilePath,
    ) -> Result<DirectoryHandle, ToolOutcome> {
        let target = FilePath::resolve(text, base)
            .map_err(|fault| execution_failed(format!("{named_by}: {fault}")))?;
        match self.file.path.root.relative_path(&target) {
            Some(relative) => self.find_directory(relative),
            None => Err(self.leads_outside(named_by.as_str(), &format!("it names {target}"))),
        }
    }

    fn find_in_root(&self, path: &str) -> Result<Option<ResolvedFile>, ToolOutcome> {
        let path = FilePath::resolve(path, &self.file.path.root).map_err(execution_failed)?;
        self.file.path.root.relative_path(&path).map_or(Ok(None), |relative| self.find(relative))
    }

    fn find_directory(&self, relative: &str) -> Result<DirectoryHandle, ToolOutcome> {
        let permitted = self.permitted(relative)?;
        DirectoryHandle::open(&FilePermit { path: permitted.rooted.clone(), ..self.file.clone() })?
            .ok_or_else(|| permitted.not_found())
    }

    fn read_pointer(&self, file: &ResolvedFile) -> Result<String, ToolOutcome> {
        let fail = |why: &dyn std::fmt::Display| execution_failed(format!("{}: {why}", file.real_path));
        file.require_regular(&self.permitted("")?)?;
        let opened = file.open(OFlags::RDONLY).map_err(|errno| fail(&errno))?;
        let mut text = String::new();
        opened.take(POINTER_BYTES_MAX).read_to_string(&mut text).map_err(|error| fail(&error))?;
        Ok(text)
    }

    fn leads_outside(&self, what: &str, why: &str) -> ToolOutcome {
        ToolOutcome::Denied(format!(
            "Permission denied: the repository is not read, because {what} leads out of {} ({why})",
            self.file.path.root
        ))
    }
}

/// Adds a directory, unless another one contains it.
fn add(directories: &mut Vec<DirectoryHandle>, directory: DirectoryHandle) {
    if !directories.iter().any(|other| other.path.contains(&directory.path)) {
        directories.push(directory);
    }
}

fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}
