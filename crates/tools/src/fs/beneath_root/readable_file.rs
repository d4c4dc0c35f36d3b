//! A file that a call may read.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use agent::ToolOutcome;
use agent::permission::Permit;
use rustix::fs::OFlags;

use super::blocked::FileId;
use super::entry::{EntryKind, EntryStat};
use super::version::FileVersion;
use super::{PermittedPath, ResolvedFile, split_parent};
use crate::definition::execution_failed;

/// The permitted file of a call that reads.
pub(crate) struct ReadableFile(pub(super) PermittedPath);

/// What the file system says about a file.
pub(crate) struct FileDescription {
    pub(crate) kind: EntryKind,
    pub(crate) bytes: u64,
    /// When it was last changed, in seconds since 1970.
    pub(crate) modified_s: i64,
    pub(crate) mode: u32,
}

/// The content of an open regular file.
pub(crate) struct FileContent(pub(super) File);

impl ReadableFile {
    /// The file that the permit allows to read.
    pub(crate) fn from_permit(permit: &Permit, requested: &str) -> Result<Self, ToolOutcome> {
        Self::nth_of_permit(permit, 0, requested)
    }

    /// The file of the permit's read effect with this index.
    pub(crate) fn nth_of_permit(permit: &Permit, index: usize, requested: &str) -> Result<Self, ToolOutcome> {
        let file = permit.readable.get(index).map(|read| read.file());
        PermittedPath::new(file, requested).map(Self)
    }

    /// The path as the model wrote it, truncated for messages.
    pub(crate) fn requested_path(&self) -> &str {
        &self.0.requested_path
    }

    /// Opens the file, which has to be a regular one.
    pub(crate) fn open(&self) -> Result<FileContent, ToolOutcome> {
        let Self(path) = self;
        self.open_found(&path.find()?.ok_or_else(|| path.not_found())?)
    }

    pub(super) fn open_found(&self, found: &ResolvedFile) -> Result<FileContent, ToolOutcome> {
        let Self(path) = self;
        found.require_regular(path)?;
        found.open(OFlags::RDONLY).map(FileContent).map_err(|errno| path.errno_outcome(errno))
    }

    /// The identity of the entry at the path, which may be a link itself.
    pub(super) fn entry_id(&self) -> Result<FileId, ToolOutcome> {
        let Self(path) = self;
        let base = path.open_base()?;
        let found = path.open_root(&base).and_then(|root| {
            let (parent, name) = split_parent(&root.relative);
            let directory = match parent {
                "" => Arc::clone(&root.directory),
                parent => Arc::new(root.open(parent, OFlags::PATH | OFlags::DIRECTORY)?),
            };
            EntryStat::read(directory.as_fd(), name)
        });
        found.map(|stat| stat.id).map_err(|errno| path.errno_outcome(errno))
    }

    /// Describes the file or directory.
    pub(crate) fn describe(&self) -> Result<FileDescription, ToolOutcome> {
        let Self(path) = self;
        let found = path.find()?.ok_or_else(|| path.not_found())?;
        let stat = found.stat();
        Ok(FileDescription {
            kind: EntryKind::from_mode(stat.st_mode),
            bytes: u64::try_from(stat.st_size).unwrap_or_default(),
            modified_s: stat.st_mtime,
            mode: stat.st_mode & 0o7777,
        })
    }

    /// Reads the whole file, at most `bytes_max` bytes.
    pub(crate) fn read_all(&self, bytes_max: usize) -> Result<Vec<u8>, ToolOutcome> {
        self.read_content(&self.open()?, bytes_max)
    }

    /// Reads a whole text file, with the version that was read; none if there is no file.
    pub(crate) fn read_version(
        &self,
        bytes_max: usize,
    ) -> Result<Option<(String, FileVersion)>, ToolOutcome> {
        let Self(path) = self;
        let Some(found) = path.find()? else { return Ok(None) };
        let content = self.open_found(&found)?;
        let version = FileVersion::read(&content.0).map_err(|errno| path.errno_outcome(errno))?;
        let bytes = self.read_content(&content, bytes_max)?;
        let text = String::from_utf8(bytes).map_err(|_| binary_file(&path.requested_path))?;
        Ok(Some((text, version)))
    }

    fn read_content(&self, content: &FileContent, bytes_max: usize) -> Result<Vec<u8>, ToolOutcome> {
        let mut bytes = Vec::new();
        let read = (&content.0).take(bytes_max as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|fault| self.io_outcome(&fault))?;
        if bytes.len() > bytes_max {
            return Err(execution_failed(format!(
                "{} has more than {bytes_max} bytes",
                self.requested_path()
            )));
        }
        Ok(bytes)
    }

    /// The outcome if there is no such file.
    pub(crate) fn not_found(&self) -> ToolOutcome {
        self.0.not_found()
    }

    /// The outcome for an error on the open file.
    pub(crate) fn io_outcome(&self, fault: &io::Error) -> ToolOutcome {
        self.0.io_outcome(fault)
    }
}

/// Whether the content is binary: text has no NUL bytes.
pub(crate) fn is_binary(bytes: &[u8]) -> bool {
    bytes.contains(&0)
}

/// The outcome of reading a binary file as text.
pub(crate) fn binary_file(requested: &str) -> ToolOutcome {
    execution_failed(format!("{requested} is a binary file, not UTF-8 text"))
}

impl FileContent {
    /// The permission bits.
    pub(super) fn mode(&self) -> io::Result<u32> {
        Ok(self.0.metadata()?.mode() & 0o777)
    }

    /// The current size in bytes; 0 if it is unknown.
    pub(crate) fn size(&self) -> u64 {
        self.0.metadata().map_or(0, |metadata| metadata.len())
    }
}

impl Read for FileContent {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}
