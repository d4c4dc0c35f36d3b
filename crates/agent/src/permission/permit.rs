//! Permits: which files a permitted call may open, which commands it may run and where it may connect. Only the judge
//! creates permits, one for each effect: a tool that declares only reads has nothing to write with.

use std::sync::Arc;

use super::{Confinement, Destination, DirectoryIdentity, FilePath, HostSet, RootedPath};

/// The permit for a call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Permit {
    /// The files to read, in the order of the effects.
    pub readable: Vec<ReadPermit>,
    /// The files to write, in the order of the effects.
    pub writable: Vec<WritePermit>,
    /// The commands to run, in the order of the effects.
    pub commands: Vec<RunPermit>,
    /// The connections to open, in the order of the effects.
    pub connections: Vec<ConnectPermit>,
}

impl Permit {
    /// All files and directories, to read and to write, also those of commands.
    pub fn files(&self) -> impl Iterator<Item = &FilePermit> {
        let commands = &self.commands;
        let readable = commands.iter().flat_map(|command| command.readable.iter().chain([&command.cwd]));
        let writable = commands.iter().flat_map(|command| &command.writable);
        let readable = self.readable.iter().chain(readable).map(ReadPermit::file);
        readable.chain(self.writable.iter().chain(writable).map(WritePermit::file))
    }
}

/// The permit to run one command: what its sandbox contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPermit {
    pub(super) program: Arc<str>,
    pub(super) confinement: Confinement,
    pub(super) cwd: ReadPermit,
    pub(super) readable: Vec<ReadPermit>,
    pub(super) writable: Vec<WritePermit>,
}

impl RunPermit {
    /// The program, as the caller wrote it.
    #[must_use]
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Whether it runs in the sandbox.
    #[must_use]
    pub fn confinement(&self) -> Confinement {
        self.confinement
    }

    /// The working directory.
    #[must_use]
    pub fn cwd(&self) -> &ReadPermit {
        &self.cwd
    }

    /// The directories that the command may read.
    #[must_use]
    pub fn readable(&self) -> &[ReadPermit] {
        &self.readable
    }

    /// The directories that the command may change.
    #[must_use]
    pub fn writable(&self) -> &[WritePermit] {
        &self.writable
    }
}

/// The permit to connect to one host, and to those it redirects to. A redirect and each address are judged again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectPermit {
    pub(super) to: Destination,
    pub(super) hosts: HostSet,
}

impl ConnectPermit {
    /// The host of the call.
    #[must_use]
    pub fn destination(&self) -> &Destination {
        &self.to
    }

    /// The hosts that may be connected to.
    #[must_use]
    pub fn hosts(&self) -> &HostSet {
        &self.hosts
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
