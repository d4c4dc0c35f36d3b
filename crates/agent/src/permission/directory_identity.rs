//! The identity of granted directories. A path names another directory after a rename; device, inode
//! and birth time do not.

use super::{FilePath, Permissions};

/// The identity of the directory that was at a path when it was granted. Files beneath the path are opened only while
/// it leads to this directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirectoryIdentity {
    /// The path.
    pub path: FilePath,
    /// The device number of the file system.
    pub device: u64,
    /// The inode number. File systems give it to another directory when this one is deleted.
    pub inode: u64,
    /// The birth time in nanoseconds since 1970; none if the file system records none.
    pub born_ns: Option<i64>,
}

impl Permissions {
    /// The directories that the grants name, except `/`, which cannot be replaced.
    #[must_use]
    pub fn directories(&self) -> Vec<FilePath> {
        let sets = [&self.may.read, &self.may.write, &self.may_grant.read, &self.may_grant.write];
        let mut directories: Vec<_> = sets.into_iter().flat_map(|set| set.roots().iter().cloned()).collect();
        directories.retain(|directory| directory.as_str() != "/");
        directories.sort();
        directories.dedup();
        directories
    }

    /// Adds identities to both grants.
    pub fn add_identities(&mut self, identities: &[DirectoryIdentity]) {
        for grant in [&mut self.may, &mut self.may_grant] {
            let grant = std::sync::Arc::make_mut(grant);
            grant.identities = merge_identities(&grant.identities, identities);
        }
    }
}

/// The identities of both lists, sorted: a directory precedes its contents.
pub(super) fn merge_identities(a: &[DirectoryIdentity], b: &[DirectoryIdentity]) -> Vec<DirectoryIdentity> {
    let mut identities = [a, b].concat();
    identities.sort();
    identities.dedup();
    identities
}
