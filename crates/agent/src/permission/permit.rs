//! Permits: which files a permitted call may open. Only the judge creates permits for files, one for each file effect:
//! a tool that declares only reads has nothing to write with.

use super::{DirectoryIdentity, FilePath, RootedPath};

/// The permit for a call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Permit {
    /// The files to read, in the order of the effects.
    pub readable: Vec<ReadPermit>,
    /// The files to write, in the order of the effects.
    pub writable: Vec<WritePermit>,
}

impl Permit {
    /// All files, to read and to write.
    pub fn files(&self) -> impl Iterator<Item = &FilePermit> {
        self.readable.iter().map(ReadPermit::file).chain(self.writable.iter().map(WritePermit::file))
    }
}

/// Where a permitted file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePermit {
    /// The file, and the directory to open it beneath.
    pub path: RootedPath,
    /// Directories that the opened file must not be in.
    pub blocked: Vec<FilePath>,
    /// The directories at or above the permitting one that still have to be the granted ones, outermost first.
    pub identities: Vec<DirectoryIdentity>,
}

impl FilePermit {
    /// Whether the identity of the permitting directory itself is recorded.
    #[must_use]
    pub fn is_identified(&self) -> bool {
        self.identities.last().is_some_and(|identity| identity.path == self.path.root)
    }
}

/// The permit to read one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadPermit(pub(super) FilePermit);

/// The permit to write one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WritePermit(pub(super) FilePermit);

impl ReadPermit {
    /// The file.
    #[must_use]
    pub fn file(&self) -> &FilePermit {
        &self.0
    }
}

impl WritePermit {
    /// The file.
    #[must_use]
    pub fn file(&self) -> &FilePermit {
        &self.0
    }
}
