//! Where files may be: absolute paths without dots or links in their text, and sets of folders closed under
//! intersection. Text decides which folder a path is asked beneath; the open itself is done beneath that folder's
//! handle, so that links cannot lead out of it.

use std::fmt;
use std::sync::Arc;

/// The longest path that is looked at.
const PATH_BYTES_MAX: usize = 4096;

/// An absolute path in its simplest text: no `.`, no `..`, no empty part, no trailing slash.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePath(Arc<str>);

/// Why a text is no path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathFault {
    /// Nothing was given.
    #[error("the path is empty")]
    Empty,
    /// No file has such a name.
    #[error("the path holds a NUL")]
    Nul,
    /// Longer than any path.
    #[error("the path is longer than {PATH_BYTES_MAX} bytes")]
    TooLong,
}

/// A path as it is opened: the folder that allows it, and what follows, relative to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootedPath {
    /// The folder.
    pub root: FilePath,
    /// What follows; empty for the folder itself.
    pub relative: String,
}

impl FilePath {
    /// The root of all.
    #[must_use]
    pub fn root() -> Self {
        Self(Arc::from("/"))
    }

    /// Reads a path; a relative one begins at `base`. `..` is taken from the text, never from the disk.
    ///
    /// # Errors
    /// When no file can have such a path.
    pub fn resolve(text: &str, base: &FilePath) -> Result<Self, PathFault> {
        if text.is_empty() {
            return Err(PathFault::Empty);
        }
        if text.contains('\0') {
            return Err(PathFault::Nul);
        }
        let start = if text.starts_with('/') { "/" } else { base.as_str() };
        let mut parts: Vec<&str> = start.split('/').filter(|part| !part.is_empty()).collect();
        for part in text.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        let path = Self(Arc::from(format!("/{}", parts.join("/"))));
        if path.0.len() > PATH_BYTES_MAX { Err(PathFault::TooLong) } else { Ok(path) }
    }

    /// The path's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `path` is this folder or lies in it, part by part: `/a/bc` is not in `/a/b`.
    #[must_use]
    pub fn contains(&self, path: &FilePath) -> bool {
        self.relative_path(path).is_some()
    }

    /// What of `path` comes after this folder.
    #[must_use]
    pub fn relative_path<'a>(&self, path: &'a FilePath) -> Option<&'a str> {
        if &*self.0 == "/" {
            return path.0.strip_prefix('/');
        }
        let rest = path.0.strip_prefix(&*self.0)?;
        if rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Debug for FilePath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, out)
    }
}

/// A set of folders with all that is in them.
#[derive(Clone, PartialEq, Eq)]
pub struct DirectorySet {
    /// Sorted; none holds another.
    roots: Vec<FilePath>,
}

impl DirectorySet {
    /// No folder.
    #[must_use]
    pub fn none() -> Self {
        Self { roots: Vec::new() }
    }

    /// Every folder.
    #[must_use]
    pub fn all() -> Self {
        Self::from_roots([FilePath::root()])
    }

    /// These folders.
    #[must_use]
    pub fn from_roots(roots: impl IntoIterator<Item = FilePath>) -> Self {
        let mut roots: Vec<FilePath> = roots.into_iter().collect();
        // By length first: a folder comes before all that it holds.
        roots.sort_by_key(|root| root.as_str().len());
        let mut kept: Vec<FilePath> = Vec::with_capacity(roots.len());
        for root in roots {
            if !kept.iter().any(|other| other.contains(&root)) {
                kept.push(root);
            }
        }
        kept.sort();
        Self { roots: kept }
    }

    /// The folders.
    #[must_use]
    pub fn roots(&self) -> &[FilePath] {
        &self.roots
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    /// The folder a path is in.
    #[must_use]
    pub fn find(&self, path: &FilePath) -> Option<RootedPath> {
        let rooted = |root: &FilePath| {
            root.relative_path(path).map(|rest| RootedPath { root: root.clone(), relative: rest.to_owned() })
        };
        self.roots.iter().find_map(rooted)
    }

    /// What is in both sets.
    #[must_use]
    pub fn intersection(&self, other: &DirectorySet) -> DirectorySet {
        let pairs = self.roots.iter().flat_map(|one| other.roots.iter().map(move |two| (one, two)));
        let both = |(one, two): (&FilePath, &FilePath)| match (one.contains(two), two.contains(one)) {
            (true, _) => Some(two.clone()),
            (_, true) => Some(one.clone()),
            _ => None,
        };
        DirectorySet::from_roots(pairs.filter_map(both))
    }

    /// Whether everything in this set is in the other too.
    #[must_use]
    pub fn is_within(&self, other: &DirectorySet) -> bool {
        self.roots.iter().all(|root| other.roots.iter().any(|outer| outer.contains(root)))
    }
}

impl fmt::Display for DirectorySet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.roots.as_slice() {
            [] => out.write_str("nowhere"),
            [root] if root.as_str() == "/" => out.write_str("anywhere"),
            roots => {
                for (place, root) in roots.iter().enumerate() {
                    let separator = if place == 0 { "" } else { ", " };
                    write!(out, "{separator}{root}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Debug for DirectorySet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}
